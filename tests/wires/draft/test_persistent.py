"""Multi round-trip requests of tasks: `tasks/result` returns the questions, `tasks/input_response` answers them."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from tests.wires.draft import plays
from tests.wires.draft.client import DraftClient
from tests.wires.draft.conftest import ClientOf
from tests.wires.draft.deployment import Deployment
from tests.wires.draft.messages import RELATED_TASK, Result, accept, related_task_id, retry_params
from tests.wires.draft.transport import RpcError
from tests.wires.draft.written import Example, brought, call, text_of

FORM = {"form": {"result": accept(name="ada")}}
BOTH = {"form": accept(name="ada"), "other_form": accept(name="bob")}


def related(task_id: object) -> dict[str, Any]:
    return {"_meta": {RELATED_TASK: {"taskId": task_id}}}


async def waiting(client: DraftClient, tool: str = "ask", **arguments: Any) -> str:
    """Create a task that asks, wait until it does, and return its id."""
    task = await client.create_task(tool, arguments)
    return await until_it_asks(client, task["taskId"])


async def until_it_asks(client: DraftClient, task_id: str) -> str:
    task = await client.poll(task_id, lambda task: task["status"] == "input_required")
    assert task["status"] == "input_required"
    return task_id


async def refusal_of(client: DraftClient, params: dict[str, Any]) -> RpcError:
    """Send an answer that is refused, and return the error."""
    with pytest.raises(RpcError) as refused:
        await client.request("tasks/input_response", params)
    assert (refused.value.status, refused.value.code) == (200, -32602)
    return refused.value


async def test_example_flow_for_persistent_tools(fleet: Deployment, user: DraftClient) -> None:
    said = await plays.echo_task(user)
    assert text_of(said[-1].response["result"]) == "Echo: Hello World!"
    assert {one.url for one in said} == set(fleet.urls)
    assert all(before != after for before, after in itertools.pairwise(user.urls_of()))


async def test_a_task_that_waits_says_so_and_occupies_no_worker(
    fleet: Deployment, user: DraftClient, name: str
) -> None:
    with fleet.worked_by("single", GATEWAY_WORKER_CONCURRENCY="1"):
        task_id = await waiting(user, call=name, kinds=["form"])
        other = await user.create_task("say", {"call": f"{name}-other"})
        finished = await user.finish_task(other["taskId"])
        assert finished.status == "completed"
        assert (await user.get_task(task_id))["status"] == "input_required"
        finished = await user.finish_task(task_id, {"form": accept(name="ada")})
    assert text_of(finished.result or {}) == "form: ada"


async def test_tasks_result_of_a_waiting_task_tells_its_questions(user: DraftClient, name: str) -> None:
    task_id = await waiting(user, call=name, kinds=["form", "roots"])
    first, second = await user.task_result(task_id), await user.task_result(task_id)
    assert first.result == second.result
    assert first.url != second.url
    assert set(first.result) == {"inputRequests", "_meta"}
    assert first.result["_meta"] == related(task_id)["_meta"]
    requests = first.result["inputRequests"]
    assert {key: request["method"] for key, request in requests.items()} == {
        "form": "elicitation/create",
        "roots": "roots/list",
    }
    assert all(set(request) == {"method", "params"} for request in requests.values())


async def test_a_response_is_acknowledged_with_the_task_and_the_task_goes_on(
    fleet: Deployment, user: DraftClient, name: str
) -> None:
    task_id = await waiting(user, "ask_and_note", call=name, gate=f"{name}-gate")
    answer = {"inputResponses": FORM, **related(task_id)}
    assert await user.request("tasks/input_response", answer) == related(task_id)
    assert (await user.get_task(task_id))["status"] == "working"
    assert (await user.get_task(task_id))["status"] == "working"
    fleet.open(f"{name}-gate")
    finished = await user.finish_task(task_id)
    assert (finished.status, text_of(finished.result or {})) == ("completed", "ada")
    assert (finished.result or {})["_meta"] == related(task_id)["_meta"]
    assert fleet.lines(name) == ["asks", "asks", "knows"]


async def test_some_answers_leave_the_task_waiting_for_the_others(user: DraftClient, name: str) -> None:
    task_id = await waiting(user, call=name, kinds=["form", "other_form"])
    questions = await user.pending_questions(task_id)
    await user.answer_task(task_id, {"other_form": {"result": BOTH["other_form"]}})
    assert (await user.get_task(task_id))["status"] == "input_required"
    assert await user.pending_questions(task_id) == {"form": questions["form"]}
    await user.answer_task(task_id, FORM)
    assert text_of((await user.finish_task(task_id)).result or {}) == "form: ada, other_form: bob"


async def test_guidance_for_error_handling_task_without_what_it_needs(user: DraftClient) -> None:
    task_id = await waiting(user, "echo")
    missing = Example("mrtr_missing_information", {plays.ECHO_ID: task_id})
    questions = await user.pending_questions(task_id)
    await missing.send(user, "persistent: an answer without what is needed is acknowledged")
    assert (await user.get_task(task_id))["status"] == "input_required"
    assert await user.pending_questions(task_id) == questions
    assert set(questions) == {"echo_input"}

    await user.answer_task(task_id, {"echo_input": {"result": accept(input=7)}, "not_requested": FORM["form"]})
    assert await user.pending_questions(task_id) == questions
    finished = await user.finish_task(task_id, {"echo_input": accept(input="at last")})
    assert text_of(finished.result or {}) == "Echo: at last"


UNREADABLE: tuple[Any, ...] = (accept(input="unwrapped"), {"result": "text"}, {"error": "text"}, {}, [], None, "text")


@pytest.mark.parametrize("answer", UNREADABLE)
async def test_an_unreadable_answer_to_a_question_is_refused_by_its_key(user: DraftClient, answer: Any) -> None:
    task_id = await waiting(user, "echo")
    questions = await user.pending_questions(task_id)
    with pytest.raises(RpcError, match=r"inputResponses\['echo_input'\] must be an object with a result") as refused:
        await user.answer_task(task_id, {"echo_input": answer})
    assert refused.value.code == -32602
    assert await user.pending_questions(task_id) == questions
    await user.answer_task(task_id, {"not_requested": answer})  # ignored, as every answer that nobody asked for
    finished = await user.finish_task(task_id, {"echo_input": accept(input="at last")})
    assert text_of(finished.result or {}) == "Echo: at last"


@pytest.mark.parametrize("members", [{}, {"inputResponses": None}, {"inputResponses": []}])
async def test_input_without_any_answers_is_refused(user: DraftClient, members: dict[str, Any]) -> None:
    task_id = await waiting(user, "echo")
    with pytest.raises(RpcError, match=r"params\.inputResponses must be an object") as refused:
        await user.request("tasks/input_response", {**members, "_meta": {RELATED_TASK: {"taskId": task_id}}})
    assert refused.value.code == -32602
    await user.cancel_task(task_id)


async def test_a_response_that_comes_twice_or_too_late_is_accepted_and_ignored(
    fleet: Deployment, user: DraftClient, name: str
) -> None:
    late = {"form": {"result": accept(name="somebody else")}}
    task_id = await waiting(user, "ask_and_note", call=name, gate=f"{name}-gate")
    for answer in (FORM, FORM, late):
        assert related_task_id(await user.answer_task(task_id, answer)) == task_id
    fleet.open(f"{name}-gate")
    finished = await user.finish_task(task_id)
    assert text_of(finished.result or {}) == "ada"
    await user.answer_task(task_id, late)
    assert await user.finish_task(task_id) == finished
    assert fleet.lines(name) == ["asks", "asks", "knows"]

    cancelled = await waiting(user, call=f"{name}-cancelled", kinds=["form"])
    await user.cancel_task(cancelled)
    before = await user.finish_task(cancelled)
    await user.answer_task(cancelled, FORM)
    assert await user.finish_task(cancelled) == before
    assert before.status == "cancelled"


async def test_a_response_for_no_task_is_refused(user: DraftClient, client_of: ClientOf, name: str) -> None:
    task_id = await waiting(user, call=name, kinds=["form"])
    foreign = await waiting(client_of(f"{name}-other"), call=f"{name}-other", kinds=["form"])
    expired = (await user.create_task("ask", {"call": f"{name}-expired", "kinds": ["form"]}, ttl=1))["taskId"]
    await gone(user, expired)

    told = {
        (await refusal_of(user, {"inputResponses": FORM, **related(no_task)})).message
        for no_task in (foreign, expired, "unknown")
    }
    assert told == {"Failed to retrieve task: Task not found"}
    nameless: tuple[Any, ...] = ({}, {"_meta": {}}, {"_meta": {RELATED_TASK: task_id}}, related(7), {"taskId": task_id})
    for names_none in nameless:
        refusal = await refusal_of(user, {"inputResponses": FORM, **names_none})
        assert RELATED_TASK in refusal.message
    no_objects: tuple[Any, ...] = ([], "form", 7)
    for no_object in no_objects:
        refusal = await refusal_of(user, {"inputResponses": no_object, **related(task_id)})
        assert "params.inputResponses" in refusal.message
    assert (await user.get_task(task_id))["status"] == "input_required"
    await user.cancel_task(task_id)


async def gone(client: DraftClient, task_id: str) -> None:
    async with asyncio.timeout(client.seconds):
        while True:
            try:
                await client.get_task(task_id)
            except RpcError:
                return
            await asyncio.sleep(0.01)


async def test_a_waiting_task_can_be_cancelled_instead_of_answered(user: DraftClient, name: str) -> None:
    task_id = await waiting(user, call=name, kinds=["form"])
    assert (await user.cancel_task(task_id))["status"] == "cancelled"
    finished = await user.finish_task(task_id)
    assert finished.status == "cancelled"
    result: Result = finished.result or {}
    assert result["isError"] is True
    assert related_task_id(result) == task_id


async def test_interactions_between_ephemeral_and_persistent_workflows(user: DraftClient) -> None:
    answers = {"size": accept(size="small"), "confirm": accept(confirm=True)}
    wanted = call("provision_vm") | {"task": {}}
    first = await user.request("tools/call", wanted)
    assert set(first["inputRequests"]) == {"size"}
    assert await user.all_tasks() == []

    second = await user.request("tools/call", wanted | await retry_params(first, answers))
    assert set(second) == {"task"}
    task_id = await until_it_asks(user, second["task"]["taskId"])
    asked = await user.task_result(task_id)
    assert set(asked.result["inputRequests"]) == {"confirm"}
    finished = await user.finish_task(task_id, answers)
    assert "of size small is running (provisioned in the background)" in text_of(finished.result or {})


async def test_a_task_never_asks_through_the_call_again(user: DraftClient) -> None:
    answers = {"size": accept(size="small"), "confirm": accept(confirm=False)}
    wanted = call("provision_vm") | {"task": {}}
    retry = wanted | await retry_params(await user.request("tools/call", wanted), answers)
    task_id = await until_it_asks(user, (await user.request("tools/call", retry))["task"]["taskId"])

    other = await user.request("tools/call", wanted | brought(answers))
    assert set(other) == {"task"}
    other_id = other["task"]["taskId"]
    assert other_id != task_id
    assert (await user.get_task(task_id))["status"] == "input_required"
    for each in (task_id, other_id):
        finished = await user.finish_task(each, answers)
        assert "was not started" in text_of(finished.result or {})


async def test_status_notifications_may_be_there_and_nobody_needs_them(user: DraftClient) -> None:
    user.transport.headers["Accept"] = "application/json"
    await plays.echo_task(user)
    heads = [seen.headers["content-type"] for seen in user.log if seen.kind == "head"]
    assert set(heads) == {"application/json"}
