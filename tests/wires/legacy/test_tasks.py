"""Tasks as 2025-11-25 has them: ordered by the request, asked about on the stream that waits for the result."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.wires.draft.client import DraftClient
from tests.wires.draft.deployment import Deployment
from tests.wires.draft.messages import RELATED_TASK, accept, call_params
from tests.wires.draft.transport import BrokenError, RpcError
from tests.wires.draft.under_way import UnderWay, under_way
from tests.wires.legacy.conftest import Begin
from tests.wires.legacy.speaking import ADA, asked, rejected, result_of, text_of

YES: Any = {"result": accept(name="ada")}


def wanted(task: dict[str, Any]) -> dict[str, Any]:
    return {"taskId": task["taskId"]}


async def who_asks(one: UnderWay, two: UnderWay) -> tuple[UnderWay, UnderWay]:
    """Wait until one of two streams asks, and return it and the other."""
    waits = {asyncio.create_task(asked(one)): (one, two), asyncio.create_task(asked(two)): (two, one)}
    done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in pending:
        wait.cancel()
    return waits[done.pop()]


async def test_a_task_begins_at_once_whatever_its_author_prefers(
    user: DraftClient, fleet: Deployment, name: str
) -> None:
    task = await user.create_task("detach_late", {"gate": name}, ttl=60_000)
    assert set(task) == {"taskId", "status", "statusMessage", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}
    assert (task["status"], task["ttl"]) == ("working", 60_000)
    fleet.open(name)
    reply = await user.task_result(task["taskId"])
    assert text_of(reply.result) == "detached: True"
    assert reply.result["_meta"] == {RELATED_TASK: wanted(task)}
    assert (await user.get_task(task["taskId"]))["status"] == "completed"


async def test_how_far_a_task_is_shows_in_its_message_alone(user: DraftClient, fleet: Deployment, name: str) -> None:
    task = await user.create_task("climb", {"gate": name, "told": [[1, 2, "half way"]]})
    params = {**wanted(task), "_meta": {"progressToken": "mine"}}
    async with under_way(user, "tasks/result", params) as waiting:
        await waiting.hear("notifications/tasks/status")
        fleet.open(f"{name}-0")
        told = await waiting.until(lambda message: message.get("params", {}).get("statusMessage") == "half way")
        for shape in (told["params"], await user.get_task(task["taskId"]), *await user.all_tasks()):
            assert shape["statusMessage"] == "half way"
            assert not {"progress", "progressTotal"} & set(shape)
        progress = await waiting.hear("notifications/progress")
        assert progress["params"]["_meta"] == {RELATED_TASK: wanted(task)}
        fleet.open(name)
        assert text_of(await result_of(waiting)) == "arrived"


async def test_a_task_whose_arguments_are_wrong_is_a_task_that_has_failed(user: DraftClient) -> None:
    created = await user.request("tools/call", call_params("say", {"nope": 1}) | {"task": {"ttl": 60_000}})
    assert set(created) == {"task"}
    assert created["task"]["status"] == "failed"
    assert "Invalid arguments for say" in created["task"]["statusMessage"]
    result = (await user.task_result(created["task"]["taskId"])).result
    assert result["isError"]
    assert "Invalid arguments for say" in text_of(result)


async def test_what_a_task_asks_goes_out_on_the_stream_that_waits_for_its_result(user: DraftClient, name: str) -> None:
    task = await user.create_task("ask", {"call": name, "kinds": ["form", "url"]})
    async with under_way(user, "tasks/result", wanted(task)) as waiting:
        for question in (await asked(waiting), await asked(waiting, 2)):
            assert question["method"] == "elicitation/create"
            assert question["params"]["_meta"] == {RELATED_TASK: wanted(task)}
            assert ("elicitationId" in question["params"]) == (question["params"]["mode"] == "url")
            await user.respond(question["id"], YES)
        result = await result_of(waiting)
    assert "form: ada" in text_of(result)
    assert result["_meta"] == {RELATED_TASK: wanted(task)}
    statuses = [m["params"] for m in waiting.messages if m.get("method") == "notifications/tasks/status"]
    assert "input_required" in [status["status"] for status in statuses]
    assert not [status for status in statuses if {"progress", "progressTotal"} & set(status)]


async def test_an_answer_to_a_task_counts_once(user: DraftClient, fleet: Deployment, name: str) -> None:
    task = await user.create_task("ask", {"call": name, "kinds": ["form"]})
    async with under_way(user, "tasks/result", wanted(task)) as waiting:
        question = await asked(waiting)
        await user.respond(question["id"], YES)
        late = sum(rejected(replica, "late") for replica in fleet.replicas)
        await user.respond(question["id"], {"result": accept(name="eve")})
        assert sum(rejected(replica, "late") for replica in fleet.replicas) == late + 1
        assert text_of(await result_of(waiting)) == "form: ada"


async def test_an_answer_that_does_not_fit_is_asked_for_again(user: DraftClient, name: str) -> None:
    task = await user.create_task("ask", {"call": name, "kinds": ["form"]})
    said = iter([accept(name=7), accept(name="ada")])
    reply = await user.task_result(task["taskId"], answers={"name": lambda _: next(said)})
    assert text_of(reply.result) == "form: ada"
    assert len({notice["id"] for notice in reply.notices if "id" in notice}) == 2


async def test_answers_that_never_fit_end_the_task_with_the_last_reason(user: DraftClient, name: str) -> None:
    task = await user.create_task("ask", {"call": name, "kinds": ["form"]})
    reply = await user.task_result(task["taskId"], answers={"name": accept(name=7)})
    questions = [notice["params"]["message"] for notice in reply.notices if "id" in notice]
    reason = "name: Input should be a valid string"
    assert len(questions) == 3
    assert all(message.endswith(f"was not accepted. {reason}") for message in questions[1:])
    assert reply.result["isError"] is True
    assert text_of(reply.result).endswith(f"do not match what was asked. {reason}")
    assert (await user.get_task(task["taskId"]))["status"] == "failed"


async def test_one_stream_at_a_time_asks(user: DraftClient, name: str) -> None:
    task = await user.create_task("ask", {"call": name, "kinds": ["form"]})
    async with (
        under_way(user, "tasks/result", wanted(task)) as one,
        under_way(user, "tasks/result", wanted(task)) as two,
    ):
        asking, other = await who_asks(one, two)
        await other.until(lambda message: message.get("params", {}).get("status") == "input_required")
        await user.respond((await asked(asking))["id"], YES)
        for stream in (asking, other):
            assert text_of(await result_of(stream)) == "form: ada"
    assert not [message for message in other.messages if "method" in message and "id" in message]


async def test_another_stream_asks_when_the_one_that_asked_ends(user: DraftClient, name: str) -> None:
    task = await user.create_task("ask", {"call": name, "kinds": ["form"]})
    async with (
        under_way(user, "tasks/result", wanted(task)) as one,
        under_way(user, "tasks/result", wanted(task)) as two,
    ):
        asking, other = await who_asks(one, two)
        await asking.stop()
        await user.respond((await asked(other))["id"], YES)
        assert text_of(await result_of(other)) == "form: ada"


async def test_a_task_outlives_the_replica_that_asks_for_it(user: DraftClient, fleet: Deployment, name: str) -> None:
    task = await user.create_task("ask", {"call": name, "kinds": ["form"]})
    async with under_way(user, "tasks/result", wanted(task)) as waiting:
        question = await asked(waiting)
        (first,) = (replica for replica in fleet.replicas if replica.url == waiting.url)
        first.kill()
        try:
            with pytest.raises(BrokenError):
                await waiting.end()
            user.transport.urls = [url for url in fleet.urls if url != first.url]
            await user.respond(question["id"], YES)
            assert text_of((await user.task_result(task["taskId"])).result) == "form: ada"
        finally:
            first.start()
            first.wait_ready()


async def test_a_client_without_a_stream_gets_an_error_when_a_task_asks(user: DraftClient, name: str) -> None:
    task = await user.create_task("ask", {"call": name, "kinds": ["form"]})
    user.transport.headers["Accept"] = "application/json"
    with pytest.raises(RpcError, match="text/event-stream") as refused:
        await user.task_result(task["taskId"])
    assert refused.value.status == 200


async def test_tools_say_whether_they_are_called_as_tasks(user: DraftClient, begin: Begin) -> None:
    for params in (call_params("plain", task={}), call_params("only_a_task")):
        with pytest.raises(RpcError) as refused:
            await user.request("tools/call", params)
        assert (refused.value.status, refused.value.code) == (200, -32601)
    task = await user.create_task("only_a_task")
    assert text_of((await user.task_result(task["taskId"], answers=ADA)).result) == "ada"
    silent = await begin(capabilities={})
    task = await silent.create_task("only_a_task")
    with pytest.raises(RpcError) as refused:
        await silent.task_result(task["taskId"])
    assert refused.value.code == -32021


async def test_tasks_are_listed_and_cancelled(user: DraftClient, fleet: Deployment, name: str) -> None:
    running = await user.create_task("wait", {"gate": name})
    done = await user.create_task("say", {"call": f"{name}-said"})
    await user.task_result(done["taskId"])
    assert {task["taskId"] for task in await user.all_tasks()} == {running["taskId"], done["taskId"]}
    await asyncio.to_thread(fleet.wait_for_lines, f"started-{name}")
    assert (await user.cancel_task(running["taskId"]))["status"] == "cancelled"
    await asyncio.to_thread(fleet.wait_for_lines, f"cancelled-{name}")
    result = (await user.task_result(running["taskId"])).result
    assert (result["isError"], result["_meta"]) == (True, {RELATED_TASK: wanted(running)})
    for task in (running, done):
        with pytest.raises(RpcError) as refused:
            await user.cancel_task(task["taskId"])
        assert (refused.value.status, refused.value.code) == (200, -32602)


async def test_a_task_that_fails_says_so_in_the_words_of_this_wire(user: DraftClient) -> None:
    told = await user.create_task("err")
    assert (await user.task_result(told["taskId"])).result["isError"] is True
    assert (await user.get_task(told["taskId"]))["status"] == "failed"
    refused = await user.create_task("refuse")
    with pytest.raises(RpcError) as error:
        await user.task_result(refused["taskId"])
    assert error.value.code == -32000


async def test_tasks_of_the_draft_wire_have_this_format_here(user: DraftClient, fleet: Deployment, name: str) -> None:
    async with fleet.client(name) as draft:
        task = await draft.create_task("ask", {"call": name, "kinds": ["form"]})
    assert "progress" not in await user.get_task(task["taskId"])
    assert text_of((await user.task_result(task["taskId"], answers=ADA)).result) == "form: ada"


async def test_tasks_of_others_are_unknown(user: DraftClient, begin: Begin, name: str) -> None:
    task = await user.create_task("say", {"call": name})
    eve = await begin(f"{name}-eve")
    for method in ("tasks/get", "tasks/result", "tasks/cancel"):
        with pytest.raises(RpcError) as refused:
            await eve.request(method, wanted(task))
        assert (refused.value.code, refused.value.message) == (-32602, "Failed to retrieve task: Task not found")
    assert await eve.all_tasks() == []
