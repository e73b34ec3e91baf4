"""Pure: protocol versions, the names that go with them, and which wire a message chooses.

Sources: 2026-07-28 "Versioning and Compatibility" and "basic", section "`_meta`".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from gateway.errors import InvalidParams, UnsupportedVersion
from gateway.protocol.jsonrpc import Notification, Request

RELEASED: Final = "2026-07-28"

SUPPORTED_VERSIONS: Final = (RELEASED,)
"""What this build tells clients that it serves, newest first."""

META_PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
META_CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
META_CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
META_LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
META_PROGRESS_TOKEN: Final = "progressToken"  # noqa: S105 (a name, no secret)
META_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
META_SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""From the least to the most severe (RFC 5424 section 6.2.1, in words)."""


class Wire(StrEnum):
    """A protocol form on the HTTP body; each request chooses its own."""

    RELEASED = RELEASED


def choose_wire(message: Request | Notification, header_version: str | None) -> Wire:
    """Choose the wire of a message from what it says of itself, `_meta` before the header.

    A message that says nothing is taken for the released wire, whose checks then name what is missing.

    Args:
        message: the parsed body.
        header_version: the `MCP-Protocol-Version` header, trimmed.

    Raises:
        UnsupportedVersion: it asks for a version that is not served here.
        InvalidParams: an `initialize` whose `protocolVersion` is not a string.
    """
    if header_version == RELEASED or _has_modern_meta(message.params):
        return Wire.RELEASED
    if message.method == "initialize":
        requested = message.params.get("protocolVersion")
        if type(requested) is not str:
            raise InvalidParams(f"params.protocolVersion must be a string, such as {RELEASED}")
        raise UnsupportedVersion(SUPPORTED_VERSIONS, requested)
    if header_version is not None:
        raise UnsupportedVersion(SUPPORTED_VERSIONS, header_version)
    return Wire.RELEASED


def _has_modern_meta(params: Mapping[str, Any]) -> bool:
    """Whether the message carries its version or capabilities itself, as no handshake wire does."""
    meta = params.get("_meta")
    return type(meta) is dict and (META_PROTOCOL_VERSION in meta or META_CLIENT_CAPABILITIES in meta)
