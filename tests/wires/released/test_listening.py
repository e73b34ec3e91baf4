"""`subscriptions/listen` with task ids: the state of each task, then whatever becomes of it, from wherever it comes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from gateway.calls.task_access import TaskAccess
from gateway.errors import MissingCapability, TaskStoreDown
from gateway.protocol.headers import Headers
from gateway.protocol.jsonrpc import Request
from gateway.protocol.requests import McpRequest
from gateway.runtime.turns import Turns
from gateway.tasks.model import TaskView
from gateway.wires.methods import Incoming
from gateway.wires.replies import Listening
from tests.authorities import caller
from tests.parts import LastIsSecret, Unlisted, part
from tests.storage.servers import Server
from tests.wires.released.conftest import CAN, NO_CLIENT, World
from tests.wires.released.test_task_methods import UNKNOWN, name

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
SECONDS = 20


class Stream:
    def __init__(self, messages: AsyncIterator[bytes]) -> None:
        self._messages = messages

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            message = msgspec.json.decode(await anext(self._messages))
        assert isinstance(message, dict)
        return message

    async def task(self) -> dict[str, Any]:
        """The next message, which is about a task."""
        message = await self.next()
        assert message["method"] == "notifications/tasks"
        params: dict[str, Any] = message["params"]
        assert params["_meta"][SUBSCRIPTION] == "sub"
        return params

    async def until(self, status: str) -> list[str]:
        """The statuses that are reported from now on, up to this one."""
        told: list[str] = []
        while not told or told[-1] != status:
            told.append((await self.task())["status"])
        return told


@contextlib.asynccontextmanager
async def listening(
    world: World, *task_ids: str, sub: str = "ada", can: Any = CAN, **more: Any
) -> AsyncIterator[Stream]:
    """Listen on the next replica; the acknowledgement comes first on the stream."""
    dispatcher = world.next_app()._services.wires.dispatcher
    params = {"notifications": {"taskIds": list(task_ids), **more}}
    request = McpRequest(
        Request("sub", "subscriptions/listen", params), meta={}, capabilities=can, log_level=None, progress_token=None
    )
    listen = dispatcher._released._handlers[request.method]
    reply = await listen(Incoming(request, Headers(()), caller(sub), NO_CLIENT))
    assert isinstance(reply, Listening)
    messages = reply.messages
    try:
        yield Stream(messages)
    finally:
        await messages.aclose()  # type: ignore[attr-defined]  # an async generator


async def acknowledged(stream: Stream) -> dict[str, Any]:
    message = await stream.next()
    assert message["method"] == "notifications/subscriptions/acknowledged"
    assert message["params"]["_meta"][SUBSCRIPTION] == "sub"
    honoured: dict[str, Any] = message["params"]["notifications"]
    return honoured


async def test_first_comes_the_acknowledgement_then_each_tasks_state(world: World) -> None:
    done, waiting = await world.start("work"), await world.start("two_questions")
    await world.work()
    async with listening(world, done, waiting) as stream:
        assert await acknowledged(stream) == {"taskIds": [done, waiting]}
        told = {task["taskId"]: task for task in [await stream.task(), await stream.task()]}
    for task_id, task in told.items():
        read = await world.get(task_id)
        for names in (task, read):
            names.pop("_meta")
            names.pop("pollIntervalMs")
        assert {"resultType": "complete", **task} == read


async def test_every_change_is_reported_up_to_the_final_state(world: World) -> None:
    task_id = await world.start("two_questions")
    async with listening(world, task_id) as stream:
        await acknowledged(stream)
        assert (await stream.task())["status"] == "working"
        await world.work()
        assert await stream.until("input_required") == ["input_required"]
        await world.update(task_id, {"a": name("Ada")})
        assert list((await stream.task())["inputRequests"]) == ["b"]
        await world.update(task_id, {"b": name("Bob")})
        assert await stream.until("working") == ["working"]
        await world.work()
        assert await stream.until("completed") == ["completed"]


async def test_progress_is_told(world: World) -> None:
    task_id = await world.start("progressing")
    async with listening(world, task_id) as stream:
        await acknowledged(stream)
        await stream.task()
        await world.work()
        told = [await stream.task()]
        while told[-1]["status"] == "working":
            told.append(await stream.task())
    final = told[-1]
    assert final["status"] == "completed"
    assert final["_meta"]["dev.sealedgateway/progress"] == {"progress": 2, "total": 5}


async def test_only_own_tasks_are_acknowledged_and_reported(world: World) -> None:
    own, foreign = await world.start("work"), await world.start("work", sub="eve")
    async with listening(world, foreign, UNKNOWN, own) as stream:
        assert await acknowledged(stream) == {"taskIds": [own]}
        assert (await stream.task())["taskId"] == own
        await world.request("tasks/cancel", {"taskId": foreign}, sub="eve")
        await world.request("tasks/cancel", {"taskId": own})
        told = await stream.task()
        assert (told["taskId"], told["status"]) == (own, "cancelled")


async def test_foreign_tasks_are_acknowledged_like_unknown_ones(world: World) -> None:
    foreign = await world.start("work", sub="eve")
    told = []
    for task_id in (foreign, UNKNOWN):
        async with listening(world, task_id) as stream:
            told.append(await stream.next())
    assert told[0] == told[1]
    assert told[0]["params"]["notifications"] == {}


async def test_a_client_that_did_not_declare_the_extension_hears_of_no_task(world: World) -> None:
    task_id = await world.start("work")
    with pytest.raises(MissingCapability):
        async with listening(world, task_id, can={"elicitation": {}}):
            raise AssertionError("it was let in")


async def test_no_task_is_reported_until_the_resources_of_the_stream_are_judged_by_a_new_list(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def arrange(finder: Unlisted) -> None:
        for app in world.apps:
            app._services.wires.arrange([part("one", finder=finder)])

    async def read_while_a_list_changes(access: TaskAccess, *asked: Any) -> TaskView | None:
        arrange(LastIsSecret("one", announces_changes=True))
        return await read(access, *asked)

    arrange(Unlisted("one", announces_changes=True))
    task_id = await world.start("work")
    read = TaskAccess.read
    monkeypatch.setattr(TaskAccess, "read", read_while_a_list_changes)
    uris = [f"one+docs://{number}" for number in range(9)]
    async with listening(world, task_id, resourceSubscriptions=uris) as stream:
        await acknowledged(stream)
        assert (await stream.next())["result"]["resultType"] == "complete"


async def test_changes_of_lists_come_on_the_same_stream(world: World) -> None:
    task_id = await world.start("work")
    async with listening(world, task_id, toolsListChanged=True) as stream:
        assert await acknowledged(stream) == {"taskIds": [task_id], "toolsListChanged": True}
        await stream.task()
        for app in world.apps:
            app._services.changes.announce("tools")
        assert (await stream.next())["method"] == "notifications/tools/list_changed"


async def test_each_stream_waits_for_a_turn_before_it_sends_changes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[Any] = []
    begin = Turns.begin

    async def noted(self: Turns, group: Any, principal: Any) -> None:
        turns.append(principal)
        await begin(self, group, principal)

    monkeypatch.setattr(Turns, "begin", noted)
    async with listening(world, toolsListChanged=True) as stream:
        await acknowledged(stream)
        for app in world.apps:
            app._services.changes.announce_here("tools")
        assert (await stream.next())["method"] == "notifications/tools/list_changed"
    assert turns == [caller("ada").principal]


async def test_a_replica_that_drains_ends_the_stream_with_a_result(world: World) -> None:
    task_id = await world.start("work")
    async with listening(world, task_id) as stream:
        await acknowledged(stream)
        await stream.task()
        for app in world.apps:
            app.leave()
        message = await stream.next()
        assert message["id"] == "sub"
        assert message["result"]["resultType"] == "complete"
        with pytest.raises(StopAsyncIteration):
            await stream.next()


async def test_what_happens_between_the_look_and_the_subscription_is_not_missed(world: World) -> None:
    """The task ends after the stream has checked its owner and before it subscribes to changes."""
    task_id = await world.start("work")
    async with listening(world, task_id) as stream:
        await world.work()
        await acknowledged(stream)
        assert (await stream.task())["status"] == "completed"


async def test_an_outage_of_the_store_ends_no_stream_and_hides_no_final_state(own_server: Server) -> None:
    own_server.options += ("--appendonly", "yes", "--appendfsync", "always")
    own_server.kill()
    own_server.start()
    world = World(own_server.url)
    task_id = await world.start("work")
    async with listening(world, task_id) as stream:
        await acknowledged(stream)
        await stream.task()
        own_server.kill()
        with pytest.raises(TaskStoreDown):
            await world.store.get("0" * 64, task_id)
        own_server.start()
        await world.work()
        assert await stream.until("completed") == ["completed"]
    await world.close()


async def test_a_hint_without_news_sends_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    task_id = await world.start("work")
    store = world.store
    reads: asyncio.Queue[TaskView | None] = asyncio.Queue()

    async def watch(_owner: str, task_ids: Any) -> AsyncIterator[str]:
        for _ in range(3):
            yield task_id
            await reads.get()
        await world.request("tasks/cancel", {"taskId": task_id})
        yield task_id
        await asyncio.Event().wait()

    async def get(owner: str, asked: str) -> TaskView | None:
        view = await type(store).get(store, owner, asked)
        reads.put_nowait(view)
        return view

    monkeypatch.setattr(store, "watch", watch)
    monkeypatch.setattr(store, "get", get)
    world._turn = 1  # the replica whose store this is
    async with listening(world, task_id) as stream:
        await acknowledged(stream)
        assert [(await stream.task())["status"] for _ in range(2)] == ["working", "cancelled"]


async def test_a_task_that_was_reported_as_ended_is_neither_read_again_nor_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_id = await world.start("work")
    await world.work()
    store = world.store
    reads: list[str] = []
    hint, hinted = asyncio.Event(), asyncio.Event()

    async def watch(_owner: str, task_ids: Any) -> AsyncIterator[str]:
        yield task_id
        await hint.wait()
        yield task_id
        hinted.set()
        await asyncio.Event().wait()

    async def get(owner: str, asked: str) -> TaskView | None:
        reads.append(asked)
        return await type(store).get(store, owner, asked)

    monkeypatch.setattr(store, "watch", watch)
    monkeypatch.setattr(store, "get", get)
    world._turn = 1  # the replica whose store this is
    async with listening(world, task_id, toolsListChanged=True) as stream:
        await acknowledged(stream)
        assert (await stream.task())["status"] == "completed"
        assert [view for view in gc.get_objects() if isinstance(view, TaskView) and view.result] == []
        hint.set()
        await hinted.wait()
        world.apps[0]._services.changes.announce_here("tools")
        assert (await stream.next())["method"] == "notifications/tools/list_changed"
    assert reads == [task_id]


@pytest.mark.parametrize(
    ("field", "value"),
    [("phase", "paused"), ("about", "{"), ("about", '{"v": 99}'), ("expires", "1"), ("updated", "x")],
)
async def test_a_task_that_cannot_be_read_fails_on_its_own(
    world: World, server: Server, field: str, value: str
) -> None:
    task_id, other = await world.start("two_questions"), await world.start("two_questions")
    names = server.ask("KEYS", f"*:task:*:{task_id}")
    assert isinstance(names, list)
    whole = server.ask("HGET", names[0], field)
    assert isinstance(whole, bytes)
    server.ask("HSET", names[0], field, value)
    async with listening(world, task_id, other) as stream:
        assert await acknowledged(stream) == {"taskIds": [task_id, other]}
        told = {task["taskId"]: task["status"] for task in [await stream.task(), await stream.task()]}
        assert told == {task_id: "failed", other: "working"}
        await world.work()
        assert (await stream.task())["taskId"] == other
        server.ask("HSET", names[0], field, whole.decode())
        await world.request("tasks/cancel", {"taskId": task_id})
        said = [await stream.task()]
        while said[-1]["taskId"] != task_id or said[-1]["status"] != "cancelled":
            said.append(await stream.task())
