"""Calls that ask: the questions are requests on the answer, and the client's responses find the call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loadtest.cluster import wait_until
from tests.wires.draft.client import DraftClient
from tests.wires.draft.deployment import Deployment
from tests.wires.draft.messages import Refusal, accept, call_params
from tests.wires.draft.transport import BrokenError, RpcError
from tests.wires.draft.under_way import under_way
from tests.wires.legacy.conftest import Begin
from tests.wires.legacy.speaking import (
    ADA,
    BEFORE_TASKS,
    LEGACY,
    asked,
    calling,
    rejected,
    result_of,
    text_of,
    undelivered,
)

SAID = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"}
TOO_LARGE = "The answers are too large: together they have more bytes than one request may; call again"
ANSWERS = {**ADA, "sampling/createMessage": SAID, "roots/list": {"roots": [{"uri": "file:///a"}]}}


@pytest.mark.parametrize("version", [LEGACY, BEFORE_TASKS])
async def test_answers_that_reach_the_other_replica_find_the_call(
    begin: Begin, fleet: Deployment, name: str, version: str
) -> None:
    user = await begin(version=version)
    params = call_params("ask", {"call": name, "kinds": ["form", "sampling", "roots"]})
    reply = await user.send("tools/call", params, answers=ANSWERS)
    assert text_of(reply.result) == "form: ada, sampling: Paris, roots: 1 roots"
    assert len(set(fleet.lines(name))) == 1, "the call stays where it is"
    answered_at = {seen.url for seen in user.log if seen.kind == "sent" and "result" in seen.message}
    assert answered_at - {reply.url}, "no answer went to the other replica"
    methods = {notice["method"] for notice in reply.notices}
    assert methods == {"elicitation/create", "sampling/createMessage", "roots/list"}
    for notice in reply.notices:
        assert isinstance(notice["id"], str)
        assert len(notice["id"]) <= 1500


async def test_a_call_asks_as_often_as_it_likes_and_does_nothing_twice(
    user: DraftClient, fleet: Deployment, name: str
) -> None:
    kinds = ["form", "sampling", "roots", "other_form"]
    assert text_of(await user.call_tool("ask_in_turn", {"kinds": kinds}, answers=ANSWERS)).endswith("other_form: ada")
    result = await user.call_tool("once_then_ask", {"call": name}, answers=ADA)
    assert [block["text"] for block in result["content"]] == ["emitted", "ada"]
    assert fleet.lines(name) == ["first", "second ada"]


@pytest.mark.parametrize("tool", ["ask", "ask_in_turn"])
async def test_a_call_that_keeps_larger_answers_than_fit_in_a_body_ends_and_says_so(
    user: DraftClient, fleet: Deployment, name: str, tool: str
) -> None:
    long = "a" * 400_000
    answers = {"name": accept(name=long), "sampling/createMessage": {**SAID, "content": {"type": "text", "text": long}}}
    kinds = {"kinds": ["form", "sampling", "other_form"]}
    before = sum(rejected(replica, "too_large") for replica in fleet.replicas)
    result = await user.call_tool(tool, {**kinds, "call": name} if tool == "ask" else kinds, answers=answers)
    assert result["isError"]
    assert text_of(result) == TOO_LARGE
    assert sum(rejected(replica, "too_large") for replica in fleet.replicas) == before + 1


async def test_prompts_and_resources_ask_too(user: DraftClient) -> None:
    greeting = await user.complete("prompts/get", {"name": "greeting", "arguments": {"tone": "warmly"}}, answers=ADA)
    assert greeting.result["messages"][0]["content"]["text"] == "Greet ada, warmly."
    notes = await user.complete("resources/read", {"uri": "draft://notes"}, answers=ADA)
    assert notes.result["contents"][0]["text"] == "Notes of ada"


async def test_a_url_to_visit_comes_with_an_id_of_its_own(user: DraftClient, name: str) -> None:
    params = call_params("ask", {"call": name, "kinds": ["url"]})
    replies = [
        await user.send("tools/call", params, answers={"elicitation/create": {"action": "accept"}}) for _ in range(2)
    ]
    (first,), (second,) = (reply.notices for reply in replies)
    assert first["params"]["mode"] == "url"
    assert first["params"]["elicitationId"] != second["params"]["elicitationId"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [({"action": "decline"}, "Declined"), ({"action": "cancel"}, "Dismissed"), (Refusal(-1, "no screen"), "no screen")],
)
async def test_a_tool_learns_that_it_gets_no_answer(user: DraftClient, answer: Any, told: str) -> None:
    assert told in text_of(await user.call_tool("ask_politely", {}, answers={"name": answer}))


async def test_what_does_not_fit_is_asked_again_under_another_id(user: DraftClient) -> None:
    said = iter([accept(name=7), {"action": "perhaps"}, accept(name="ada")])
    reply = await user.send("tools/call", call_params("ask_politely"), answers={"name": lambda _: next(said)})
    assert text_of(reply.result) == "ada"
    assert len({notice["id"] for notice in reply.notices}) == 3


async def test_an_answer_that_did_not_match_does_not_count_when_it_is_asked_again(
    user: DraftClient, fleet: Deployment
) -> None:
    async with calling(user, "ask_politely") as call:
        first = await asked(call)
        await user.respond(first["id"], {"result": accept(name=7)})
        second = await asked(call, 2)
        late = sum(rejected(replica, "late") for replica in fleet.replicas)
        await user.respond(first["id"], {"result": accept(name="eve")})
        assert sum(rejected(replica, "late") for replica in fleet.replicas) == late + 1
        await user.respond(second["id"], {"result": accept(name="ada")})
        assert text_of(await result_of(call)) == "ada"


async def test_what_never_fits_ends_the_call(user: DraftClient, fleet: Deployment, name: str) -> None:
    reply = await user.send(
        "tools/call", call_params("once_then_ask", {"call": name}), answers={"name": accept(name=7)}
    )
    assert len(reply.notices) == 3
    assert reply.result["isError"] is True
    assert reply.result["content"][0]["text"] == "emitted"
    reason = "The client's answers to 'who' do not match what was asked. name: Input should be a valid string"
    assert reply.result["content"][1]["text"] == reason
    assert fleet.lines(name) == ["first"]
    with pytest.raises(RpcError) as refused:
        await user.send("resources/read", {"uri": "draft://notes"}, answers={"name": accept(name=7)})
    assert (refused.value.status, refused.value.code) == (200, -32603)


async def test_the_error_for_a_client_without_a_stream_says_what_to_do(user: DraftClient) -> None:
    user.transport.headers["Accept"] = "application/json"
    result = await user.call_tool("ask_politely", {})
    assert result["isError"] is True
    assert "text/event-stream" in text_of(result)


async def test_the_error_for_a_client_that_cannot_answer_names_the_capability(begin: Begin) -> None:
    user = await begin(capabilities={"sampling": {}})
    result = await user.call_tool("ask_politely", {})
    assert result["isError"] is True
    assert "elicitation.form" in text_of(result)
    assert text_of(await user.call_tool("can_ask")) == "sampling"


async def test_a_tool_whose_state_counts_once_asks_like_any_other(user: DraftClient) -> None:
    assert text_of(await user.call_tool("ask_once", {}, answers=ADA)) == "ada"


async def test_a_client_that_disconnects_ends_the_wait_for_its_answer(
    user: DraftClient, fleet: Deployment, name: str
) -> None:
    async with calling(user, "ask", call=name, kinds=["form"]) as call:
        question = await asked(call)
        (replica,) = (replica for replica in fleet.replicas if replica.url == call.url)
        late = rejected(replica, "late")
    await asyncio.to_thread(wait_until, lambda: replica.metric("gateway_calls_waiting") == 0, "the wait is over")
    await user.respond(question["id"], {"result": accept(name="ada")})
    assert rejected(replica, "late") == late + 1
    assert len(fleet.lines(name)) == 1


async def test_a_client_that_cancels_while_it_is_asked_is_not_answered(
    begin: Begin, fleet: Deployment, name: str
) -> None:
    user = await begin(urls=fleet.urls[:1])
    async with calling(user, "ask", call=name, kinds=["form"]) as call:
        await asked(call)
        await user.notify("notifications/cancelled", {"requestId": call.request_id})
        assert len(await call.end()) == 1
    assert len(fleet.lines(name)) == 1


async def test_a_client_whose_replica_dies_loses_that_call_alone(begin: Begin, fleet: Deployment, name: str) -> None:
    user = await begin()
    first, second = fleet.replicas
    user.transport.urls = [first.url]
    async with calling(user, "ask", call=name, kinds=["form"]) as call:
        question = await asked(call)
        user.transport.urls = [second.url]
        async with calling(user, "ask", call=f"{name}-other", kinds=["form"]) as other:
            other_question = await asked(other)
            gone = rejected(second, "gone")
            first.kill()
            try:
                with pytest.raises(BrokenError):
                    await call.end()
                with undelivered():
                    await user.respond(question["id"], {"result": accept(name="ada")})
                assert rejected(second, "gone") == gone + 1
                await user.respond(other_question["id"], {"result": accept(name="ada")})
                assert text_of(await result_of(other)) == "form: ada"
                assert (
                    text_of(await user.call_tool("ask", {"call": name, "kinds": ["form"]}, answers=ADA)) == "form: ada"
                )
            finally:
                first.start()
                first.wait_ready()
    gone = rejected(second, "gone")
    with undelivered():
        await user.respond(question["id"], {"result": accept(name="ada")})
    assert rejected(second, "gone") == gone + 1, "another process at the same URL takes the answer for its own"


async def test_a_replica_that_drains_asks_waiting_clients_to_call_again(
    begin: Begin, fleet: Deployment, name: str
) -> None:
    user = await begin()
    first, second = fleet.replicas
    user.transport.urls = [first.url]
    async with (
        calling(user, "once_then_ask", call=name) as call,
        under_way(user, "prompts/get", {"name": "greeting", "arguments": {"tone": "warmly"}}) as greeting,
    ):
        await asked(call)
        await asked(greeting)
        try:
            assert await asyncio.to_thread(first.terminate) == 0
            result = await result_of(call)
            assert result["isError"] is True
            emitted, told = result["content"]
            assert emitted["text"] == "emitted"
            assert "call again" in told["text"]
            assert "call again" in (await greeting.response())["error"]["message"]
            user.transport.urls = [second.url]
            assert text_of(await user.call_tool("ask_politely", {}, answers=ADA)) == "ada"
        finally:
            first.start()
            first.wait_ready()
