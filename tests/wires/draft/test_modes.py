"""The response modes of SEP-1905: which one is chosen, and what a call is answered with in it.

Scenarios and lines of the checklist are named as the proposal names them.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pytest

from gateway.settings.model import Settings
from tests.proposals.examples import assert_contains, example
from tests.storage.servers import Server
from tests.wires.draft.client import DraftClient
from tests.wires.draft.conftest import ClientOf
from tests.wires.draft.deployment import AUDIENCE, Deployment
from tests.wires.draft.first_form import refusal, without_streams
from tests.wires.draft.messages import (
    CAPABILITIES,
    MODES,
    RELATED_TASK,
    accept,
    is_response,
    related_task_id,
    retry_params,
)
from tests.wires.draft.scripted_server import content
from tests.wires.draft.streamed import EXAMPLE_ID, wishing, with_links
from tests.wires.draft.streaming import FALLBACK_MODE
from tests.wires.draft.under_way import idle, joined_by, under_way

LONG_MS: Final = "10000"
"""Longer than any tool takes that does not wait for its gate."""


@pytest.fixture(scope="module")
def patient(redis: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Two replicas and a worker that wait long for a result that is wanted at once; apart from all other tasks."""
    settings = {
        "GATEWAY_IMMEDIATE_WAIT_MS": LONG_MS,
        "GATEWAY_AUDIENCE": "patient",
        "GATEWAY_JWT_AUDIENCE": AUDIENCE,
    }
    with Deployment(tmp_path_factory.mktemp("patient"), redis, settings) as patient:
        yield patient


def mode_of(result: Mapping[str, Any]) -> str:
    """Tell which mode the first response to a call belongs to."""
    kinds = {"content": "immediate", "partial-content": "streaming", "task": "task"}
    (mode,) = (kinds[name] for name in kinds if name in result)
    return mode


async def first_response(client: DraftClient, params: Mapping[str, Any]) -> dict[str, Any]:
    """Send a call, and return its first response; the rest of the stream is not read."""
    async with under_way(client, "tools/call", params) as request:
        message = await request.until(is_response)
    assert message["id"] == request.request_id
    result: dict[str, Any] = message["result"]
    return result


# The scenarios


async def test_immediate_mode_complete_results(patient: Deployment, name: str) -> None:
    async with patient.client(name) as user:
        streamed = await user.stream_tool("recite", {"gate": name, "count": 3}, modes=["immediate"])
    assert (streamed.mode, streamed.fallback, streamed.ending) == ("immediate", False, "completed")
    assert streamed.result is not None
    assert streamed.result["content"] == content(1, 2, 3)
    assert streamed.result["isError"] is False


@pytest.mark.parametrize("modes", [["task"], [], ...])
async def test_task_mode_standard_flow(user: DraftClient, fleet: Deployment, name: str, modes: Any) -> None:
    created = await user.request("tools/call", wishing(modes, "recite", gate=name, count=3, stops=[2]))
    task_id = created["task"]["taskId"]
    assert created["task"]["status"] == "working"
    assert set(created) == {"task"}
    assert (await user.get_task(task_id))["status"] == "working"
    fleet.open(f"{name}-2")
    finished = await user.finish_task(task_id)
    assert finished.status == "completed"
    assert finished.result is not None
    assert finished.result["content"] == content(1, 2, 3)
    assert "partial-content" not in finished.result
    assert set(user.urls_of()) == set(fleet.urls)


async def test_immediate_mode_fallback(fleet: Deployment, client_of: ClientOf, user: DraftClient, name: str) -> None:
    """To streaming if there is a segment in time and both sides can stream, to a task otherwise."""
    with joined_by(fleet, "unhurried", GATEWAY_IMMEDIATE_WAIT_MS="2000") as unhurried:
        there = client_of(name, urls=[unhurried.url])
        cases = {
            ("streaming", "some"): (there, MODES, [2]),
            ("task", "none"): (there, MODES, [1]),
            ("task", "unwanted"): (there, ["immediate", "task"], [2]),
            ("task", "alone"): (there, ["immediate"], [2]),
            ("task", "json"): (without_streams(client_of(name, urls=[unhurried.url])), MODES, [2]),
        }
        for (mode, case), (client, modes, stops) in cases.items():
            gate = f"{name}-{case}"
            result = await first_response(client, wishing(modes, "recite", gate=gate, count=2, stops=stops))
            assert (case, mode_of(result)) == (case, mode)
            told = result.get("_meta", {}).get(FALLBACK_MODE)
            assert (case, told) == (case, None if "task" in modes else "task")
            fleet.open(f"{gate}-{stops[0]}")
            task_id = related_task_id(result) or result["task"]["taskId"]
            finished = await user.finish_task(task_id)
            assert finished.result is not None
            assert finished.result["content"] == content(1, 2)
            assert len(fleet.lines(gate)) == 1


