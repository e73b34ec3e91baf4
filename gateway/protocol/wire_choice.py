"""Pure: the wire that a message chooses.

Sources: 2026-07-28 "Versioning and Compatibility" and "basic", section "`_meta`"; 2025-11-25 "Lifecycle", Version
Negotiation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.errors import UnsupportedVersion
from gateway.protocol.jsonrpc import Message, Request, Response
from gateway.protocol.versions import (
    DRAFT,
    INITIALIZE,
    LEGACY_VERSIONS,
    META_CLIENT_CAPABILITIES,
    META_PROTOCOL_VERSION,
    RELEASED,
    SUPPORTED_VERSIONS,
    Wire,
    negotiate,
    wire_of,
)


def choose_wire(message: Message, header_version: str | None) -> Wire:
    """Return the wire that a message chooses. Its `_meta` takes precedence over the trimmed `MCP-Protocol-Version`.

    `Wire.LEGACY` is the default. Such a message needs a session, and the version of the session decides in the end; see
    `wire_of`.

    Raises:
        UnsupportedVersion: the header names a version that is not served.
        InvalidParams: the `protocolVersion` of an `initialize` is not a string.
    """
    if header_version == RELEASED or (not isinstance(message, Response) and _has_modern_meta(message.params)):
        return Wire.RELEASED
    if isinstance(message, Request) and message.method == INITIALIZE:
        return wire_of(negotiate(message.params.get("protocolVersion")))
    if header_version == DRAFT:
        return Wire.DRAFT
    if header_version is None or header_version in LEGACY_VERSIONS:
        return Wire.LEGACY
    raise UnsupportedVersion(SUPPORTED_VERSIONS, header_version)


def wire_of_headers(version: str | None, *, in_session: bool) -> Wire | None:
    """Return the wire of a message that cannot be read, or None if the headers do not show it.

    `version` is the `MCP-Protocol-Version` header, trimmed. Without one, a session decides.
    """
    if version == DRAFT:
        return Wire.DRAFT
    return Wire.LEGACY if version in LEGACY_VERSIONS or (version is None and in_session) else None


def _has_modern_meta(params: Mapping[str, Any]) -> bool:
    """Return whether the message carries its own version or capabilities, which no handshake wire does."""
    meta = params.get("_meta")
    return type(meta) is dict and (META_PROTOCOL_VERSION in meta or META_CLIENT_CAPABILITIES in meta)
