"""The proposal "Task Progress", over two replicas and workers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from tests.proposals.examples import assert_contains, example
from tests.wires.draft.client import DraftClient
from tests.wires.draft.deployment import Deployment
from tests.wires.draft.first_form import call, poll
from tests.wires.draft.messages import FIRST_FORM_RELATED_TASK, call_params, is_response
from tests.wires.draft.transport import Message
from tests.wires.draft.under_way import UnderWay, under_way

pytestmark = pytest.mark.slow

EXAMPLE_ID: Final = "bdc2fd8b-442e-40ff-abdb-f33986513750"
STATUS: Final = "notifications/tasks/status"
LEASE: Final = {"GATEWAY_TASK_LEASE_SECONDS": "1"}


def steps(*told: tuple[Any, ...]) -> list[list[Any]]:
    """Return the progress of a tool, step by step: done, total, and a message."""
    return [[*one, *[None] * (3 - len(one))] for one in told]


async def climbing(user: DraftClient, gate: str, told: Sequence[Sequence[Any]]) -> str:
    """Create a task that reports progress as gates open, and return its id."""
    task = await user.create_task("climb", {"gate": gate, "told": told})
    return str(task["taskId"])


async def progress_at(user: DraftClient, task_id: str, done: float) -> dict[str, Any]:
    """Wait until a task has come so far, and return it."""
    task = await user.poll(task_id, lambda task: task.get("progress", -1) >= done)
    assert task["status"] == "working"
    return task


def totals(told: Sequence[Mapping[str, Any]]) -> list[tuple[Any, Any]]:
    """Return the progress of a task in each report, without repetitions."""
    return [pair for pair, _ in itertools.groupby((one.get("progress"), one.get("progressTotal")) for one in told)]


def statuses(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the tasks of the status notifications among some messages."""
    return [message["params"] for message in messages if message.get("method") == STATUS]


def only_rises(told: Sequence[Mapping[str, Any]]) -> None:
    """Check that neither progress nor total ever falls, and that no total is below its progress."""
    done = [one["progress"] for one in told if "progress" in one]
    total = [one["progressTotal"] for one in told if "progressTotal" in one]
    assert done == sorted(done)
    assert total == sorted(total)
    assert all(one["progressTotal"] >= one["progress"] for one in told if "progressTotal" in one)


async def test_a_task_tells_how_far_it_is_in_every_shape(user: DraftClient, fleet: Deployment, gate: str) -> None:
    written = example("task_progress")["a task with its progress"].object
    assert written is not None
    message = "Reticulating splines..."
    call_of = call_params("climb_first", {"gate": gate}, {})
    created = (await user.request("tools/call", call_of))["task"]
    task_id = await climbing(user, f"{gate}-ttl", steps((6, 7, message)))
    fleet.open(f"{gate}-ttl-0")
    async with under_way(user, "tasks/result", {"taskId": task_id}) as waiting:
        notified = (await waiting.until(lambda one: one.get("params", {}).get("progress") == 6))["params"]
        await progress_at(user, task_id, 6)
        (listed,) = [task for task in await user.all_tasks() if task["taskId"] == task_id]
        got = await user.get_task(task_id)
        for told in (notified, listed, got):
            assert_contains(told, written, live={EXAMPLE_ID: task_id})
            assert (told["progress"], told["progressTotal"], told["statusMessage"]) == (6, 7, message)
        cancelled = await user.cancel_task(task_id)
        assert_contains(cancelled, {**written, "status": "cancelled"}, live={EXAMPLE_ID: task_id})
    for told in (created, await user.get_task(created["taskId"]), await user.cancel_task(created["taskId"])):
        assert (told["progress"], told["progressTotal"]) == (1, 3)

    async with call(user, "climb", EXAMPLE_ID, gate=f"{gate}-first", told=steps((6, 7, message))) as request:
        await request.created()
        fleet.open(f"{gate}-first-0")
        notified = (await request.until(lambda one: one.get("params", {}).get("progress") == 6))["params"]
        got = await user.get_task(EXAMPLE_ID)
        (listed,) = [task for task in await user.all_tasks() if task["taskId"] == EXAMPLE_ID]
        cancelled = await user.cancel_task(EXAMPLE_ID)
        for told in (notified, listed, got, cancelled):
            assert (told["taskId"], told["progress"], told["progressTotal"]) == (EXAMPLE_ID, 6, 7)
        assert [told["statusMessage"] for told in (notified, listed, got)] == [message] * 3