async def test_new_client_and_old_server(user: DraftClient, client_of: ClientOf, name: str) -> None:
    """Modes that this server does not know, and streaming on a wire that does not know it."""
    streamed = await user.stream_tool("recite", {"gate": name, "count": 2}, modes=["batches", "telepathy"])
    assert (streamed.mode, streamed.fallback) == ("task", True)
    assert streamed.result is not None
    assert streamed.result["content"] == content(1, 2)

    older = client_of(name)
    older.transport.headers.pop("MCP-Protocol-Version")
    await older.initialize("2025-11-25")
    older.transport.headers["MCP-Protocol-Version"] = "2025-11-25"
    created = await older.request("tools/call", wishing(list(MODES), "recite", gate=name, count=2))
    assert set(created) == {"task"}
    assert (await older.finish_task(created["task"]["taskId"])).status == "completed"


async def test_old_client_and_new_server(fleet: Deployment, client_of: ClientOf, name: str) -> None:
    """A client that asks for no mode gets the same, whatever its session declares: a task, and nothing new."""
    declared: list[Mapping[str, Any] | None] = [None, {}, CAPABILITIES]
    answers = []
    with idle(fleet.worker("w1")):
        for capabilities, modes in itertools.product(declared, (..., [])):
            client = client_of(name, **({} if capabilities is None else {"capabilities": capabilities}))
            if capabilities is not None:
                await client.initialize()
            reply = await client.send("tools/call", wishing(modes, "say", call=name))
            assert reply.headers["content-type"] == "application/json"
            assert reply.notices == []
            task = reply.result["task"]
            live = {member: task.pop(member) for member in ("taskId", "createdAt", "lastUpdatedAt")}
            assert live["createdAt"] == live["lastUpdatedAt"]
            answers.append(reply.result)
    assert answers[0]["task"].keys() == {"status", "statusMessage", "ttl", "pollInterval"}
    assert all(answer == answers[0] for answer in answers)


# The server's checklist


async def test_checklist_capability_negotiation(client_of: ClientOf, name: str) -> None:
    shown = example("modes_capabilities")
    client = client_of(name)
    assert_contains(await client.initialize(), shown["what a server declares"].object, live={})
    assert set(client.server["capabilities"]["tasks"]["responses"]["modes"]) == set(MODES)
    assert_contains(client.sent("initialize")[0]["params"], shown["what a client declares"].object, live={})

    nothing: list[dict[str, Any]] = [{}, {"tasks": {}}, {"tasks": {"responses": {"modes": []}}}]
    for capabilities in nothing:
        modest = client_of(name, capabilities=capabilities)
        await modest.initialize()
        result = await first_response(modest, wishing(list(MODES), "say", call=name))
        assert mode_of(result) == "task"
    assert mode_of(await first_response(client_of(name), wishing(["streaming"], "say", call=name))) == "streaming"


async def test_checklist_mode_selection(patient: Deployment, name: str) -> None:
    """Every list of modes, in every order, with every set of modes that a client declares, and without a session."""
    lists: list[Sequence[str]] = [modes for size in range(4) for modes in itertools.permutations(MODES, size)]
    for declared in (None, *({*some} for size in range(4) for some in itertools.combinations(MODES, size))):
        capabilities = {"tasks": {"responses": {"modes": sorted(declared or ())}}}
        async with patient.client(name, capabilities=capabilities) as client:
            if declared is not None:
                await client.initialize()
            for modes in lists:
                usable = [mode for mode in modes if declared is None or mode in declared | {"task"}]
                wanted = next((mode for mode in ("immediate", "streaming", "task") if mode in usable), "task")
                result = await first_response(client, wishing(list(modes), "say", call=name))
                assert (declared, modes, mode_of(result)) == (declared, modes, wanted)
                told = {FALLBACK_MODE: "task"} if modes and not usable else None
                assert (result.get("_meta") if wanted == "task" else None) == told


