"""The servers of these tests do what the tests behind a gateway rely on, when they are called directly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import msgspec
import pytest

from tests.integration.raw import META, Answer, headers_of, post, request, tool_call
from tests.upstreams.servers import hostile
from tests.upstreams.servers.hostile import Hostile
from tests.upstreams.servers.recording import TOOLS, Recording

ALL: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}


def ask(server: Recording | Hostile, method: str, /, **params: object) -> Answer:
    meta = {**META, "io.modelcontextprotocol/clientCapabilities": ALL}
    message = request(method, {"_meta": meta, **params})
    headers = {**headers_of(message), "accept": "application/json, text/event-stream"}
    response = httpx.post(server.url, content=msgspec.json.encode(message), headers=headers, verify=False, timeout=5)
    return Answer(response.status_code, response.headers, response.content)


def test_the_recording_server_lists_everything_in_pages() -> None:
    with Recording(page=7) as upstream:
        names: list[str] = []
        more: dict[str, str] = {}
        while True:
            page = ask(upstream, "tools/list", **more).result
            names += [tool["name"] for tool in page["tools"]]
            if "nextCursor" not in page:
                break
            more = {"cursor": page["nextCursor"]}
        assert names == [*TOOLS]
        assert upstream.count("tools/list") == -(-len(TOOLS) // 7)
        assert ask(upstream, "server/discover").result["supportedVersions"] == ["2026-07-28"]


def test_the_recording_server_asks_two_rounds_and_recognises_its_own_state_only() -> None:
    with Recording() as upstream:
        first = ask(upstream, "tools/call", name="two_rounds", arguments={})
        assert first.result["inputRequests"]["answer"]["params"]["message"] == "What is your name?"
        ada = {"answer": {"action": "accept", "content": {"name": "Ada"}}}
        second = ask(
            upstream, "tools/call", name="two_rounds", arguments={}, inputResponses=ada, requestState=first.state
        )
        assert second.result["inputRequests"]["answer"]["params"]["message"] == "A colour, Ada?"
        red = {"answer": {"action": "accept", "content": {"colour": "red"}}}
        last = ask(
            upstream, "tools/call", name="two_rounds", arguments={}, inputResponses=red, requestState=second.state
        )
        assert msgspec.json.decode(last.text) == {"first": ada["answer"], "second": red["answer"]}
        other = ask(
            upstream, "tools/call", name="two_rounds", arguments={}, requestState=second.state.replace("Ada", "Bo")
        )
        assert other.error == (400, -32602)
        assert [call.ended for call in upstream.of("two_rounds")] == ["input_required"] * 2 + ["complete", "error"]


def test_the_recording_server_refuses_requests_that_lack_what_the_wire_requires() -> None:
    with Recording() as upstream:
        body = msgspec.json.encode(tool_call("echo", {"text": "a"}))
        response = httpx.post(upstream.url, content=body, headers={"mcp-method": "tools/call"}, verify=False)
        assert response.json()["error"]["code"] == -32022
        assert upstream.of("echo")[0].body == body


def test_a_client_that_leaves_is_recorded_as_a_cancellation() -> None:
    with Recording() as upstream:
        message = tool_call("slow")
        headers = {**headers_of(message), "accept": "application/json, text/event-stream"}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(upstream.url, json=message, headers=headers, verify=False, timeout=0.2)
        assert upstream.wait_ended("slow").ended == "cancelled"


@pytest.mark.parametrize("tool", ["wrong_id", "redirect", "missing", "not_json", "two_responses", "reserved_meta"])
def test_the_hostile_server_breaks_one_rule_and_serves_the_rest(tool: str) -> None:
    with Hostile() as upstream:
        assert {entry["name"] for entry in ask(upstream, "tools/list").result["tools"]} == {*hostile.CALLS}
        ask(upstream, "tools/call", name=tool, arguments={})
        assert ask(upstream, "tools/call", name="echo", arguments={}).text == "fine"
        assert post(upstream, request("prompts/list")).error == (200, -32601)
