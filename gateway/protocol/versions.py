"""Pure: protocol versions, their names in messages, and the wire that a message chooses.

Sources: 2026-07-28 "Versioning and Compatibility" and "basic", section "`_meta`"; 2025-11-25 "Lifecycle", Version
Negotiation.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias, get_args

from gateway.errors import InvalidParams, UnsupportedVersion
from gateway.protocol.jsonrpc import Message, Request, Response

RELEASED: Final = "2026-07-28"
DRAFT: Final = "DRAFT-2026-v1"
LEGACY: Final = "2025-11-25"
BEFORE_TASKS: Final = "2025-06-18"
"""The same as 2025-11-25 in everything that is served, except tasks and icons."""

BEFORE_ELICITATION: Final = "2025-03-26"
"""The same as 2025-06-18, except elicitation, structured output, titles and links to resources."""

BEFORE_AUDIO: Final = "2024-11-05"
"""The same as 2025-03-26 in everything that is served, except audio. Its own transport is not served."""

OLDER_VERSIONS: Final = (BEFORE_ELICITATION, BEFORE_AUDIO)
"""The versions that only `initialize` selects: served to clients that ask for them, and not reported."""

LEGACY_VERSIONS: Final = (LEGACY, BEFORE_TASKS, *OLDER_VERSIONS)
"""The versions of the handshake wire that are served, newest first."""

SUPPORTED_VERSIONS: Final = (RELEASED, LEGACY, BEFORE_TASKS)
"""The versions that this build reports to clients, newest first.

The draft wire is not listed, because its clients know it. Nor are `OLDER_VERSIONS`, because their clients do not ask.
"""

INITIALIZE: Final = "initialize"
"""The method that starts a session and negotiates its version."""

META_PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
META_CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
META_CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
META_LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
META_PROGRESS: Final = "progressToken"
META_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
META_SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"

LogLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LOG_LEVELS: Final[tuple[LogLevel, ...]] = get_args(LogLevel)
"""From the least to the most severe (RFC 5424 section 6.2.1)."""


class Wire(StrEnum):
    """One form of the protocol. Each request chooses its own wire."""

    RELEASED = RELEASED
    LEGACY = LEGACY
    DRAFT = "draft"


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


def negotiate(requested: Any) -> str:
    """Return the version to answer an `initialize` with: the requested one, or else the one that this build prefers.

    If `protocolVersion` is not a string, this raises `InvalidParams`.
    """
    if type(requested) is not str:
        raise InvalidParams("params.protocolVersion must be a string, such as 2025-11-25")
    if requested == DRAFT or requested in LEGACY_VERSIONS:
        return requested
    return LEGACY_VERSIONS[0]


def wire_of(version: str) -> Wire:
    """Return the wire of a version that `negotiate` returned."""
    return Wire.DRAFT if version == DRAFT else Wire.LEGACY


def _has_modern_meta(params: Mapping[str, Any]) -> bool:
    """Return whether the message carries its own version or capabilities, which no handshake wire does."""
    meta = params.get("_meta")
    return type(meta) is dict and (META_PROTOCOL_VERSION in meta or META_CLIENT_CAPABILITIES in meta)
