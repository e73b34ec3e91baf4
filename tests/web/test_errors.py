"""The one table from errors to HTTP."""

from __future__ import annotations

import json

import pytest

from gateway import errors
from gateway.errors import GatewayError, HttpRefusal, ProtocolError, RejectReason
from gateway.web.errors import to_http

TABLE: list[tuple[GatewayError, int, int]] = [
    (errors.ParseError("no JSON"), 400, -32700),
    (errors.InvalidRequest("no request"), 400, -32600),
    (errors.MethodNotFound("no method"), 404, -32601),
    (errors.InvalidParams("no params"), 400, -32602),
    (errors.InvalidRequestState(RejectReason.EXPIRED), 400, -32602),
    (errors.InternalError("broken"), 500, -32603),
    (errors.HeaderMismatch("other"), 400, -32020),
    (errors.MissingCapability(("roots",)), 400, -32021),
    (errors.UnsupportedVersion(["2026-07-28"], "1"), 400, -32022),
    (errors.TooDeep(100), 400, -32700),
    (errors.TooManyAnswers(100), 400, -32602),
    (errors.RateLimited(3), 429, -31003),
    (errors.TooManyStreams(32, 1), 429, -31003),
    (errors.TooManyTasks(32, 1), 429, -31003),
    (errors.TaskIdTaken(), 400, -32602),
    (errors.TaskStoreDown(), 504, -31004),
    (errors.TaskStoreAway(), 503, -31001),
    (errors.InProgress(), 503, -31001),
    (ProtocolError(-32602, "the tool's own"), 400, -32602),
    (ProtocolError(42, "the tool's own"), 200, 42),
    (HttpRefusal(413, "too large"), 413, -32600),
    (errors.AuthoringError("internal"), 500, -32603),
]


@pytest.mark.parametrize(("error", "status", "code"), TABLE)
def test_each_error_has_its_status_and_code(error: GatewayError, status: int, code: int) -> None:
    told, headers, body = to_http(error, 7)
    assert told == status
    assert (b"content-type", b"application/json") in headers
    assert json.loads(body)["error"]["code"] == code


@pytest.mark.parametrize("request_id", [7, 0, "seven", ""])
@pytest.mark.parametrize(
    "error", [errors.InvalidParams("x"), errors.InsufficientScope(["a"]), HttpRefusal(404, "x"), errors.Overloaded()]
)
def test_the_id_of_the_request_comes_back(error: GatewayError, request_id: str | int) -> None:
    _status, _headers, body = to_http(error, request_id)
    assert json.loads(body)["id"] == request_id


@pytest.mark.parametrize("error", [errors.InvalidParams("x"), HttpRefusal(401, "x"), errors.AuthoringError("x")])
def test_where_no_id_was_read_it_is_null(error: GatewayError) -> None:
    assert json.loads(to_http(error, None)[2])["id"] is None


def test_the_headers_of_a_refusal_are_sent() -> None:
    _status, headers, _body = to_http(HttpRefusal(401, "who?", [("www-authenticate", "Bearer")]), None)
    assert (b"www-authenticate", b"Bearer") in headers


@pytest.mark.parametrize("error", [errors.RateLimited(3), errors.TooManyStreams(32, 3), errors.TaskStoreDown(3)])
def test_what_may_succeed_later_says_when(error: GatewayError) -> None:
    _status, headers, body = to_http(error, 1)
    assert (b"retry-after", b"3") in headers
    assert json.loads(body)["error"]["data"] == {"retryAfterSeconds": 3}


def test_an_error_that_is_not_a_refusal_reveals_nothing() -> None:
    """It was not written for clients to read."""
    assert b"secret" not in to_http(errors.AuthoringError("the secret"), 1)[2]


@pytest.mark.parametrize("reason", RejectReason)
def test_every_reason_to_reject_a_state_looks_the_same(reason: RejectReason) -> None:
    assert to_http(errors.InvalidRequestState(reason), 1) == to_http(
        errors.InvalidRequestState(RejectReason.EXPIRED), 1
    )
