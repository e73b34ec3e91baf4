"""Relays for clients of the draft wire: calls that are sent again with answers, and tasks."""

from __future__ import annotations

from typing import Any

from tests.wires.draft.client import DraftClient
from tests.wires.draft.messages import Refusal, call_params, retry_params
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
REFUSED = Refusal(-1, "no model")


async def test_every_question_is_asked_and_every_answer_comes_back_as_it_was(user: DraftClient) -> None:
    await user.initialize()  # without a session, forms are all that a client can be asked
    several = {"form": FORM_QUESTION, "url": URL_QUESTION, "model": SAMPLING_QUESTION, "roots": ROOTS_QUESTION}
    wanted = call_params("bugs__play", {"rounds": [several, {"form": FORM_QUESTION}]})
    first = await user.request("tools/call", wanted)
    assert first["inputRequests"] == several
    answers = {"form": ADA, "url": {"action": "decline"}, "model": REFUSED, "roots": {"roots": 7}}
    second = await user.request("tools/call", wanted | await retry_params(first, answers))
    assert second["inputRequests"] == {"form": FORM_QUESTION}
    last = await user.request("tools/call", wanted | await retry_params(second, {"form": {"action": "cancel"}}))
    assert told_by(last)["answered"] == [
        {
            "form": {"result": ADA},
            "url": {"result": {"action": "decline"}},
            "model": {"error": {"code": -1, "message": "no model"}},
            "roots": {"result": {"roots": 7}},
        },
        {"form": {"result": {"action": "cancel"}}},
    ]


async def test_a_result_is_passed_on_whole_without_the_members_of_another_wire(user: DraftClient) -> None:
    result = await user.request("tools/call", call_params("bugs__play", {"result": RESULT}))
    assert result == {**PASSED_ON, "_meta": {"com.example/x": 1}}
    reply = await user.complete("resources/read", {"uri": "bugs+docs://page"}, answers={"k": ADA})
    server = SCRIPTS["bugs+docs://page"]["result"]
    assert reply.result == {name: server[name] for name in ("contents", "_meta")}


async def test_a_call_is_shed_with_its_state_alone(user: DraftClient) -> None:
    wanted = call_params("bugs__play", {"sheds": 1, "result": RESULT})
    shed = await user.request("tools/call", wanted)
    assert set(shed) == {"requestState"}
    assert (await user.request("tools/call", wanted | shed))["content"] == RESULT["content"]


async def test_a_task_asks_and_an_answer_that_does_not_fit_is_ignored(user: DraftClient) -> None:
    created = await user.request("tools/call", call_params("bugs__job", {"rounds": [{"k": FORM_QUESTION}]}, task={}))
    task_id = created["task"]["taskId"]
    asking = await user.request("tasks/result", {"taskId": task_id})
    assert asking["inputRequests"] == {"k": FORM_QUESTION}
    await user.answer_task(task_id, {"k": {"result": {"action": "accept", "content": {"name": 7}}}})
    assert (await user.get_task(task_id))["status"] == "input_required"
    await user.answer_task(task_id, {"k": {"error": {"code": -1, "message": "no screen", "data": 1}}})
    done = await user.request("tasks/result", {"taskId": task_id})
    error = {"code": -1, "message": "no screen", "data": 1}
    assert told_by(done)["answered"] == [{"k": {"error": error}}]
