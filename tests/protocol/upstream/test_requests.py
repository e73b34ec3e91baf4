"""Requests to another server are ours: its proxies and it read the same, and nobody else's envelope is in them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.headers import Headers, decode_header_value
from gateway.protocol.param_headers import check_param_headers, compile_param_headers
from gateway.protocol.upstream.requests import (
    Envelope,
    encode_header_value,
    encode_request,
    mirrored,
    relayed_capabilities,
    request_headers,
)

ME = {"name": "gateway", "version": "1"}
BARE = Envelope(ME, {})
META = "io.modelcontextprotocol/"


def sent(params: dict[str, Any], envelope: Envelope = BARE) -> dict[str, Any]:
    body = msgspec.json.decode(encode_request(5, "tools/call", params, envelope))
    assert body.keys() == {"jsonrpc", "id", "method", "params"}
    assert (body["jsonrpc"], body["id"], body["method"]) == ("2.0", 5, "tools/call")
    told: dict[str, Any] = body["params"]
    return told


def test_a_request_says_who_sends_it_and_what_may_be_asked() -> None:
    envelope = Envelope(ME, {"roots": {}}, progress_token=5, log_level="debug", traceparent="00-a-b-01")

    assert sent({"name": "echo", "arguments": {"a": 1}}, envelope) == {
        "name": "echo",
        "arguments": {"a": 1},
        "_meta": {
            META + "protocolVersion": "2026-07-28",
            META + "clientInfo": ME,
            META + "clientCapabilities": {"roots": {}},
            "progressToken": 5,
            META + "logLevel": "debug",
            "traceparent": "00-a-b-01",
        },
    }


def test_nothing_is_asked_for_that_nobody_wants() -> None:
    assert sent({})["_meta"].keys() == {META + name for name in ("protocolVersion", "clientInfo", "clientCapabilities")}


def test_reserved_names_of_the_callers_meta_are_ours_and_the_others_are_passed_on() -> None:
    meta = {
        "progressToken": "theirs",
        META + "clientInfo": {"name": "them"},
        META + "logLevel": "debug",
        "baggage": "user=ada",
        "traceparent": "theirs",
        "com.example/kept": [1],
    }
    params = {"name": "echo", "_meta": meta}

    told = sent(params)["_meta"]

    assert told["com.example/kept"] == [1]
    assert told[META + "clientInfo"] == ME
    assert told.keys() - {"com.example/kept"} == sent({})["_meta"].keys()
    assert params["_meta"] is meta
    assert "baggage" in meta


@pytest.mark.parametrize(
    ("declared", "relayed"),
    [
        ({}, {}),
        ({"elicitation": {}}, {"elicitation": {"form": {}}}),
        ({"elicitation": {"url": {}}}, {"elicitation": {"url": {}}}),
        ({"sampling": {"tools": {}, "context": {}}}, {"sampling": {"tools": {}}}),
        ({"roots": {"listChanged": True}, "extensions": {"a/b": {}}, "experimental": {}}, {"roots": {}}),
        ({"sampling": None, "roots": False}, {}),
    ],
)
def test_only_what_is_relayed_is_declared(declared: dict[str, Any], relayed: dict[str, Any]) -> None:
    assert relayed_capabilities(declared) == relayed


def headers(method: str, params: dict[str, Any], *rest: Any) -> dict[bytes, bytes]:
    written = request_headers(method, params, *rest)
    assert len(dict(written)) == len(written)
    return dict(written)


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "echo"}, b"echo"),
        ("prompts/get", {"name": "näme"}, b"=?base64?bsOkbWU=?="),
        ("resources/read", {"uri": "file:///a b"}, b"file:///a b"),
    ],
)
def test_the_headers_repeat_method_and_name(method: str, params: dict[str, Any], name: bytes) -> None:
    written = headers(method, params)

    assert (written[b"mcp-method"], written[b"mcp-name"]) == (method.encode(), name)
    assert written[b"mcp-protocol-version"] == b"2026-07-28"
    assert written[b"accept"] == b"application/json, text/event-stream"
    assert written[b"content-type"] == b"application/json"


def test_a_method_without_a_name_has_no_header_for_it() -> None:
    assert b"mcp-name" not in headers("tools/list", {"cursor": "c"})


@given(
    text=st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(["=?base64?eA==?=", " a", "a ", "\t", ""])
)
def test_any_text_survives_in_a_header(text: str) -> None:
    value = encode_header_value(text).decode("ascii")

    assert value.isprintable()
    assert value == value.strip()
    assert decode_header_value(value) == text


SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "deep": {"type": "object", "properties": {"count": {"type": "integer", "x-mcp-header": "Count"}}},
        "dry": {"type": "boolean", "x-mcp-header": "Dry-Run"},
    },
}
SAFE = st.integers(-(2**53) + 1, 2**53 - 1)


@given(
    arguments=st.fixed_dictionaries(
        {},
        optional={
            "region": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
            "deep": st.fixed_dictionaries({}, optional={"count": SAFE | SAFE.map(float)}),
            "dry": st.booleans(),
            "other": st.text(),
        },
    )
)
def test_mirrored_arguments_pass_our_own_check(arguments: dict[str, Any]) -> None:
    compiled = compile_param_headers(SCHEMA)
    written = request_headers("tools/call", {"name": "t"}, mirrored(compiled, arguments))

    check_param_headers(compiled, arguments, Headers([(name.lower(), value) for name, value in written]))


@pytest.mark.parametrize("value", [None, [], {}, 1.5, 2**60, float("inf")])
def test_an_argument_that_a_header_cannot_hold_has_none(value: Any) -> None:
    assert mirrored(compile_param_headers(SCHEMA), {"region": value, "deep": value, "dry": value}) == []
