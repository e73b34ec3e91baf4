"""The lock file of upstreams: digests of their tools, so that one that changes is noticed (`pin`).

The file is next to the configuration, as `<configuration>.lock.json`. `gateway upstreams pin` writes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.errors import ConfigurationError
from gateway.sealing.digest import canonical_text
from gateway.upstreams.definition import Definition

SUFFIX: Final = ".lock.json"
VERSION: Final = 1
MAX_LOCK_BYTES: Final = 16 << 20
COVERED: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
"""The members of a tool that its digest covers: everything that a model or a user decides by."""

_HOW_TO_WRITE: Final = "run `gateway upstreams pin`"


class _Lock(msgspec.Struct, frozen=True):
    """The content of a lock file: for each upstream, the digest of each tool by its name."""

    version: int
    upstreams: dict[str, dict[str, str]]


def lock_file_of(configuration: Path) -> Path:
    """Return the path of the lock file of a configuration file."""
    return configuration.with_name(configuration.name + SUFFIX)


def tool_digest(tool: Mapping[str, Any]) -> str:
    """Return the digest of a tool as its upstream lists it, before it is renamed.

    Raises:
        TypeError, ValueError: it is not JSON.
    """
    covered = {member: tool[member] for member in COVERED if member in tool}
    return f"sha256:{hashlib.sha256(canonical_text(covered)).hexdigest()}"


def differs(definition: Definition, tool: Mapping[str, Any]) -> bool:
    """Return whether an upstream pins its tools and this one is not in the lock file as it is now."""
    return definition.pin != "off" and tool_digest(tool) not in definition.pinned


def read_lock(path: Path) -> dict[str, frozenset[str]]:
    """Return the digests of the pinned tools of each upstream, by its name.

    Raises:
        ConfigurationError: the file cannot be read, or is not a lock file.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_LOCK_BYTES + 1)
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: does not exist, but upstreams have a pin; {_HOW_TO_WRITE}") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigurationError(f"{path}: cannot be read: {reason}; {_HOW_TO_WRITE}") from None
    found = _digests(content)
    if found is None:
        raise ConfigurationError(f"{path}: not a lock file of this release; {_HOW_TO_WRITE}")
    return found


def _digests(content: bytes) -> dict[str, frozenset[str]] | None:
    """Return what the content of a lock file says; None if it is not one."""
    try:
        lock = msgspec.json.decode(content, type=_Lock)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if lock.version != VERSION or len(content) > MAX_LOCK_BYTES:
        return None
    return {name: frozenset(tools.values()) for name, tools in lock.upstreams.items()}


def write_lock(path: Path, tools: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
    """Write the lock file, at once or not at all.

    Args:
        path: the lock file.
        tools: the tools of each upstream as it lists them, by the upstream's name.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    upstreams = {
        name: {str(tool["name"]): tool_digest(tool) for tool in sorted(listed, key=lambda tool: str(tool["name"]))}
        for name, listed in sorted(tools.items())
    }
    text = json.dumps({"version": VERSION, "upstreams": upstreams}, indent=2, ensure_ascii=False) + "\n"
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