async def test_checklist_immediate_mode(patient: Deployment, user: DraftClient, fleet: Deployment, name: str) -> None:
    result = await user.request("tools/call", wishing(["immediate"], "recite_here", gate=name, count=2))
    assert result["content"] == content(1, 2)
    assert RELATED_TASK not in result.get("_meta", {})
    assert await user.all_tasks() == []
    assert fleet.lines(name)[0] in {"r1", "r2"}

    async with patient.client(name) as other:
        step = example("modes_immediate")["the complete result at once"]
        assert step.request is not None
        assert step.answer is not None
        request = {**step.request, "params": {**step.request["params"], "name": "tour"}}
        reply = await other.send(request["method"], request["params"])
        live = {EXAMPLE_ID: related_task_id(reply.result) or ""}
        assert_contains(reply.result, with_links(step.answer["result"]), live=live)
        assert reply.result["content"] == with_links(step.answer["result"]["content"])
        assert not {"task", "partial-content"} & set(reply.result)
        assert (await other.get_task(live[EXAMPLE_ID]))["status"] == "completed"
        again = await other.task_result(live[EXAMPLE_ID])
        assert again.result == reply.result


async def test_checklist_task_mode(patient: Deployment, user: DraftClient, name: str) -> None:
    """However quick the tool is: also where the result could be waited for."""
    step = example("modes_task")["a task"]
    assert step.answer is not None
    async with patient.client(name) as other:
        for client in (user, other):
            reply = await client.send("tools/call", wishing(["task"], "tour", city="New York"))
            assert_contains(reply.result, step.answer["result"], live={EXAMPLE_ID: reply.result["task"]["taskId"]})
            assert set(reply.result) == {"task"}
            finished = await client.finish_task(reply.result["task"]["taskId"])
            assert finished.result is not None
            assert len(finished.result["content"]) == 3
    refused = await refusal_code(user, wishing(["task"], "recite_here", gate=name, count=1))
    assert refused == -32601


async def refusal_code(client: DraftClient, params: Mapping[str, Any]) -> int:
    """Return the code of the error that a call ends in."""
    async with under_way(client, "tools/call", params) as request:
        code: int = (await request.response())["error"]["code"]
    return code


# What else there is to modes


async def test_immediate_mode_never_runs_a_tool_twice(patient: Deployment, name: str) -> None:
    """In time, not in time, with the client gone, with the replica killed while it waits."""

    def gate(way: str) -> str:
        return f"{name}-{way}"

    async with patient.client(name) as user:
        await user.stream_tool("recite", {"gate": gate("in time"), "count": 1}, modes=["immediate"])

        with joined_by(patient, "hasty", GATEWAY_IMMEDIATE_WAIT_MS="0") as hasty:
            async with patient.client(name, urls=[hasty.url]) as hurried:
                arguments = {"gate": gate("late"), "count": 1}
                assert (await hurried.stream_tool("recite", arguments, modes=["immediate"])).mode == "task"

        held = wishing(["immediate"], "recite", gate=gate("gone"), count=1, stops=[1])
        async with under_way(user, "tools/call", held):
            await asyncio.to_thread(patient.wait_for_lines, gate("gone"))
        patient.open(f"{gate('gone')}-1")

        with joined_by(patient, "doomed") as doomed:
            async with patient.client(name, urls=[doomed.url]) as client:
                held = wishing(["immediate"], "recite", gate=gate("killed"), count=1, stops=[1])
                async with under_way(client, "tools/call", held):
                    await asyncio.to_thread(patient.wait_for_lines, gate("killed"))
                    doomed.kill()
        patient.open(f"{gate('killed')}-1")

        tasks = await user.all_tasks()
        assert len(tasks) == 4
        for task in tasks:
            finished = await user.finish_task(task["taskId"])
            assert finished.result is not None
            assert finished.result["content"] == content(1)
    for way in ("in time", "late", "gone", "killed"):
        assert len(patient.lines(gate(way))) == 1


