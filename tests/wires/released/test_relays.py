"""Relays for clients of the 2026-07-28 wire: two replicas in turn, with and without tasks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.runtime.turns import Turns
from gateway.tasks.ports import Kept
from tests.integration.raw import Answer
from tests.storage.servers import Server
from tests.waiting import until
from tests.wires import relays
from tests.wires.relays import (
    FORM_QUESTION,
    HEARD,
    PASSED_ON,
    RESULT,
    ROOTS_QUESTION,
    SAMPLING_QUESTION,
    URL_QUESTION,
    told_by,
)
from tests.wires.released.conftest import TASKS, World

ALL: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
WITH_TASKS = {**ALL, **TASKS}
ADA: dict[str, Any] = {"action": "accept", "content": {"name": "ada", "more": 1}, "x": 1, "_meta": {"com.example/y": 1}}
MISFIT = {"action": "accept", "content": {"name": 7}}


@pytest.fixture
async def world(server: Server) -> AsyncIterator[World]:
    server.ask("FLUSHALL")
    made = World(server.url, relays.__name__, max_inflight=1)
    HEARD.clear()
    yield made
    await made.close()


async def work_once(world: World) -> None:
    """Wait until there is a task, and run one leg of it."""
    async with asyncio.timeout(20):
        while not await world.work():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.01)


async def play(world: World, script: dict[str, Any], answers: list[dict[str, Any]], **more: Any) -> list[Answer]:
    """Call the tool until all answers are given; return all that came."""
    came = [await world.call("bugs__play", script, can=ALL, **more)]
    for given in answers:
        state = came[-1].result["requestState"]
        came.append(await world.call("bugs__play", script, can=ALL, inputResponses=given, requestState=state, **more))
    return came


async def test_large_arguments_that_were_put_aside_are_decoded_again_in_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[Any] = []
    begin = Turns.begin

    async def noted(self: Turns, group: Any, caller: Any) -> None:
        turns.append(caller)
        await begin(self, group, caller)

    monkeypatch.setattr(Turns, "begin", noted)
    counts = []
    for name in ("other", "aside"):
        turns.clear()
        await play(world, {"rounds": [{"k": FORM_QUESTION}], name: "a" * 100_000}, [])
        counts.append(len(turns))
    assert counts[1] == counts[0] + 1


async def test_answers_that_come_with_a_call_that_becomes_a_task_are_in_the_task(world: World) -> None:
    script = {"rounds": [{"k": FORM_QUESTION}]}
    asked = await world.call("bugs__job", script, can=ALL)
    state = asked.result["requestState"]
    again = await world.call("bugs__job", script, can=WITH_TASKS, inputResponses={"k": ADA}, requestState=state)
    assert again.result["resultType"] == "task"
    await work_once(world)
    assert (await world.get(again.result["taskId"]))["status"] == "completed"


async def test_questions_of_several_rounds_go_out_and_answers_come_back_as_they_were(world: World) -> None:
    several = {"form": FORM_QUESTION, "url": URL_QUESTION, "model": SAMPLING_QUESTION, "roots": ROOTS_QUESTION}
    answers = {"form": ADA, "url": {"action": "decline"}, "model": {"role": "x", "y": 1}, "roots": {"roots": "none"}}
    script = {"rounds": [several, {"form": FORM_QUESTION}, {}]}
    first, second, last = await play(world, script, [answers, {"form": {"action": "cancel"}}])
    assert first.result["inputRequests"] == several
    assert second.result["inputRequests"] == {"form": FORM_QUESTION}
    told = told_by(last.result)
    assert told["answered"] == [
        {key: {"result": answer} for key, answer in answers.items()},
        {"form": {"result": {"action": "cancel"}}},
        {},
    ]
    assert len(HEARD) == 3


async def test_answers_before_their_question_do_not_count_and_misfits_are_asked_again(world: World) -> None:
    script = {"rounds": [{"k": FORM_QUESTION}, {"later": FORM_QUESTION}]}
    early = await world.call("bugs__play", script, can=ALL, inputResponses={"k": ADA, "later": ADA})
    assert list(early.result["inputRequests"]) == ["k"]
    _, second, again, last = await play(
        world, script, [{"k": ADA, "later": ADA}, {"later": MISFIT}, {"later": {**ADA, "x": 2}}]
    )
    assert list(second.result["inputRequests"]) == ["later"]
    asked = again.result["inputRequests"]["later"]["params"]
    assert asked["message"].startswith("Delete 3?\n\nThe last answer was not accepted. ")
    assert {**asked, "message": "Delete 3?"} == FORM_QUESTION["params"]
    assert told_by(last.result)["answered"][1] == {"later": {"result": {**ADA, "x": 2}}}


async def test_a_form_that_never_fits_ends_the_call(world: World) -> None:
    came = await play(world, {"rounds": [{"k": FORM_QUESTION}]}, [{"k": MISFIT}] * 3)
    assert came[-1].result["isError"] is True
    assert "The client's answers to 'k' do not match what was asked." in came[-1].text


async def test_a_result_is_passed_on_whole(world: World) -> None:
    (answer,) = await play(world, {"result": RESULT}, [])
    ours = answer.result["_meta"]["io.modelcontextprotocol/serverInfo"]
    assert ours["name"] != "theirs"
    meta = {"com.example/x": 1, "io.modelcontextprotocol/serverInfo": ours}
    assert answer.result == {"resultType": "complete", **PASSED_ON, "_meta": meta}


async def test_prompts_and_resources_ask_and_are_passed_on_too(world: World) -> None:
    for method, params, passed_on in (
        ("prompts/get", {"name": "bugs__greet", "arguments": {}}, {"unknown": 1}),
        ("resources/read", {"uri": "bugs+docs://page"}, {"ttlMs": 0, "cacheScope": "private"}),
    ):
        target = str(params.get("name") or params["uri"])
        asked = (await world.request(method, params, can=ALL)).result
        assert asked["inputRequests"] == {"k": FORM_QUESTION}
        retry = {"inputResponses": {"k": ADA}, "requestState": asked["requestState"]}
        done = (await world.request(method, {**params, **retry}, can=ALL)).result
        server = relays.SCRIPTS[target]["result"]
        meta = {"a": 1, "io.modelcontextprotocol/serverInfo": done["_meta"]["io.modelcontextprotocol/serverInfo"]}
        assert done == {"resultType": "complete", **server, **passed_on, "_meta": meta}


async def test_errors_of_the_server_are_passed_on(world: World) -> None:
    (answer,) = await play(world, {"error": [-7, "no such bug", [1]]}, [])
    assert answer.message["error"] == {"code": -7, "message": "no such bug", "data": [1]}
    (answer,) = await play(world, {"cannot": "The server is gone"}, [])
    assert (answer.result["isError"], answer.text) == (True, "The server is gone")
    (answer,) = await play(world, {"cannot": "overloaded"}, [])
    assert (answer.status, answer.message["error"]["code"]) == (503, -31001)


async def test_a_call_is_shed_without_a_question_and_goes_on_elsewhere(world: World) -> None:
    script = {"sheds": 1, "result": RESULT}
    shed, done = await play(world, script, [{}])
    assert shed.result["resultType"] == "input_required"
    assert "inputRequests" not in shed.result
    assert done.result["resultType"] == "complete"


async def test_a_call_that_is_too_large_to_be_shed_goes_on_where_it_is(world: World) -> None:
    script = {"sheds": 9, "ballast": 1_000_000, "result": RESULT}
    (done,) = await play(world, script, [])
    assert done.result["content"] == RESULT["content"]
    assert len(HEARD) == 2


async def test_a_relay_may_take_longer_than_a_leg_of_our_own(server: Server, tmp_path: Path) -> None:
    world = World(server.url, relays.__name__, leg_seconds=0.01)
    gate = tmp_path / "gate"
    HEARD.clear()
    calling = asyncio.create_task(world.call("bugs__play", {"waits_for": str(gate), "result": RESULT}))
    await until(lambda: HEARD)
    asyncio.get_running_loop().call_later(0.05, gate.touch)
    assert (await calling).result["content"] == RESULT["content"]
    await world.close()


async def test_what_a_client_cannot_be_asked_is_refused_with_what_it_lacks(world: World) -> None:
    answer = await world.call("bugs__play", {"rounds": [{"k": URL_QUESTION}]}, can={"elicitation": {}})
    assert answer.error == (400, -32021)
    assert answer.message["error"]["data"] == {"requiredCapabilities": {"elicitation": {"url": {}}}}


async def test_a_relay_learns_who_asks_and_what_the_client_wants(world: World) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": ALL,
        "io.modelcontextprotocol/logLevel": "warning",
        "progressToken": 7,
    }
    params = {"name": "bugs__play", "arguments": {}, "_meta": meta}
    await world.request("tools/call", params, headers={"x-github-token": "t"})
    ((target, requester),) = HEARD
    assert target == "bugs__play"
    assert requester.principal is not None
    assert requester.principal.subject == "ada"
    assert requester.headers.get(b"x-github-token") == "t"
    assert (requester.capabilities, requester.log_level, requester.wants_progress) == (ALL, "warning", True)
    assert (requester.in_task, requester.task_id) == (False, "")


async def test_a_waiting_relay_leaves_its_place_to_others(world: World, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    waiting = [
        asyncio.create_task(world.call("bugs__play", {"waits_for": str(gate), "result": RESULT})) for _ in range(4)
    ]
    await until(lambda: len(HEARD) >= len(waiting))
    for _ in world.apps:
        assert (await world.call("bugs__play", {"result": RESULT})).status == 200
    gate.touch()
    assert {(await call).status for call in waiting} == {200}


async def test_a_relay_is_a_task_that_asks_and_is_answered(world: World) -> None:
    script = {"rounds": [{"a": FORM_QUESTION, "b": FORM_QUESTION}, {"a": FORM_QUESTION}]}
    task_id = await world.started("bugs__job", script, can=WITH_TASKS)
    asked = await world.get(task_id)
    assert asked["inputRequests"] == {"a": FORM_QUESTION, "b": FORM_QUESTION}
    refused = await world.update(task_id, {"a": MISFIT, "b": ADA})
    assert refused.error == (400, -32602)
    await world.update(task_id, {"a": {"action": "decline"}, "b": ADA})
    await world.work()
    again = await world.get(task_id)
    assert again["inputRequests"] == {"a~2": FORM_QUESTION}
    await world.update(task_id, {"a": ADA, "a~2": {"action": "perhaps", "x": 1}})
    await world.work()
    done = told_by((await world.get(task_id))["result"])
    assert done["answered"] == [
        {"a": {"result": {"action": "decline"}}, "b": {"result": ADA}},
        {"a": {"result": {"action": "perhaps", "x": 1}}},
    ]
    assert (done["in_task"], done["slot"]["prepared_for"]) == (True, "bugs__job")
    assert {requester.task_id for _, requester in HEARD[1:]} == {task_id}
    assert {requester.in_task for _, requester in HEARD[1:]} == {True}


async def test_a_slot_is_stored_sealed_at_once_and_is_gone_with_the_task(world: World, server: Server) -> None:
    task_id = await world.start("bugs__job", {"rounds": [{"secret-key": FORM_QUESTION}]}, can=WITH_TASKS)
    (claim,) = await world.queue.claim(0, 1, wait_ms=1)
    assert claim.journal["slot"] == {"round": 0, "prepared_for": "bugs__job"}
    await world.leg(claim)
    names: Any = server.ask("KEYS", "*")
    (record,) = [name for name in names if server.ask("TYPE", name) == b"hash" and task_id.encode() in name]
    stored: Any = server.ask("HGETALL", record)
    assert b"prepared_for" not in b"".join(stored.values())
    assert b"slot" in stored
    await world.update(task_id, {"secret-key": ADA})
    await world.work()
    assert (await world.get(task_id))["status"] == "completed"
    left: Any = server.ask("HKEYS", record)
    assert b"slot" not in left


async def test_a_task_whose_worker_is_lost_goes_on_from_the_slot(world: World) -> None:
    """The first worker stores the slot of round 1 and is gone before its questions are stored."""
    task_id = await world.start("bugs__job", {"rounds": [{"k": FORM_QUESTION}]}, can=WITH_TASKS)
    (claim,) = await world.queue.claim(0, 1, wait_ms=1)
    await world.queue.keep(claim, Kept(slot={"round": 1, "answered": [], "first": "worker"}))
    await world.queue.release(claim, {**claim.journal, "slot": {"round": 1, "answered": [], "first": "worker"}})
    await world.work()
    await world.update(task_id, {"k": ADA})
    await world.work()
    assert told_by((await world.get(task_id))["result"])["slot"]["first"] == "worker"


@pytest.mark.parametrize("end", [{"result": RESULT}, {"error": [-7, "no", {"x": 1}]}])
async def test_the_answer_waits_for_a_task_that_ends_in_time(world: World, end: dict[str, Any]) -> None:
    calling = asyncio.create_task(world.call("bugs__later", end, can=WITH_TASKS))
    await work_once(world)
    answer = await calling
    if "error" in end:
        assert answer.message["error"] == {"code": -7, "message": "no", "data": {"x": 1}}
    else:
        assert {name: answer.result[name] for name in PASSED_ON} == PASSED_ON
        assert (answer.result["resultType"], answer.result["_meta"]["com.example/x"]) == ("complete", 1)


async def test_the_answer_is_the_task_where_it_asks_or_takes_longer(world: World) -> None:
    calling = asyncio.create_task(world.call("bugs__later", {"rounds": [{"k": FORM_QUESTION}]}, can=WITH_TASKS))
    await work_once(world)
    asking = (await calling).result
    assert asking["resultType"] == "task"
    assert (await world.get(asking["taskId"]))["status"] == "input_required"
    slow = (await world.call("bugs__soon", {"result": RESULT}, can=WITH_TASKS)).result
    assert slow["resultType"] == "task"
    await world.work()
    assert (await world.get(slow["taskId"]))["result"]["content"] == RESULT["content"]


async def test_a_client_without_tasks_gets_the_result_itself(world: World) -> None:
    answer = await world.call("bugs__later", {}, can=ALL)
    assert told_by(answer.result)["in_task"] is False


async def test_logs_and_progress_are_passed_on_in_every_leg(world: World) -> None:
    script = {"logs": 2, "progress": [1, 1, 2], "rounds": [{"k": FORM_QUESTION}]}
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": ALL,
        "io.modelcontextprotocol/logLevel": "info",
        "progressToken": 7,
    }
    params: dict[str, Any] = {"name": "bugs__play", "arguments": script, "_meta": meta}
    first = _messages(await world.request("tools/call", params))
    assert [(note["method"], note["params"].get("progress")) for note in first[:-1]] == [
        ("notifications/message", None),
        ("notifications/message", None),
        ("notifications/progress", 1),
        ("notifications/progress", 2),
    ]
    assert {note["params"]["level"] for note in first[:2]} == {"info"}
    state = first[-1]["result"]["requestState"]
    again = {**params, "inputResponses": {"k": ADA}, "requestState": state}
    second = _messages(await world.request("tools/call", again))
    assert [note["params"]["data"] for note in second[:-1]] == [{"n": 0, "leg": 2}, {"n": 1, "leg": 2}]


def _messages(answer: Answer) -> list[dict[str, Any]]:
    """Return the messages of an event stream."""
    lines = answer.body.decode().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
