"""Pure: the capabilities that a client declares (`ClientCapabilities`): their checks, and the flags of a session.

`gateway.engine.capabilities` defines how a capability is named, and whether a client has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from gateway.engine.capabilities import CapabilityPath, supports
from gateway.errors import InvalidParams
from gateway.sealing.client_flags import FLAGS

ROOTS: Final[CapabilityPath] = ("roots",)
TASKS: Final[CapabilityPath] = ("extensions", "io.modelcontextprotocol/tasks")
HANDSHAKE_TASKS: Final[CapabilityPath] = ("tasks",)

# Each known capability, with its members that must be objects. None: all members must be objects.
_OBJECT_MEMBERS: Final[Mapping[str, tuple[str, ...] | None]] = {
    "elicitation": ("form", "url"),
    "sampling": ("tools", "context"),
    "roots": (),
    "extensions": None,
    "experimental": None,
}


def capability_path(name: str) -> CapabilityPath:
    """Return the path of a capability that an author names, e.g. `elicitation.form` or `extensions.com.example/files`.

    An empty part of the name is a `ValueError`.
    """
    first, dot, rest = name.partition(".")
    path = (first, rest) if first in {"extensions", "experimental"} and dot else tuple(name.split("."))
    if not all(path):
        raise ValueError(f"{name!r} does not name a client capability")
    return path


def flags_of(capabilities: Mapping[str, Any]) -> frozenset[str]:
    """Return the flags that a session keeps of checked capabilities. Everything else is dropped."""
    return frozenset(flag for flag in FLAGS if supports(capabilities, capability_path(flag)))


def from_flags(flags: Collection[str]) -> dict[str, Any]:
    """Return capabilities that are equivalent to those that the flags were made from.

    Each member is an object, even if the schema has `true` or a list of names there. Unknown flags are dropped.
    """
    return declaring(capability_path(flag) for flag in FLAGS if flag in flags)


def declaring(paths: Iterable[CapabilityPath]) -> dict[str, Any]:
    """Return capabilities that declare these."""
    capabilities: dict[str, Any] = {}
    for path in paths:
        node = capabilities
        for name in path:
            node = node.setdefault(name, {})
    return capabilities


def check_capabilities(capabilities: Any, field: str) -> dict[str, Any]:
    """Return `capabilities` if its known members have the types of the schema, or are null. Unknown members are kept.

    `field` is its place in the message, for the `InvalidParams` that a wrong type raises.
    """
    checked = _check_object(capabilities, field)
    for name, value in checked.items():
        if value is None or name not in _OBJECT_MEMBERS:
            continue
        members = _check_object(value, f"{field}.{name}")
        inner = _OBJECT_MEMBERS[name]
        for member in members if inner is None else inner:
            if member in members and members[member] is not None:
                _check_object(members[member], f"{field}.{name}.{member}")
    return checked


def _check_object(value: Any, field: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise InvalidParams(f"{field} must be an object")
    return value
