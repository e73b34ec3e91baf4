"""Pure: requests to a server of 2024-11-05 to 2025-11-25 that gives no session ("Streamable HTTP").

Such a request has no header and no reserved member of `_meta` that only 2026-07-28 knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.protocol.jsonrpc import RequestId
from gateway.protocol.strict_json import encode
from gateway.protocol.upstream.requests import STANDARD_HEADERS, Envelope, RawHeaders, passed_meta
from gateway.protocol.versions import BEFORE_AUDIO, BEFORE_ELICITATION, BEFORE_TASKS, INITIALIZE, LEGACY

SPOKEN: Final = (LEGACY, BEFORE_TASKS, BEFORE_ELICITATION, BEFORE_AUDIO)
"""The versions in which such a server may be called, newest first. Servers name the last one that speak like others."""


def encode_earlier_request(request_id: RequestId, method: str, params: Mapping[str, Any], envelope: Envelope) -> bytes:
    """Encode the body of a request. Those of `initialize` are ours, except for the capabilities.

    If the parameters have no JSON form, this raises the errors of `strict_json.encode`.
    """
    if method == INITIALIZE:
        params = {
            "protocolVersion": LEGACY,
            "capabilities": params.get("capabilities", {}),
            "clientInfo": envelope.client_info,
        }
    told = {name: value for name, value in params.items() if name != "_meta"}
    meta = passed_meta(params, envelope)
    if meta:
        told["_meta"] = meta
    return encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": told})


def earlier_request_headers(version: str | None, traceparent: str | None = None) -> RawHeaders:
    """Return the headers of a request, except for credentials. Without a version, it is an `initialize`."""
    headers: RawHeaders = [*STANDARD_HEADERS]
    if version is not None:
        headers.append((b"mcp-protocol-version", version.encode()))
    if traceparent is not None:
        headers.append((b"traceparent", traceparent.encode("ascii")))
    return headers
