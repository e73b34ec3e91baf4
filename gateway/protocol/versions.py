"""Pure: protocol versions and their names in messages.

Sources: 2026-07-28 "Versioning and Compatibility" and "basic", section "`_meta`"; 2025-11-25 "Lifecycle", Version
Negotiation.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias, get_args

from gateway.errors import InvalidParams

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
