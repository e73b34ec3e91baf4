"""The lock file of upstreams: what a model reads of them, so that an upstream that changes is noticed (`pin`).

The file is next to the configuration, as `<configuration>.lock.json`. `gateway upstreams pin` writes it. It has the
digest of each tool and prompt, and the instructions as a text, since they can be served in place of changed ones.
Resources are not pinned: their lists are data, which changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.errors import ConfigurationError
from gateway.protocol.reserved_meta import without_reserved
from gateway.protocol.upstream.cleaning import clean_text
from gateway.sealing.digest import canonical_text

SUFFIX: Final = ".lock.json"
VERSION: Final = 1
MAX_LOCK_BYTES: Final = 16 << 20

PINNED_KINDS: Final = frozenset({"tools", "prompts"})
"""The lists whose entries are pinned."""

_OLD_COVERED: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
"""The members of a tool that the lock file of release 0.2.0 covers."""

_NOT_SERVED: Final[Mapping[str, frozenset[str]]] = {"tools": frozenset({"execution"})}
"""The members of an entry that no client gets, by kind."""

_HOW_TO_WRITE: Final = "run `gateway upstreams pin`"


@dataclass(frozen=True, slots=True)
class Pinned:
    """The part of the lock file about one upstream.

    A digest covers the kind and the name of a tool or prompt too. Release 0.2.0 wrote old ones: they cover tools only,
    without their icons and `_meta`.
    """

    digests: frozenset[str] = frozenset()
    instructions: str = ""
    is_old: bool = False

    def has(self, kind: str, entry: Mapping[str, Any]) -> bool:
        """Return whether an entry, as its upstream lists it, is as it was when it was pinned."""
        try:
            digest = _old_digest(entry) if self.is_old and kind == "tools" else entry_digest(kind, entry)
        except (TypeError, ValueError):  # it is not JSON
            return False
        return digest in self.digests

    def covered(self, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the part of a pinned entry that nobody can have changed."""
        return {name: entry[name] for name in _OLD_COVERED if name in entry} if self.is_old else entry


class _Pins(msgspec.Struct, frozen=True):
    """The pins of one upstream: the digest of each tool and prompt by its name."""

    instructions: str
    tools: dict[str, str]
    prompts: dict[str, str]


class _Lock(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of a lock file.

    `upstreams` has the digests of tools as release 0.2.0 computes them; that release reads nothing else. `pins` has
    everything, by upstream; None in a file that release 0.2.0 wrote.
    """

    version: int
    upstreams: dict[str, dict[str, str]]
    pins: dict[str, _Pins] | None = None


@dataclass(frozen=True, slots=True)
class ToPin:
    """What to pin of one upstream: its served entries as it lists them, and its instructions."""

    tools: Sequence[Mapping[str, Any]] = ()
    prompts: Sequence[Mapping[str, Any]] = ()
    instructions: str = ""


def lock_file_of(configuration: Path) -> Path:
    """Return the path of the lock file of a configuration file."""
    return configuration.with_name(configuration.name + SUFFIX)


def entry_digest(kind: str, entry: Mapping[str, Any]) -> str:
    """Return the digest of a tool or prompt as its upstream lists it: of everything that clients get of it.

    It must be JSON.
    """
    not_served = _NOT_SERVED.get(kind, frozenset())
    covered = {name: member for name, member in entry.items() if name != "_meta" and name not in not_served}
    meta = entry.get("_meta")
    if isinstance(meta, Mapping) and (kept := without_reserved(meta)):
        covered["_meta"] = kept
    return _digest({kind: covered})


def _old_digest(tool: Mapping[str, Any]) -> str:
    return _digest({member: tool[member] for member in _OLD_COVERED if member in tool})


def _digest(value: dict[str, Any]) -> str:
    return f"sha256:{hashlib.sha256(canonical_text(value)).hexdigest()}"


def read_lock(path: Path) -> dict[str, Pinned]:
    """Return what is pinned of each upstream, or raise `ConfigurationError` if this is not a lock file to read."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_LOCK_BYTES + 1)
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: does not exist, but upstreams have a pin; {_HOW_TO_WRITE}") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigurationError(f"{path}: cannot be read: {reason}; {_HOW_TO_WRITE}") from None
    lock = _decoded(content)
    if lock is None:
        raise ConfigurationError(f"{path}: not a lock file of this release; {_HOW_TO_WRITE}")
    if lock.pins is None:
        return {name: Pinned(frozenset(tools.values()), is_old=True) for name, tools in lock.upstreams.items()}
    return {
        name: Pinned(frozenset((*pins.tools.values(), *pins.prompts.values())), clean_text(pins.instructions))
        for name, pins in lock.pins.items()
    }


def _decoded(content: bytes) -> _Lock | None:
    """Return the content of a lock file; None if it is not one."""
    try:
        lock = msgspec.json.decode(content, type=_Lock)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if lock.version != VERSION or len(content) > MAX_LOCK_BYTES else lock


def write_lock(path: Path, upstreams: Mapping[str, ToPin]) -> None:
    """Write the lock file, at once or not at all, or raise `ConfigurationError`. Release 0.2.0 can read it too."""
    named = sorted(upstreams.items())
    lock = _Lock(
        VERSION,
        {name: _by_name(each.tools, _old_digest) for name, each in named},
        {
            name: _Pins(
                each.instructions,
                _by_name(each.tools, lambda tool: entry_digest("tools", tool)),
                _by_name(each.prompts, lambda prompt: entry_digest("prompts", prompt)),
            )
            for name, each in named
        },
    )
    text = json.dumps(msgspec.to_builtins(lock), indent=2, ensure_ascii=False) + "\n"
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        reason = error.strerror or type(error).__name__
        raise ConfigurationError(f"{path}: cannot be written: {reason}; make its folder writable") from None


def _by_name(entries: Iterable[Mapping[str, Any]], digest: Callable[[Mapping[str, Any]], str]) -> dict[str, str]:
    return {str(entry["name"]): digest(entry) for entry in sorted(entries, key=lambda entry: str(entry["name"]))}
