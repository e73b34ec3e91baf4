"""Relays for clients of the 2025-11-25 wire: what another server asks is asked on the stream of the answer."""

from __future__ import annotations

import itertools
from typing import Any

from tests.wires.draft.client import DraftClient
from tests.wires.draft.messages import Refusal, call_params
from tests.wires.legacy.speaking import asked, calling, result_of
from tests.wires.relays import (
    FORM_QUESTION,
    PASSED_ON,
    RESULT,
    ROOTS_QUESTION,
    SAMPLING_QUESTION,
    SCRIPTS,
    URL_QUESTION,
    told_by,
)

ADA: dict[str, Any] = {"action": "accept", "content": {"name": "ada", "more": 1}, "x": 1, "_meta": {"com.example/y": 1}}
DECLINED = {"action": "decline", "content": None}


async def test_every_question_is_asked_and_every_answer_comes_back_as_it_was(user: DraftClient) -> None:
    several = {"form": FORM_QUESTION, "url": URL_QUESTION, "model": SAMPLING_QUESTION, "roots": ROOTS_QUESTION}
    script = {"rounds": [several, {"form": FORM_QUESTION}]}
    said = itertools.cycle([ADA, DECLINED])
    answers = {
        "name": lambda _: next(said),
        "elicitation/create": {"action": "cancel"},
        "sampling/createMessage": Refusal(-1, "no model"),
        "roots/list": {"roots": "none"},
    }
    reply = await user.send("tools/call", call_params("bugs__play", script), answers=answers)
    first, second = told_by(reply.result)["answered"]
    assert first == {
        "form": {"result": ADA},
        "url": {"result": {"action": "cancel"}},
        "model": {"error": {"code": -1, "message": "no model"}},
        "roots": {"result": {"roots": "none"}},
    }
    assert second == {"form": {"result": DECLINED}}
    forms = [notice["params"] for notice in reply.notices if "requestedSchema" in notice["params"]]
    assert forms == [FORM_QUESTION["params"]] * 2
    (url,) = [notice["params"] for notice in reply.notices if notice["params"].get("mode") == "url"]
    assert {**url, "elicitationId": ""} == {**URL_QUESTION["params"], "elicitationId": ""}


async def test_answers_that_are_passed_on_may_be_larger_together_than_a_body(user: DraftClient) -> None:
    script = {"rounds": [{"k": FORM_QUESTION}] * 3, "result": RESULT}
    answers = {"name": {"action": "accept", "content": {"name": "a" * 400_000}}}
    reply = await user.send("tools/call", call_params("bugs__play", script), answers=answers)
    assert reply.result["content"] == RESULT["content"]


async def test_arguments_that_were_put_aside_are_there_again_in_each_round(user: DraftClient) -> None:
    script = {"rounds": [{"k": FORM_QUESTION}] * 3, "aside": "a" * 100_000}
    reply = await user.send("tools/call", call_params("bugs__play", script), answers={"name": ADA})
    assert len(told_by(reply.result)["answered"]) == 3


async def test_a_late_answer_to_an_earlier_round_does_not_count(user: DraftClient) -> None:
    async with calling(user, "bugs__play", rounds=[{"k": FORM_QUESTION}, {"k": FORM_QUESTION}]) as call:
        first = await asked(call)
        await user.respond(first["id"], {"result": ADA})
        second = await asked(call, 2)
        await user.respond(first["id"], {"result": DECLINED})
        await user.respond(second["id"], {"result": {**ADA, "x": 2}})
        told = told_by(await result_of(call))
    assert told["answered"] == [{"k": {"result": ADA}}, {"k": {"result": {**ADA, "x": 2}}}]


async def test_a_result_is_passed_on_whole_without_the_members_of_another_wire(user: DraftClient) -> None:
    assert await user.call_tool("bugs__play", {"result": RESULT}) == {**PASSED_ON, "_meta": {"com.example/x": 1}}
    for method, params in (
        ("prompts/get", {"name": "bugs__greet", "arguments": {}}),
        ("resources/read", {"uri": "bugs+docs://page"}),
    ):
        server = SCRIPTS[str(params.get("name") or params["uri"])]["result"]
        reply = await user.complete(method, params, answers={"name": ADA})
        assert reply.result == {
            name: part for name, part in server.items() if name not in ("resultType", "ttlMs", "cacheScope")
        }


async def test_a_relay_cannot_shed_a_call_of_a_client_that_carries_no_state(user: DraftClient) -> None:
    result = await user.call_tool("bugs__play", {"sheds": 1, "result": RESULT})
    assert result["content"] == RESULT["content"]


async def test_a_task_asks_on_a_stream_with_the_meta_of_the_question(user: DraftClient) -> None:
    created = await user.request("tools/call", call_params("bugs__job", {"rounds": [{"k": FORM_QUESTION}]}, task={}))
    task_id = created["task"]["taskId"]
    reply = await user.send("tasks/result", {"taskId": task_id}, answers={"name": ADA})
    assert told_by(reply.result)["answered"] == [{"k": {"result": ADA}}]
    (question,) = [notice["params"] for notice in reply.notices if notice["method"] == "elicitation/create"]
    related = {"io.modelcontextprotocol/related-task": {"taskId": task_id}}
    assert question == {**FORM_QUESTION["params"], "_meta": {"com.example/x": 1, **related}}


async def test_a_client_that_asks_for_a_task_gets_it_at_once(user: DraftClient) -> None:
    created = await user.request("tools/call", call_params("bugs__later", {"result": RESULT}, task={}))
    reply = await user.send("tasks/result", {"taskId": created["task"]["taskId"]})
    assert reply.result["content"] == RESULT["content"]
