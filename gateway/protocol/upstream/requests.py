"""Pure: requests to a stateless server, body and headers (2026-07-28 "Streamable HTTP" and "basic")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import pybase64

from gateway.engine.capabilities import ELICITATION_FORM, CapabilityPath, supports
from gateway.protocol.capabilities import declaring
from gateway.protocol.jsonrpc import RequestId
from gateway.protocol.method_table import NAMED_METHODS
from gateway.protocol.param_headers import ParamHeader, value_at
from gateway.protocol.reserved_meta import without_reserved
from gateway.protocol.strict_json import encode
from gateway.protocol.versions import (
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_PROGRESS,
    META_PROTOCOL_VERSION,
    RELEASED,
)
from gateway.runtime.version import __version__

RELAYED: Final[tuple[CapabilityPath, ...]] = (
    ELICITATION_FORM,
    ("elicitation", "url"),
    ("sampling",),
    ("sampling", "tools"),
    ("roots",),
)
"""What the gateway passes on between a server that asks and a client that answers."""

MAX_SAFE_INTEGER: Final = 2**53 - 1
"""Larger integers cannot be mirrored in a header ("Schema Extension")."""

STANDARD_HEADERS: Final = (
    (b"content-type", b"application/json"),
    (b"accept", b"application/json, text/event-stream"),
    (b"user-agent", f"sealed-gateway/{__version__}".encode()),
)
"""The headers of requests of every version."""

_RELEASED_HEADERS: Final = (*STANDARD_HEADERS, (b"mcp-protocol-version", RELEASED.encode()))
_SENTINEL_START: Final = "=?base64?"
_SENTINEL_END: Final = "?="

RawHeaders = list[tuple[bytes, bytes]]


class Envelope(msgspec.Struct, frozen=True):
    """The part of a request that describes its sender.

    Attributes:
        client_info: the `Implementation` of the gateway.
        log_level: the least severe log messages to send; None asks for none.
        traceparent: our span (W3C "Trace Context"), or None.
    """

    client_info: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    progress_token: RequestId | None = None
    log_level: str | None = None
    traceparent: str | None = None


def relayed_capabilities(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a client declared, reduced to what the gateway can pass on to it (`RELAYED`)."""
    return declaring(path for path in RELAYED if supports(declared, path))


def all_relayed_capabilities() -> dict[str, Any]:
    """Return everything that the gateway can pass on. Servers hide tools from clients that lack a capability."""
    return declaring(RELAYED)


def session_capabilities() -> dict[str, Any]:
    """Return what the gateway declares in a session, for all callers. Only operators give roots."""
    return declaring(path for path in RELAYED if path != ("roots",))


def encode_request(request_id: RequestId, method: str, params: Mapping[str, Any], envelope: Envelope) -> bytes:
    """Encode the body of a request. The reserved keys of its `_meta` are ours, others stay.

    If the parameters have no JSON form, this raises the errors of `strict_json.encode`.
    """
    meta = passed_meta(params, envelope)
    meta[META_PROTOCOL_VERSION] = RELEASED
    meta[META_CLIENT_INFO] = envelope.client_info
    meta[META_CLIENT_CAPABILITIES] = envelope.capabilities
    if envelope.log_level is not None:
        meta[META_LOG_LEVEL] = envelope.log_level
    return encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**params, "_meta": meta}})


def passed_meta(params: Mapping[str, Any], envelope: Envelope) -> dict[str, Any]:
    """Return the `_meta` of a request as servers of every version understand it: what is not reserved, and ours."""
    given = params.get("_meta")
    meta = without_reserved(given) if type(given) is dict else {}
    if envelope.progress_token is not None:
        meta[META_PROGRESS] = envelope.progress_token
    if envelope.traceparent is not None:
        meta["traceparent"] = envelope.traceparent
    return meta


def request_headers(
    method: str,
    params: Mapping[str, Any],
    param_headers: Sequence[tuple[str, str]] = (),
    traceparent: str | None = None,
) -> RawHeaders:
    """Return the headers of a request, except for credentials and those of HTTP itself.

    `Mcp-Name` is taken from `params`. `param_headers` are names and plain values of `Mcp-Param-*`, from `mirrored`.
    """
    headers: RawHeaders = [*_RELEASED_HEADERS, (b"mcp-method", method.encode())]
    target = NAMED_METHODS.get(method)
    if target is not None:
        headers.append((b"mcp-name", encode_header_value(params[target])))
    headers.extend((name.encode("ascii"), encode_header_value(value)) for name, value in param_headers)
    if traceparent is not None:
        headers.append((b"traceparent", traceparent.encode("ascii")))
    return headers


def encode_header_value(text: str) -> bytes:
    """Encode an `Mcp-Name` or `Mcp-Param-*` value, so that `headers.decode_header_value` returns it ("Value Encoding").

    Only visible ASCII and inner spaces stay as they are. Anything else is written in the Base64 sentinel form, also a
    text that looks like that form itself.
    """
    looks_encoded = text.startswith(_SENTINEL_START) and text.endswith(_SENTINEL_END)
    if text.isascii() and text.isprintable() and text == text.strip(" ") and not looks_encoded:
        return text.encode("ascii")
    payload = pybase64.b64encode(text.encode("utf-8", "replace")).decode("ascii")
    return f"{_SENTINEL_START}{payload}{_SENTINEL_END}".encode("ascii")


def mirrored(compiled: Sequence[ParamHeader], arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return names and plain values of the `Mcp-Param-*` headers of a call.

    Arguments that are absent, null, or of a type that a header cannot hold have none: the server refuses those.
    """
    found = ((header.name, _plain(value_at(header.path, arguments))) for header in compiled)
    return [(name, value) for name, value in found if value is not None]


def _plain(value: Any) -> str | None:
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is float and value.is_integer():
        value = int(value)
    return str(value) if type(value) is int and abs(value) <= MAX_SAFE_INTEGER else None
