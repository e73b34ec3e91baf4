"""Requests follow the released wire, and every answer has a meaning, whatever is sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest import wire
from loadtest.wire import Reply

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
RESULTS = st.fixed_dictionaries(
    {"resultType": st.sampled_from(["complete", "input_required", "task"]) | JSON},
    optional=dict.fromkeys(("content", "isError", "inputRequests", "requestState", "taskId", "status", "result"), JSON),
)
REQUESTS = {
    "a first leg": (wire.call_tool("order", {"what": "tea"}), "order"),
    "a later one": (wire.call_tool("order", {}, state="s1.x", answers={"who": {"name": "Ada"}}, tasks=True), "order"),
    "a look at a task": (wire.get_task("0123"), "0123"),
    "an answer to one": (wire.update_task("0123", {"who": {"name": "Ada"}}), "0123"),
    "listening": (wire.listen(["0123"]), None),
}


@pytest.mark.parametrize(("request_", "name"), REQUESTS.values(), ids=REQUESTS)
def test_a_request_says_the_same_in_its_headers_and_in_its_body(request_: wire.Request, name: str | None) -> None:
    message = json.loads(request_.body(7))
    headers = {key.lower(): value for key, value in request_.headers("secret").items()}
    meta = message["params"]["_meta"]
    assert (message["jsonrpc"], message["id"]) == ("2.0", 7)
    assert headers["mcp-method"] == message["method"] == request_.method
    assert headers["mcp-protocol-version"] == meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert headers.get("mcp-name") == name
    assert headers["authorization"] == "Bearer secret"
    assert "Authorization" not in request_.headers()


def test_tasks_are_declared_by_those_who_can_follow_them() -> None:
    def declared(request: wire.Request) -> Any:
        return json.loads(request.body(1))["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]

    assert declared(wire.call_tool("order", {})) == {"elicitation": {}}
    assert declared(wire.call_tool("order", {}, tasks=True)) == declared(wire.get_task("0123"))
    assert declared(wire.get_task("0123"))["extensions"] == {"io.modelcontextprotocol/tasks": {}}


@given(status=st.sampled_from([0, 200, 202, 400, 404, 429, 500, 502, 503, 504]), body=st.binary(max_size=30))
def test_bytes_that_are_not_an_answer_never_pass_for_one(status: int, body: bytes) -> None:
    assert wire.read_answer(Reply(1, status, body)).outcome in {"refused", "failed", "wrong"}


@given(
    message=JSON
    | st.fixed_dictionaries(
        {"id": st.just(1), "jsonrpc": st.just("2.0")}, optional={"error": JSON, "result": RESULTS | JSON}
    )
)
def test_whatever_is_answered_it_means_something(message: Any) -> None:
    answer = wire.read_answer(Reply(1, 200, json.dumps(message).encode()))
    assert all(isinstance(text, str) for text in answer.texts)
    assert isinstance(answer.state, str)
    if answer.outcome == "input_required":
        assert dict(answer.questions)
    if answer.outcome == "shed":
        assert not answer.questions
    assert wire.read_state_refusal(answer.reply).outcome == "wrong"


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (b"data: {}\n\n", b"{}"),
        (b"data:{}\n\n", b"{}"),
        (b"event: message\r\ndata: {\r\ndata: }\r\n\r\n", b"{}"),
        (b":\n\n", b""),
        (b": keep-alive\n\n", b""),
    ],
)
def test_an_event_is_read(block: bytes, message: bytes) -> None:
    assert wire.read_event(block) == message


def test_a_repeated_question_is_still_the_authors() -> None:
    assert [wire.author_key(key) for key in ("who", "who~2")] == ["who", "who"]
