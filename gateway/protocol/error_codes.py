"""Pure: which error codes each wire may carry (MCP 2026-07-28 "Error Codes").

A function's author or another server may raise any error. Clients act on codes: they start the call again, send other
headers, or take the protocol version as refused. So a code goes out only where it means what it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.errors import (
    GATEWAY_CODES,
    MCP_CODES,
    OLD_RESOURCE_NOT_FOUND,
    UNKNOWN_SESSION,
    URL_ELICITATION_REQUIRED,
    HeaderMismatch,
    InternalError,
    InvalidParams,
    MissingCapability,
    RpcError,
    UnsupportedVersion,
)
from gateway.protocol.versions import Wire

_DEFINED: Final = frozenset({HeaderMismatch.CODE, MissingCapability.CODE, UnsupportedVersion.CODE})
_OUR_DATA: Final = frozenset({"requestState", "inputRequests"})
"""Members by which the `data` of an error of ours lets a client continue a call."""
_OUR_REASON: Final = "invalid_request_state"


def error_on(wire: Wire | None, error: RpcError) -> RpcError:
    """Return an error as a wire may carry it; see `code_on`."""
    code = code_on(wire, error.code)
    if code == error.code:
        return error
    carried = RpcError(code, error.message, None if error.code == URL_ELICITATION_REQUIRED else error.data)
    carried.is_relayed = error.is_relayed
    return carried


def code_on(wire: Wire | None, code: int) -> int:
    """Return the code that an error has on a wire; None is a wire that is not known."""
    if code == OLD_RESOURCE_NOT_FOUND:
        return InvalidParams.CODE if wire is Wire.RELEASED else code
    if code == URL_ELICITATION_REQUIRED:
        return code if wire is Wire.LEGACY else InternalError.CODE
    return InternalError.CODE if code in MCP_CODES and code not in _DEFINED else code


def foreign_error(code: int, data: Any) -> tuple[int, Any]:
    """Return code and `data` of another server's error, without what would make it look like one of this gateway."""
    if code in GATEWAY_CODES or code == UNKNOWN_SESSION:
        return InternalError.CODE, None
    if isinstance(data, Mapping):
        data = {name: value for name, value in data.items() if name not in _OUR_DATA and value != _OUR_REASON}
    return code, data
