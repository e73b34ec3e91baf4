"""Pure: what a client declared it can do (`ClientCapabilities`), checked, and as the flags of a session.

How a capability is named, and whether a client has it, is in `gateway.engine.capabilities`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from gateway.engine.capabilities import CapabilityPath, supports
from gateway.errors import InvalidParams
from gateway.sealing.client_flags import FLAGS

ROOTS: Final[CapabilityPath] = ("roots",)
TASKS: Final[CapabilityPath] = ("extensions", "io.modelcontextprotocol/tasks")
HANDSHAKE_TASKS: Final[CapabilityPath] = ("tasks",)

# Each known capability with those of its members that must be objects; None: every member must be.
_OBJECT_MEMBERS: Final[Mapping[str, tuple[str, ...] | None]] = {
    "elicitation": ("form", "url"),
    "sampling": ("tools", "context"),
    "roots": (),
    "extensions": None,
    "experimental": None,
}


def capability_path(name: str) -> CapabilityPath:
    """Read an author's text, e.g. `elicitation.form` or `extensions.com.example/files`.

    Raises:
        ValueError: the text has an empty part.
    """
    first, dot, rest = name.partition(".")
    path = (first, rest) if first in {"extensions", "experimental"} and dot else tuple(name.split("."))
    if not all(path):
        raise ValueError(f"{name!r} does not name a client capability")
    return path


def flags_of(capabilities: Mapping[str, Any]) -> frozenset[str]:
    """Return which flags a session remembers of checked capabilities; everything else in them is dropped."""
    return frozenset(flag for flag in FLAGS if supports(capabilities, capability_path(flag)))


def from_flags(flags: Collection[str]) -> dict[str, Any]:
    """Write the flags of a session as capabilities that support the same as those they were read from.

    Each member is an object, also where the schema has `true` or a list of names. A flag that is not known is dropped.
    """
    capabilities: dict[str, Any] = {}
    for flag in FLAGS:
        if flag in flags:
            declared = capabilities
            for name in capability_path(flag):
                declared = declared.setdefault(name, {})
    return capabilities


def check_capabilities(capabilities: Any, field: str) -> dict[str, Any]:
    """Return `capabilities` if its known members have the types of the schema; unknown members are kept.

    Args:
        capabilities: the value as decoded.
        field: where it stands in the message, for the error.

    Raises:
        InvalidParams: a member has another type; the message names it.
    """
    checked = _check_object(capabilities, field)
    for name, value in checked.items():
        if name not in _OBJECT_MEMBERS:
            continue
        members = _check_object(value, f"{field}.{name}")
        inner = _OBJECT_MEMBERS[name]
        for member in members if inner is None else inner:
            if member in members:
                _check_object(members[member], f"{field}.{name}.{member}")
    return checked


def _check_object(value: Any, field: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise InvalidParams(f"{field} must be an object")
    return value
