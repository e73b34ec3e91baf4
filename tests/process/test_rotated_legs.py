"""Seal keys that are replaced while a leg of each kind runs: later seals use the new key, and all can be opened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from gateway import Context, tool
from gateway.wires.handshake import tasks as handshake_tasks
from loadtest.cluster import new_key
from tests.integration.raw import Answer, accept
from tests.process.rotation import (
    Rotating,
    Session,
    holding,
    key_id,
    sealed_message_with,
    sealed_with,
    sealing_with,
    session_request,
)
from tests.storage.deployments import eventually
from tests.storage.servers import Server

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("only_new_objects")]

OLD, NEW = new_key(), new_key()
GATES: list[Gate] = []


class Gate:
    """A gate where legs stop: a leg that arrives sets `runs`, and continues when the gate is `open`."""

    def __init__(self) -> None:
        self.runs = asyncio.Event()
        self.open = asyncio.Event()


async def pause() -> None:
    for gate in GATES:
        gate.runs.set()
        await gate.open.wait()


class Who(BaseModel):
    name: str


@tool
async def greet(ctx: Context) -> str:
    """Ask twice."""
    await pause()
    who = await ctx.elicit("who", "Who are you?", Who)
    await pause()
    again = await ctx.elicit("again", "Who?", Who)
    return f"{who.name} {again.name}"


@tool
async def count(ctx: Context) -> str:
    """Count to three, and stop at each number."""
    for number in range(ctx.resumed(0), 3):
        await pause()
        await ctx.checkpoint(number + 1)
    return "three"


@tool(task="required", start="call")
async def detach(ctx: Context) -> str:
    """Become a task."""
    await pause()
    await ctx.detach()
    return "done"


@tool(task="required")
async def build(ctx: Context) -> str:
    """Store something of each kind."""
    await ctx.step("before", str, "x")
    await pause()
    await ctx.step("after", str, "y")
    await ctx.emit("a segment")
    who = await ctx.elicit("who", "Who are you?", Who)
    return f"for {who.name}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server("redis", tmp_path_factory.mktemp("redis"))
    started.start()
    yield started
    started.end()


@pytest.fixture
async def site(tmp_path: Path, server: Server) -> AsyncIterator[Rotating]:
    GATES.clear()
    server.ask("FLUSHALL")
    made = Rotating(tmp_path, server, __name__, OLD)
    async with made.running():
        assert sealing_with(OLD), "what is looked for can be found"
        yield made
        await made.rotate(NEW)
        await eventually(forgotten)  # a thread that ends may hold an object for a moment longer
        assert holding(NEW) != []


async def forgotten() -> bool:
    return not holding(OLD)


async def in_flight(site: Rotating, method: str, **params: Any) -> asyncio.Task[Answer]:
    """Send a request, and return when the tool that it runs has stopped at a gate."""
    gate = stop()
    sent = asyncio.create_task(site.ask(method, **params))
    await gate.runs.wait()
    return sent


def stop() -> Gate:
    """Make later legs stop at a gate."""
    GATES.append(Gate())
    return GATES[-1]


def let_go() -> None:
    """Let all stopped legs continue."""
    while GATES:
        GATES.pop().open.set()


def call(tool: str, **brought: Any) -> dict[str, Any]:
    return {"method": "tools/call", "name": tool, "arguments": {}, **brought}


def check_rotated() -> None:
    """Check that nothing would seal with the old key, which only opens now."""
    assert sealing_with(OLD) == []
    assert holding(OLD) != []


async def test_a_leg_that_asks(site: Rotating) -> None:
    running = await in_flight(site, **call("greet"))
    await site.rotate(NEW, OLD)
    let_go()
    state = (await running).state
    assert sealed_with(state) == key_id(OLD), "it seals with what it began with"
    del running
    check_rotated()
    again = await site.ask(**call("greet", requestState=state, inputResponses=accept(name="Ada")))
    assert sealed_with(again.state) == key_id(NEW)


async def test_a_leg_that_sheds(site: Rotating) -> None:
    running = await in_flight(site, **call("count"))
    site.first.drain()
    await site.rotate(NEW, OLD)
    let_go()
    state = (await running).state
    assert sealed_with(state) == key_id(OLD), "it seals with what it began with"
    del running
    check_rotated()
    running = await in_flight(site, **call("count", requestState=state))
    site.first._services.load.shedding.end_notice()
    let_go()
    assert sealed_with((await running).state) == key_id(NEW)


async def test_a_leg_that_becomes_a_task(site: Rotating) -> None:
    running = await in_flight(site, **call("detach"))
    before = site.at_rest()
    await site.rotate(NEW, OLD)
    let_go()
    task_id = (await running).result["taskId"]
    del running
    await ended(site, task_id, "completed")
    check_rotated()
    check_stored_anew(site, before)


async def test_a_leg_of_a_task(site: Rotating) -> None:
    gate = stop()
    task_id = (await site.ask(**call("build"))).result["taskId"]
    await gate.runs.wait()
    before = site.at_rest()
    assert {sealed_with(value) for value in before.values()} == {key_id(OLD)}
    await site.rotate(NEW, OLD)
    let_go()
    await ended(site, task_id, "input_required")
    check_rotated()
    gate = stop()
    await site.ask("tasks/update", taskId=task_id, inputResponses=accept(name="Ada"))
    await gate.runs.wait()
    kinds = {field.partition(":")[0] for field in check_stored_anew(site, before)}
    assert {"s", "questions", "n", "1-0"} <= kinds, "a step, a question, an answer and a segment"
    let_go()
    task = await ended(site, task_id, "completed")
    assert task["result"]["content"][-1]["text"] == "for Ada"
    check_rotated()
    assert "result" in check_stored_anew(site, before)


async def test_a_session_that_waits_for_an_answer_and_a_message_to_its_replica(site: Rotating) -> None:
    session = await Session.begin(site.first)
    async with session.calling(site.first, "greet") as events:
        first = await events.message(1)
        await site.rotate(NEW, OLD)
        check_rotated()
        await answer(site, session, first)
        second = await events.message(2)
        assert [sealed_with(each["id"]) for each in (first, second)] == [key_id(OLD), key_id(NEW)]
        await answer(site, session, second)
        assert (await events.message(3))["result"]["content"][0]["text"] == "Ada Ada"
    assert {sealed_message_with(message) for message in site.messages} == {key_id(NEW)}
    assert len(site.messages) == 2
    check_rotated()


async def test_a_session_id_and_a_place_in_a_list_of_tasks(site: Rotating, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_tasks, "PAGE_SIZE", 1)
    session = await Session.begin(site.first)
    for _ in range(3):
        await site.ask(**call("build"))
    old = await listed(site, session)
    await site.rotate(NEW, OLD)
    check_rotated()
    newer = await Session.begin(site.first)
    assert [sealed_with(each.session_id) for each in (session, newer)] == [key_id(OLD), key_id(NEW)]
    new = await listed(site, session, old)
    assert [sealed_with(cursor) for cursor in (old, new)] == [key_id(OLD), key_id(NEW)]
    check_rotated()


async def answer(site: Rotating, session: Session, question: dict[str, Any]) -> None:
    """Answer a question at the other replica, which forwards the answer."""
    result = {"action": "accept", "content": {"name": "Ada"}}
    response = {"jsonrpc": "2.0", "id": question["id"], "result": result}
    assert (await session.send(site.second, response)).status == 202


async def listed(site: Rotating, session: Session, cursor: str | None = None) -> str:
    """Return the cursor that a page of the list of tasks ends with."""
    page = await session.send(site.first, session_request("tasks/list", {} if cursor is None else {"cursor": cursor}))
    return str(page.result["nextCursor"])


async def ended(site: Rotating, task_id: str, status: str) -> dict[str, Any]:
    """Wait until a task has a status."""

    async def task() -> dict[str, Any] | None:
        found = (await site.ask("tasks/get", taskId=task_id)).result
        return found if found["status"] == status else None

    reached: dict[str, Any] = await eventually(task)
    return reached


def check_stored_anew(site: Rotating, before: dict[tuple[str, str], str]) -> set[str]:
    """Check that everything stored since then is sealed with the new key; return the fields."""
    stored = {place: value for place, value in site.at_rest().items() if before.get(place) != value}
    assert {sealed_with(value) for value in stored.values()} == {key_id(NEW)}
    return {field for _, field in stored}
