"""Large results are read one at a time for each owner, so that nobody else waits for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.errors import TaskStoreDown, ValueTooLarge
from gateway.storage import RedisTaskStore
from gateway.storage.lua.shared_scripts import BRIEFS
from gateway.storage.lua.task_scripts import QUICK_BYTES, Script
from gateway.storage.records import SEGMENT_BYTES
from gateway.storage.task_store import BRIEFS_AT_ONCE, SEGMENTS_AT_ONCE, read_segments
from tests.storage.deployments import BOB, Deployment

SMALL: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}
LARGE: dict[str, Any] = {"content": [{"type": "text", "text": "x" * 2 * QUICK_BYTES}]}


class Reads:
    """Counts the scripts that read tasks of a store."""

    def __init__(self, store: RedisTaskStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scripts = 0
        self.large = self.most_large = 0
        self._run = store._client.run
        monkeypatch.setattr(store._client, "run", self._counted)

    async def _counted(self, script: Any, keys: Any, args: Any) -> Any:
        is_large = "whole" in args
        self.scripts += 1
        self.large += is_large
        self.most_large = max(self.most_large, self.large)
        try:
            return await self._run(script, keys, args)
        finally:
            self.large -= is_large


async def done(here: Deployment, result: dict[str, Any]) -> str:
    """Return the id of a task that has ended with this result."""
    view = await here.store().create(here.new(), 100)
    (claim,) = await here.claim(here.queue(), count=1)
    await here.queue().finish(claim, result=result)
    return view.task_id


async def test_a_small_task_is_read_with_one_script_and_a_large_one_with_two(
    here: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = await done(here, SMALL), await done(here, LARGE)
    store = here.store()
    await store.owner(None)
    reads = Reads(store, monkeypatch)
    for task_id, result, count in ((small, SMALL, 1), (large, LARGE, 3)):
        view = await store.get(here.owner(), task_id)
        assert view is not None
        assert view.result == result
        assert reads.scripts == count


async def test_an_owner_reads_one_large_task_at_a_time_beside_small_ones_and_those_of_others(
    here: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = [await done(here, LARGE) for _ in range(3)]
    small = await done(here, SMALL)
    store = here.store()
    await store.owner(None)
    reads = Reads(store, monkeypatch)
    views = await asyncio.gather(*(store.get(here.owner(), task_id) for task_id in (*large, small) for _ in range(5)))
    assert [None if view is None else view.result for view in views] == [LARGE] * 15 + [SMALL] * 5
    assert reads.most_large == 1
    assert await store.get(here.owner(BOB), large[0]) is None


async def test_a_large_task_that_has_ended_is_returned_whole_to_those_who_cancel_it(here: Deployment) -> None:
    task_id = await done(here, LARGE)
    view = await here.store().cancel(here.owner(), task_id)
    assert view is not None
    assert (view.phase.value, view.result) == ("done", LARGE)


async def test_lists_have_no_capabilities_and_read_large_ones_one_at_a_time(
    here: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, large = here.store(), {"experimental": {"x": "y" * 2 * QUICK_BYTES}}
    ids = [(await store.create(here.new(capabilities=capabilities), 10)).task_id for capabilities in (large, {}, large)]
    commands: list[tuple[Any, ...]] = []
    command = store._client.command

    async def noted(*words: Any) -> Any:
        commands.append(words)
        return await command(*words)

    monkeypatch.setattr(store._client, "command", noted)
    briefs = await store.briefs(here.owner(), [*ids, "unknown"])
    assert [(view.task_id, view.capabilities) for view in briefs] == [(task_id, {}) for task_id in ids]
    assert [words[0] for words in commands if words[0] == "HMGET"] == ["HMGET"] * 2


async def test_lists_have_no_data_of_errors(here: Deployment) -> None:
    store, error = here.store(), {"code": -32000, "message": "No", "data": {"x": "y" * 2 * QUICK_BYTES}}
    task_id = (await store.create(here.new(), 10)).task_id
    await here.queue().finish(await here.claim_one(here.queue()), error=error)
    (brief,) = await store.briefs(here.owner(), [task_id])
    assert brief.error == {"code": -32000, "message": "No"}


async def test_a_look_at_a_large_task_does_not_read_its_result(here: Deployment) -> None:
    task_id = await done(here, LARGE)
    store = here.store()
    await store.owner(None)
    await store._client.command("CONFIG", "RESETSTAT")
    assert await store.get(here.owner(), task_id) is not None
    stats = await store._client.command("INFO", "commandstats")
    assert stats["cmdstat_hmget"]["calls"] == 1


async def test_the_tasks_of_a_page_are_opened_in_turns_one_page_of_an_owner_at_a_time(
    here: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = here.store()
    for _ in range(2 * BRIEFS_AT_ONCE + 1):
        await store.create(here.new(), 100)
    turns: list[str] = []
    pages, most = 0, 0
    run = store._client.run

    async def begin(_group: object, owner: str) -> None:
        turns.append(owner)

    async def counted(script: Script, keys: Any, args: Any) -> Any:
        nonlocal pages, most
        if script is not BRIEFS:
            return await run(script, keys, args)
        pages += 1
        most = max(most, pages)
        try:
            return await run(script, keys, args)
        finally:
            pages -= 1

    monkeypatch.setattr(store._turns, "begin", begin)
    monkeypatch.setattr(store._client, "run", counted)
    read = await asyncio.gather(*(store.page(here.owner(), None, 100) for _ in range(4)))
    assert [len(page.views) for page in read] == [2 * BRIEFS_AT_ONCE + 1] * 4
    assert turns == [here.owner()] * 3 * 4
    assert most == 1


async def test_while_the_store_is_away_nobody_waits_for_one_failure_after_the_other(
    here: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = here.store()
    task_id = (await store.create(here.new(), 10)).task_id
    asked = 0

    async def hang(*_: object) -> Any:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.1)
        raise TaskStoreDown

    monkeypatch.setattr(store._client, "run", hang)
    read = await asyncio.gather(*(store.briefs(here.owner(), [task_id]) for _ in range(6)), return_exceptions=True)
    assert [type(each) for each in read] == [TaskStoreDown] * 6
    assert asked == 1
    monkeypatch.undo()
    assert len(await store.briefs(here.owner(), [task_id])) == 1


async def test_many_segments_are_opened_in_portions_with_a_turn_before_each(here: Deployment) -> None:
    store, queue, new = await here.created()
    claim = await here.claim_one(queue)
    count = 2 * SEGMENTS_AT_ONCE + 5
    for number in range(1, count + 1):
        await queue.emit(claim, number, {"type": "text", "text": str(number)})
    turns: list[int] = []

    async def pause() -> None:
        turns.append(1)
        await asyncio.sleep(0)

    place = here.keys.place(new.owner, new.task_id)
    for after in (0, 1, SEGMENTS_AT_ONCE, count - 1, count, 2**40):
        turns.clear()
        read = await read_segments(store._client, store._reader, place, after, pause)
        assert [int(block["text"]) for block in read] == [*range(after + 1, count + 1)]
        assert len(turns) == len(range(after + 2, count + 1, SEGMENTS_AT_ONCE))
    assert len(await store.segments(new.owner, new.task_id)) == count
    assert len(await queue.segments(new.owner, new.task_id)) == count


async def test_a_task_that_is_deleted_while_its_segments_are_read_has_none(here: Deployment) -> None:
    store, queue, new = await here.created()
    claim = await here.claim_one(queue)
    for number in range(1, 2 * SEGMENTS_AT_ONCE + 1):
        await queue.emit(claim, number, {"type": "text", "text": "a"})
    place = here.keys.place(new.owner, new.task_id)
    for portions in (1, 2):
        copied = await store._client.command("DUMP", place.segments)
        turns: list[int] = []

        async def pause(turns: list[int] = turns, portions: int = portions) -> None:
            turns.append(1)
            if len(turns) == portions:
                await store._client.command("DEL", place.segments)

        assert await read_segments(store._client, store._reader, place, 0, pause) == []
        await store._client.command("RESTORE", place.segments, 60_000, copied)
    assert len(await store.segments(new.owner, new.task_id)) == 2 * SEGMENTS_AT_ONCE


async def test_empty_segments_count_too(here: Deployment) -> None:
    _, queue, _ = await here.created()
    limited = here.queue(max_value_bytes=10 * SEGMENT_BYTES)
    claim = await here.claim_one(queue)
    for number in range(1, 10):
        await limited.emit(claim, number, {})
    with pytest.raises(ValueTooLarge):
        await limited.emit(claim, 10, {})
