"""One body, one JSON-RPC message."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidParams, InvalidRequest, ProtocolError, UnsupportedVersion
from gateway.protocol.jsonrpc import (
    MAX_ID_CHARS,
    Notification,
    Request,
    RequestId,
    Response,
    error_response,
    notification,
    parse_message,
    request_id_of,
    result_response,
)

USABLE_IDS: list[RequestId] = ["", "a", "é\n", "1", 0, -1, 2**53, 10**30, "x" * MAX_ID_CHARS]
UNUSABLE_IDS: list[Any] = [None, True, False, 1.0, 1.5, [], {}, [1], "x" * (MAX_ID_CHARS + 1)]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
members = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "x"])
near_messages = st.dictionaries(members, json_values | st.just("2.0") | st.just({"code": 1, "message": "m"}))
ids = st.text(max_size=20) | st.integers()


@given(json_values | near_messages)
def test_any_value_is_a_message_or_an_invalid_request(value: Any) -> None:
    try:
        message = parse_message(value)
    except InvalidRequest as error:
        assert json.loads(error_response(request_id_of(value), error))["error"]["code"] == -32600  # noqa: PT017
        return
    assert value["jsonrpc"] == "2.0"
    if isinstance(message, Request):
        assert request_id_of(value) == message.id == value["id"]
    else:
        assert isinstance(message, Notification | Response)


def test_a_request_has_an_id_and_a_notification_has_none() -> None:
    assert parse_message({"jsonrpc": "2.0", "id": 7, "method": "m", "params": {"a": 1}}) == Request(7, "m", {"a": 1})
    assert parse_message({"jsonrpc": "2.0", "id": "7", "method": "m"}) == Request("7", "m", {})
    assert parse_message({"jsonrpc": "2.0", "method": "m"}) == Notification("m", {})
    assert parse_message({"jsonrpc": "2.0", "method": "m", "extra": 1}) == Notification("m", {})


def test_a_posted_response_is_recognised() -> None:
    error = {"code": -1, "message": "no"}
    assert parse_message({"jsonrpc": "2.0", "id": 1, "result": {}}) == Response(1, {}, None)
    assert parse_message({"jsonrpc": "2.0", "id": "a", "error": error}) == Response("a", None, error)
    assert parse_message({"jsonrpc": "2.0", "error": error}) == Response(None, None, error)
    assert parse_message({"jsonrpc": "2.0", "id": None, "error": error}) == Response(None, None, error)


def test_parameters_that_are_null_are_absent() -> None:
    message = {"jsonrpc": "2.0", "method": "m", "params": None}
    assert parse_message({**message, "id": 1}) == Request(1, "m", {})
    assert parse_message(message) == Notification("m", {})
    with pytest.raises(InvalidRequest, match='"id"'):
        parse_message({**message, "id": None})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"jsonrpc": "1.0"}, "jsonrpc"),
        ({"jsonrpc": 2.0}, "jsonrpc"),
        ({"jsonrpc": None}, "jsonrpc"),
        ({"method": None}, "method"),
        ({"method": 1}, "method"),
        ({"method": ["m"]}, "method"),
        ({"params": False}, "params"),
        ({"params": []}, "params"),
        ({"params": "x"}, "params"),
        ({"result": {}}, "method"),
        ({"error": {"code": 1, "message": "m"}}, "method"),
    ],
)
def test_a_wrong_member_is_named_and_the_id_still_readable(change: dict[str, Any], words: str) -> None:
    value = {"jsonrpc": "2.0", "id": 7, "method": "m", "params": {}} | change
    with pytest.raises(InvalidRequest, match=words):
        parse_message(value)
    assert request_id_of(value) == 7


@pytest.mark.parametrize(
    "value",
    [
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {"code": 1, "message": "m"}},
        {"jsonrpc": "2.0", "id": 1, "result": []},
        {"jsonrpc": "2.0", "result": {}},
        {"jsonrpc": "2.0", "id": 1, "error": "no"},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": True, "message": "m"}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1}},
        {"jsonrpc": "2.0", "id": 1.0, "error": {"code": 1, "message": "m"}},
    ],
)
def test_a_message_that_is_neither_call_nor_response_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest):
        parse_message(value)


@pytest.mark.parametrize("batch", [[], [{"jsonrpc": "2.0", "id": 1, "method": "m"}]])
def test_a_batch_is_refused_in_clear_words(batch: list[Any]) -> None:
    with pytest.raises(InvalidRequest, match="Batches are not supported"):
        parse_message(batch)
    assert request_id_of(batch) is None


@pytest.mark.parametrize("request_id", USABLE_IDS)
def test_a_string_or_integer_id_is_kept_exactly(request_id: RequestId) -> None:
    value = {"jsonrpc": "2.0", "id": request_id, "method": "m"}
    message = parse_message(value)
    assert isinstance(message, Request)
    assert message.id == request_id
    assert type(message.id) is type(request_id)
    assert request_id_of(value) == request_id


@pytest.mark.parametrize("request_id", UNUSABLE_IDS)
def test_any_other_id_is_refused_and_not_echoed(request_id: Any) -> None:
    value = {"jsonrpc": "2.0", "id": request_id, "method": "m"}
    with pytest.raises(InvalidRequest, match='"id"'):
        parse_message(value)
    assert request_id_of(value) is None


def test_the_id_of_a_posted_response_is_not_echoed() -> None:
    assert request_id_of({"jsonrpc": "2.0", "id": 1, "result": 5}) is None


@given(ids, json_values)
def test_a_result_echoes_its_id_on_one_line(request_id: RequestId, content: Any) -> None:
    body = result_response(request_id, {"content": content})
    assert b"\n" not in body
    assert msgspec.json.decode(body)["id"] == request_id


def test_an_encoded_result_is_copied() -> None:
    assert result_response(1, msgspec.Raw(b'{"a": 1}')) == b'{"jsonrpc":"2.0","id":1,"result":{"a": 1}}'


@given(ids)
def test_an_error_echoes_its_id(request_id: RequestId) -> None:
    assert json.loads(error_response(request_id, InvalidParams("no"))) == {
        "jsonrpc": "2.0",
        "id": request_id,
        "error": {"code": -32602, "message": "no"},
    }


def test_an_error_without_a_readable_id_has_null_in_its_place() -> None:
    assert json.loads(error_response(None, UnsupportedVersion(["2026-07-28"], "v0"))) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {
            "code": -32022,
            "message": "Unsupported protocol version",
            "data": {"supported": ["2026-07-28"], "requested": "v0"},
        },
    }


@pytest.mark.parametrize("data", [{"x": object()}, {"x": "\ud800"}, {"x": 1j}])
def test_an_error_whose_data_is_not_json_is_still_sent(data: dict[str, Any]) -> None:
    assert json.loads(error_response(3, ProtocolError(1, "mine", data))) == {
        "jsonrpc": "2.0",
        "id": 3,
        "error": {"code": -32603, "message": "Internal error"},
    }


def test_an_error_whose_data_contains_itself_still_goes_out() -> None:
    data: dict[str, Any] = {}
    data["self"] = data
    assert json.loads(error_response(3, ProtocolError(1, "mine", data)))["error"]["code"] == -32603


def test_a_notification_has_parameters_only_if_given() -> None:
    assert notification("m") == b'{"jsonrpc":"2.0","method":"m"}'
    assert notification("m", {"a": 1}) == b'{"jsonrpc":"2.0","method":"m","params":{"a":1}}'
