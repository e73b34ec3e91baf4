"""Pure: JSON-RPC 2.0 messages, as restricted by MCP (2026-07-28 "basic", section "Messages").

One HTTP body is one message, and batches are refused. An id is a string or an integer, never null, and parameters are
an object. The records are frozen `msgspec.Struct` classes, because every request creates some, and they are several
times cheaper to create than frozen dataclasses. Values without a JSON form raise the errors of `strict_json.encode`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from gateway.errors import InternalError, InvalidRequest, RpcError
from gateway.protocol.strict_json import encode

RequestId: TypeAlias = str | int

MAX_ID_CHARS: Final = 2048
"""The longest id that is accepted: long enough for a sealed request id, short enough for logs and events."""


class Request(msgspec.Struct, frozen=True):
    """A message that gets exactly one response. `params` is `{}` if the member is absent or null."""

    id: RequestId
    method: str
    params: dict[str, Any]


class Notification(msgspec.Struct, frozen=True):
    """A message that gets no response. `params` is `{}` if the member is absent or null."""

    method: str
    params: dict[str, Any]


class Response(msgspec.Struct, frozen=True):
    """A client's response to a server's request. Exactly one of `result` and `error` is set.

    Only wires older than 2026-07-28 have these. The id is None only in an error from a client that could not read ours.
    """

    id: RequestId | None
    result: dict[str, Any] | None
    error: dict[str, Any] | None


Message: TypeAlias = Request | Notification | Response


_NO_BATCHES: Final = "Batches are not supported: send one JSON-RPC message per HTTP request"


def parse_message(value: Any) -> Message:
    """Return the request, notification or response in a decoded body.

    Anything else is an `InvalidRequest` that says why. Answer it with the id `request_id_of(value)`.
    """
    if type(value) is not dict:
        is_batch = type(value) is list
        raise InvalidRequest(_NO_BATCHES if is_batch else "The body must be a JSON object")
    if value.get("jsonrpc") != "2.0":
        raise InvalidRequest('"jsonrpc" must be "2.0"')
    if "method" not in value:
        return _parse_response(value)
    if "result" in value or "error" in value:
        raise InvalidRequest('A message must have either "method" or one of "result" and "error"')
    method = value["method"]
    if type(method) is not str:
        raise InvalidRequest('"method" must be a string')
    params = value.get("params")
    if type(params) is not dict:
        if params is not None:
            raise InvalidRequest('"params" must be an object')
        params = {}
    if "id" in value:
        return Request(_check_id(value["id"]), method, params)
    return Notification(method, params)


def request_id_of(value: Any) -> RequestId | None:
    """Return the id to repeat in an error about a decoded body, or None if there is no usable id.

    The id of a posted response belongs to our own request, so it is not repeated.
    """
    if type(value) is not dict or "id" not in value:
        return None
    if "method" not in value and ("result" in value or "error" in value):
        return None
    try:
        return _check_id(value["id"])
    except InvalidRequest:
        return None


def result_response(request_id: RequestId, result: Any) -> bytes:
    """Encode a result. `result` may be a mapping or a `msgspec.Raw` that holds encoded JSON."""
    return encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def error_response(request_id: RequestId | None, error: RpcError) -> bytes:
    """Encode an error. Without a readable id, `id` is `null` (JSON-RPC 2.0, section 5).

    MCP's schema allows `id` to be absent, but clients that follow the rules of JSON-RPC then ignore the error.

    This never fails: if the message or `error.data` has no JSON form, it encodes an internal error instead.
    """
    head: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id}
    try:
        return encode({**head, "error": _error_object(error)})
    except (TypeError, ValueError, RecursionError):
        return encode({**head, "error": _error_object(InternalError("Internal error"))})


def notification(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    """Encode a notification to the client."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return encode(message)


def server_request(request_id: RequestId, method: str, params: Mapping[str, Any]) -> bytes:
    """Encode a request to the client. Only wires older than 2026-07-28 have these."""
    return encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def _error_object(error: RpcError) -> dict[str, Any]:
    member: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        member["data"] = error.data
    return member


def _parse_response(value: dict[str, Any]) -> Response:
    if ("result" in value) == ("error" in value):
        raise InvalidRequest('A message needs "method", or one of "result" and "error"')
    if "result" in value:
        result = value["result"]
        if type(result) is not dict:
            raise InvalidRequest('"result" must be an object')
        if "id" not in value:
            raise InvalidRequest('A result needs an "id"')
        return Response(_check_id(value["id"]), result, None)
    error = value["error"]
    if type(error) is not dict or type(error.get("code")) is not int or type(error.get("message")) is not str:
        raise InvalidRequest('"error" must be an object with an integer "code" and a string "message"')
    return Response(_check_id(value["id"]) if value.get("id") is not None else None, None, error)


def _check_id(value: Any) -> RequestId:
    """Return a valid id. The types are exact: a bool is an int in Python, and a float would not be echoed as sent."""
    if type(value) is int:
        return value
    if type(value) is not str:
        raise InvalidRequest('"id" must be a string or an integer')
    if len(value) > MAX_ID_CHARS:
        raise InvalidRequest(f'"id" must not be longer than {MAX_ID_CHARS} characters')
    return value