async def test_progress_only_rises(user: DraftClient, fleet: Deployment, gate: str) -> None:
    """The worker is lost after the second step. The next one starts over, and does not repeat any report."""
    told = steps((1, 9), (5, 9), (3, 9), (6, 9))
    with fleet.worked_by("w2", **LEASE):
        task_id = await climbing(user, gate, told)
        async with under_way(user, "tasks/result", {"taskId": task_id}) as request:
            seen = []
            for number, done in enumerate((1, 5)):
                fleet.open(f"{gate}-{number}")
                seen.append(await progress_at(user, task_id, done))
            fleet.worker("w2").kill()
            fleet.worker("w2").restart()
            fleet.wait_for_lines(f"started-{gate}", 2)
            seen.append(await progress_at(user, task_id, 5))
            for number, done in ((2, 5), (3, 6)):
                fleet.open(f"{gate}-{number}")
                fleet.wait_for_lines(f"told-{gate}-{number}")
                seen.append(await user.get_task(task_id))
                assert seen[-1]["progress"] == done
            fleet.open(gate)
            await request.response()
    seen.append(await user.get_task(task_id))
    only_rises(seen)
    only_rises(statuses(request.messages))
    assert [done for done, _ in totals(seen)] == [1, 5, 6]
    assert {done for done, _ in totals(statuses(request.messages))} <= {None, 1, 5, 6}


async def test_a_total_only_rises_and_is_never_below_the_progress(
    user: DraftClient, fleet: Deployment, gate: str
) -> None:
    told = steps((1, 7), (2, 5), (3, 9), (10, 9), (11, 12), (13,), (14, 20))
    shown = [(1, 7), (2, 7), (3, 9), (10, None), (11, 12), (13, None), (14, 20)]
    task_id = await climbing(user, gate, told)
    seen = []
    async with under_way(user, "tasks/result", {"taskId": task_id}) as request:
        for number, (done, _) in enumerate(shown):
            fleet.open(f"{gate}-{number}")
            seen.append(await progress_at(user, task_id, done))
        fleet.open(gate)
        await request.response()
    assert totals(seen) == shown
    only_rises(statuses(request.messages))
    assert set(totals(statuses(request.messages))) <= {(None, None), *shown}


async def test_without_a_total_none_is_told(user: DraftClient, fleet: Deployment, name: str, gate: str) -> None:
    task_id = await climbing(user, gate, steps((2,)))
    before = await poll(user, task_id, "working")
    fleet.open(f"{gate}-0")
    after = await progress_at(user, task_id, 2)
    fleet.open(gate)
    silent = await user.create_task("say", {"call": name})
    finished = await poll(user, silent["taskId"], "completed")
    for told in (before, silent, finished):
        assert not {"progress", "progressTotal"} & set(told)
    assert after["progress"] == 2
    assert "progressTotal" not in after


async def test_fractions_are_told(user: DraftClient, fleet: Deployment, gate: str) -> None:
    task_id = await climbing(user, gate, steps((0.5, 2.5), (0.75, 2.5)))
    fleet.open(f"{gate}-0")
    told = await progress_at(user, task_id, 0.5)
    assert (told["progress"], told["progressTotal"]) == (0.5, 2.5)
    fleet.open(f"{gate}-1")
    assert (await progress_at(user, task_id, 0.75))["progress"] == 0.75
    fleet.open(gate)


async def result_stream(user: DraftClient, fleet: Deployment, gate: str) -> UnderWay:
    task_id = await climbing(user, gate, steps((1, 2, "one")))
    return UnderWay(user, "tasks/result", {"taskId": task_id})


async def streaming_answer(user: DraftClient, fleet: Deployment, gate: str) -> UnderWay:
    arguments = {"gate": gate, "told": steps((1, 2, "one"))}
    return UnderWay(user, "tools/call", call_params("climb", arguments, {"responseModes": ["streaming"]}))


