"""The whole edge: whatever bytes arrive, one clear answer leaves."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import HttpRefusal, RpcError
from gateway.protocol.headers import Headers, check_content
from gateway.protocol.jsonrpc import Request, Response, error_response, parse_message, request_id_of
from gateway.protocol.released.requests import read_request
from gateway.protocol.requests import ToolCall, read_tool_call
from gateway.protocol.strict_json import decode, encode
from gateway.protocol.wire_choice import choose_wire

GOOD: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": "call-1",
    "method": "tools/call",
    "params": {
        "name": "echo",
        "arguments": {"text": "hello"},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
            "io.modelcontextprotocol/clientInfo": {"name": "client", "version": "1"},
        },
    },
}
GOOD_BODY = encode(GOOD)
GOOD_HEADERS = [
    (b"host", b"localhost"),
    (b"content-type", b"application/json"),
    (b"mcp-protocol-version", b"2026-07-28"),
    (b"mcp-method", b"tools/call"),
    (b"mcp-name", b"echo"),
]


def receive(raw: list[tuple[bytes, bytes]], body: bytes) -> ToolCall | bytes | None:
    """Take one HTTP request as the gateway does: the call, or the error to answer with, or None without either."""
    value: Any = None
    try:
        headers = Headers(raw)
        check_content(headers)
        value = decode(body)
        message = parse_message(value)
        if isinstance(message, Response):
            return None
        choose_wire(message, headers.get(b"mcp-protocol-version"))
        if isinstance(message, Request):
            return read_tool_call(read_request(message, headers).params)
    except RpcError as error:
        return error_response(request_id_of(value), error)
    except HttpRefusal as refusal:
        assert refusal.status == 415  # noqa: PT017
    return None


def _check(answer: ToolCall | bytes | None, sent: Any) -> None:
    """An answer in bytes is one well-formed error; it echoes the id of `sent`, the body as any reader sees it."""
    if not isinstance(answer, bytes):
        return
    error = json.loads(answer)
    assert set(error) == {"jsonrpc", "id", "error"}
    assert error["error"]["code"] in {-32700, -32600, -32602, -32020, -32022}
    readable = isinstance(sent, dict) and "method" in sent and type(sent.get("id")) in {str, int}
    if readable and error["error"]["code"] != -32700:
        assert error["id"] == sent["id"]
    if error["id"] is not None:
        assert error["id"] == sent["id"]
        assert type(error["id"]) is type(sent["id"])


def test_the_good_request_passes() -> None:
    call = receive(GOOD_HEADERS, GOOD_BODY)
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments) == ("echo", {"text": "hello"})


@given(st.binary())
def test_any_bytes_get_an_answer(body: bytes) -> None:
    _check(receive(GOOD_HEADERS, body), _read(body))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_any_json_value_gets_an_answer(value: Any) -> None:
    body = encode(value)
    _check(receive(GOOD_HEADERS, body), _read(body))


def _read(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _paths(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [path] if path else []
    if isinstance(value, dict):
        for name, member in value.items():
            found += _paths(member, (*path, name))
    return found


@given(st.sampled_from(_paths(GOOD)), json_values | st.just(...), st.booleans())
def test_a_good_request_with_one_member_changed_gets_an_answer(path: tuple[str, ...], value: Any, spaced: bool) -> None:
    message = copy.deepcopy(GOOD)
    node = message
    for name in path[:-1]:
        node = node[name]
    if value is ...:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    _check(receive(GOOD_HEADERS, json.dumps(message).encode() if spaced else encode(message)), message)


@given(st.integers(0, len(GOOD_BODY) - 1), st.binary(max_size=3), st.integers(0, 3))
def test_a_good_body_with_some_bytes_changed_gets_an_answer(position: int, put: bytes, cut: int) -> None:
    body = GOOD_BODY[:position] + put + GOOD_BODY[position + cut :]
    _check(receive(GOOD_HEADERS, body), _read(body))


header_names = st.sampled_from([name for name, _ in GOOD_HEADERS] + [b"content-encoding", b"authorization", b"x"])


@given(st.lists(st.tuples(header_names, st.binary(max_size=10)), max_size=4), st.booleans())
def test_any_headers_get_an_answer(extra: list[tuple[bytes, bytes]], alone: bool) -> None:
    answer = receive(extra if alone else GOOD_HEADERS + extra, GOOD_BODY)
    if isinstance(answer, bytes):
        error = json.loads(answer)
        # A repeated header is refused before the body is looked at.
        assert error["id"] == (None if error["error"]["code"] == -32600 else "call-1")


@pytest.mark.parametrize(
    "body",
    [b"[" * 10_000, b'{"a":' * 10_000, GOOD_BODY.replace(b'"hello"', b"[" * 10_000 + b"]" * 10_000)],
)
def test_very_deep_nesting_is_a_parse_error(body: bytes) -> None:
    answer = receive(GOOD_HEADERS, body)
    assert isinstance(answer, bytes)
    assert json.loads(answer)["error"]["code"] == -32700