async def test_unknown_modes_are_ignored_and_a_fallback_is_told(user: DraftClient, name: str) -> None:
    for modes in (["telepathy", "streaming"], ["streaming", "", "Immediate"], ["streaming", "streaming"]):
        result = await first_response(user, wishing(modes, "say", call=name))
        assert mode_of(result) == "streaming"
    for modes in (["telepathy"], [""], ["Streaming", "TASK"]):
        result = await first_response(user, wishing(modes, "say", call=name))
        assert mode_of(result) == "task"
        assert result["_meta"] == {"io.modelcontextprotocol/fallback-mode": "task"}


@pytest.mark.parametrize("modes", ["task", {"task": True}, 1, True, [1], ["task", None], [["task"]]])
async def test_response_modes_that_are_no_list_are_refused(
    fleet: Deployment, user: DraftClient, name: str, modes: Any
) -> None:
    error = await refusal(user.request("tools/call", wishing(modes, "say", call=name)))
    assert "params.task.responseModes" in error.message
    assert await user.all_tasks() == []
    assert fleet.lines(name) == []


@pytest.mark.parametrize("modes", [["task"], [], ..., ["telepathy"]])
async def test_a_leg_that_ends_is_a_task_that_has_ended_where_a_task_is_asked_for(
    user: DraftClient, fleet: Deployment, name: str, modes: Any
) -> None:
    created = await user.request("tools/call", wishing(modes, "answer_at_once", call=name, ttl=60_000))
    assert (set(created) - {"_meta"}, created["task"]["status"]) == ({"task"}, "completed")
    task_id = created["task"]["taskId"]
    task = await user.get_task(task_id)
    assert (task["status"], task["ttl"]) == ("completed", 60_000)
    assert [one["taskId"] for one in await user.all_tasks()] == [task_id]
    result = (await user.task_result(task_id)).result
    assert [block["text"] for block in result["content"]] == ["one", "two"]
    assert related_task_id(result) == task_id
    rest = (await user.task_result(task_id, last_seq_nr=1)).result
    assert [block["text"] for block in rest["partial-content"]] == ["two"]
    assert rest["isComplete"] is True
    assert (await refusal(user.cancel_task(task_id))).code == -32602
    assert len(fleet.lines(name)) == 1


async def test_arguments_that_no_task_could_keep_do_not_cost_a_leg_that_ended_its_result(
    user: DraftClient, fleet: Deployment, name: str
) -> None:
    wanted = wishing(
        ["task"],
        "answer_at_once",
        call=name,
        wrong="x" * (Settings.model_fields["task_max_argument_bytes"].default + 1),
    )
    created = await user.request("tools/call", wanted)
    assert created["task"]["status"] == "failed"
    result = (await user.task_result(created["task"]["taskId"])).result
    assert [block["text"] for block in result["content"]] == ["one", "There is no such city"]
    assert len(fleet.lines(name)) == 1


async def test_only_questions_come_before_a_task(user: DraftClient) -> None:
    wanted = wishing(["task"], "get_weather", location="Rome")
    asked = await user.request("tools/call", wanted)
    assert set(asked) == {"inputRequests", "requestState"}
    retry = wanted | await retry_params(asked, {"github_login": accept(name="ada")})
    first, again = await user.request("tools/call", retry), await user.request("tools/call", retry)
    assert first["task"]["status"] == "completed"
    assert again["task"]["taskId"] == first["task"]["taskId"]
    result = (await user.task_result(first["task"]["taskId"])).result
    assert "looked up for ada" in result["content"][0]["text"]


async def test_a_leg_that_fails_is_a_task_that_has_failed(user: DraftClient, name: str) -> None:
    wanted = wishing(["task"], "answer_at_once", call=name, wrong="result")
    created = await user.request("tools/call", wanted)
    assert created["task"]["status"] == "failed"
    assert created["task"]["statusMessage"] == "There is no such city"
    result = (await user.task_result(created["task"]["taskId"])).result
    assert ([block["text"] for block in result["content"]], result["isError"]) == (
        ["one", "There is no such city"],
        True,
    )
    assert await refusal_code(user, wishing(["task"], "answer_at_once", call=name, wrong="protocol error")) == -32000