async def first_form_request(user: DraftClient, fleet: Deployment, gate: str) -> UnderWay:
    user.speak_first_form(EXAMPLE_ID)
    meta = {"modelcontextprotocol.io/task": {"taskId": EXAMPLE_ID}}
    return UnderWay(user, "tools/call", call_params("climb", {"gate": gate, "told": steps((1, 2, "one"))}, meta=meta))


STREAMS: Final = {make.__name__: make for make in (result_stream, streaming_answer, first_form_request)}


@pytest.mark.parametrize("kind", STREAMS)
async def test_every_change_of_a_task_is_told_on_its_streams(
    user: DraftClient, fleet: Deployment, gate: str, kind: str
) -> None:
    """Its status, what it says of itself, and how far it is; each notification has the whole task."""
    stream = await STREAMS[kind](user, fleet, gate)
    stream.start()
    try:
        working = await stream.until(lambda one: one.get("params", {}).get("status") == "working")
        fleet.open(f"{gate}-0")
        told = await stream.until(lambda one: one.get("params", {}).get("progress") == 1)
        assert (told["params"]["statusMessage"], told["params"]["progressTotal"]) == ("one", 2)
        task_id = told["params"]["taskId"]
        for one in (working, told):
            got = await user.get_task(task_id)
            assert set(one["params"]) >= set(got) - {"progress", "progressTotal"}
        fleet.open(gate)
        await stream.end()
    finally:
        await stream.stop()
    changes = [
        {**told, "lastUpdatedAt": "", "pollInterval": 0, "pollFrequency": 0} for told in statuses(stream.messages)
    ]
    assert all(before != after for before, after in itertools.pairwise(changes))


@pytest.mark.parametrize("kind", STREAMS)
async def test_nothing_is_told_after_the_final_response(
    user: DraftClient, fleet: Deployment, gate: str, kind: str
) -> None:
    stream = await STREAMS[kind](user, fleet, gate)
    fleet.open(f"{gate}-0")
    stream.start()
    try:
        await stream.until(lambda one: one.get("params", {}).get("progress") == 1)
        fleet.open(gate)
        messages = await stream.end()
    finally:
        await stream.stop()
    assert is_response(messages[-1])
    assert [told["status"] for told in statuses(messages)].count("completed") <= 1
    assert (kind == "streaming_answer") or [is_response(one) for one in messages].count(True) == 1


async def test_progress_notifications_end_with_the_response(user: DraftClient, fleet: Deployment, gate: str) -> None:
    params = call_params("climb_first", {"gate": gate}, {}, {"progressToken": "token"})
    reply = await user.send("tools/call", params)
    told = [notice["params"] for notice in reply.notices if notice["method"] == "notifications/progress"]
    assert told == [{"progressToken": "token", "progress": 1, "total": 3, "message": "as a call"}]
    task_id = reply.result["task"]["taskId"]
    async with under_way(user, "tasks/result", {"taskId": task_id}) as request:
        fleet.open(gate)
        await request.response()
    task = await user.get_task(task_id)
    assert (task["status"], task["progress"], task["progressTotal"]) == ("completed", 2, 3)
    methods = [message.get("method") for message in user.received()]
    assert methods.count("notifications/progress") == 1


async def test_a_request_that_stays_open_reports_progress_under_its_token(
    user: DraftClient, fleet: Deployment, gate: str, name: str
) -> None:
    meta = {"modelcontextprotocol.io/task": {"taskId": name}, "progressToken": "of the call"}
    told = steps((1, 2, "one"), (2, 2, "two"))
    async with under_way(user, "tools/call", call_params("climb", {"gate": gate, "told": told}, meta=meta)) as request:
        await request.created()
        fleet.open(f"{gate}-0")
        first = await request.hear("notifications/progress")
        fleet.open(f"{gate}-1")
        fleet.open(gate)
        await request.response()
    progress = {"progressToken": "of the call", "progress": 1, "total": 2, "message": "one"}
    assert first["params"] == {**progress, "_meta": {FIRST_FORM_RELATED_TASK: {"taskId": name}}}
    heard = [one["params"]["progress"] for one in request.messages if one.get("method") == "notifications/progress"]
    assert heard == sorted(set(heard))