@pytest.mark.parametrize("modes", [["streaming"], ["task", "streaming"]])
async def test_a_leg_that_ends_is_a_stream_of_its_task_where_a_stream_is_asked_for(
    user: DraftClient, client_of: ClientOf, name: str, modes: list[str]
) -> None:
    streamed = await user.stream_tool("answer_at_once", {"call": name}, modes=modes)
    assert (streamed.mode, streamed.fallback, streamed.ending) == ("streaming", False, "completed")
    assert streamed.tracker is not None
    assert [block["text"] for block in streamed.tracker.merged()] == ["one", "two"]
    assert (await user.get_task(streamed.task_id))["status"] == "completed"

    quiet = without_streams(client_of(name))
    created = await quiet.request("tools/call", wishing(modes, "answer_at_once", call=name))
    assert created["task"]["status"] == "completed"
    assert created.get("_meta") == (None if "task" in modes else {FALLBACK_MODE: "task"})


async def test_a_leg_that_ends_is_answered_as_it_is_where_the_store_has_no_place_for_its_task(
    fleet: Deployment, client_of: ClientOf, name: str
) -> None:
    with joined_by(fleet, "full", GATEWAY_TASKS_PER_PRINCIPAL="1") as full:
        user = client_of(name, urls=[full.url])
        wanted = wishing(["task"], "answer_at_once", call=name)
        assert mode_of(await user.request("tools/call", wanted)) == "task"
        result = await user.request("tools/call", wanted)
    assert mode_of(result) == "immediate"
    assert result["_meta"] == {FALLBACK_MODE: "immediate"}
    assert len(fleet.lines(name)) == 2


async def test_every_fallback_to_a_mode_that_is_not_listed_is_told(
    fleet: Deployment, client_of: ClientOf, name: str
) -> None:
    quiet = without_streams(client_of(name))
    gates = itertools.count()  # a gate that an earlier call opened would let the tool end at once
    with joined_by(fleet, "never-patient", GATEWAY_IMMEDIATE_WAIT_MS="0") as hasty:
        hurried = client_of(name, urls=[hasty.url])
        for client, modes in (
            (hurried, ["immediate"]),
            (hurried, ["immediate", "streaming"]),
            (quiet, ["streaming"]),
            (quiet, ["streaming", "telepathy"]),
        ):
            for listed, told in ((modes, {FALLBACK_MODE: "task"}), ([*modes, "task"], None)):
                gate = f"{name}-{next(gates)}"
                created = await first_response(client, wishing(listed, "recite", gate=gate, count=1, stops=[1]))
                assert (listed, mode_of(created), created.get("_meta")) == (listed, "task", told)
                fleet.open(f"{gate}-1")


async def test_the_first_segment_of_a_tool_that_streams_is_waited_for(
    fleet: Deployment, client_of: ClientOf, name: str
) -> None:
    """However short a result may take that is wanted at once. A client that takes no stream gets a task."""
    with joined_by(fleet, "in-a-hurry", GATEWAY_IMMEDIATE_WAIT_MS="0") as hasty:
        user = client_of(name, urls=[hasty.url])
        for count, mode in ((2, "streaming"), (0, "immediate")):
            gate = f"{name}-{count}"
            async with under_way(
                user, "tools/call", wishing(list(MODES), "broadcast", gate=gate, count=count)
            ) as request:
                await asyncio.to_thread(fleet.wait_for_lines, gate)
                assert not any(is_response(message) for message in request.messages)
                fleet.open(f"{gate}-1")
                first = await request.until(is_response)
                assert mode_of(first["result"]) == mode
                fleet.open(f"{gate}-2")
                *_, last = await request.end()
            task_id = related_task_id(last["result"]) or ""
            assert (await user.get_task(task_id))["status"] == "completed"
            if not count:
                assert last["result"] == {**(await user.task_result(task_id)).result, "isComplete": True}
            assert len(fleet.lines(gate)) == 1
        gate = f"{name}-task"
        created = await first_response(user, wishing(["immediate", "task"], "broadcast", gate=gate, count=1))
        assert mode_of(created) == "task"
        fleet.open(f"{gate}-1")
