"""The list of an owner's tasks, page by page."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.storage import RedisTaskStore
from gateway.storage.client import RedisClient
from gateway.tasks.model import Phase, Progress, Retention, TaskView
from gateway.tasks.ports import Kept, TaskPlaceMark, TaskQuestion
from tests.storage.deployments import BOB, Deployment, eventually, server_now_ms
from tests.storage.servers import Server

QUESTION = TaskQuestion(b"digest", "elicitation/create", {"message": "How many?"})
VISIBLE = "".join(chr(code) for code in range(0x21, 0x7F))


async def all_pages(store: RedisTaskStore, owner: str, limit: int) -> list[list[TaskView]]:
    """Return all pages, and check that none is too long."""
    pages, after = [], None
    while True:
        views, after = await store.page(owner, after, limit)
        assert len(views) <= limit
        pages.append(list(views))
        if after is None:
            return pages


async def listed(store: RedisTaskStore, owner: str, limit: int) -> list[str]:
    return [view.task_id for views in await all_pages(store, owner, limit) for view in views]


async def put_in_index(here: Deployment, store: RedisTaskStore, owner: str, tasks: dict[str, int]) -> None:
    """Set the expiry of existing tasks, to the millisecond."""
    client = store._client
    for task_id, expires_ms in tasks.items():
        await client.command("ZADD", here.keys.owner_index(owner), expires_ms, task_id)
        await client.command("HSET", here.keys.place(owner, task_id).task, "expires", expires_ms)
        await client.command("PEXPIREAT", here.keys.place(owner, task_id).task, expires_ms)


async def test_an_owner_without_tasks_has_one_empty_page(here: Deployment) -> None:
    assert await here.store().page(here.owner(), None, 10) == ([], None)


async def test_tasks_are_listed_by_expiry_and_only_full_pages_continue(here: Deployment) -> None:
    store, mine = here.store(), here.owner()
    for ms in (30_000, 10_000, 20_000):
        await store.create(here.new(task_id=f"t{ms}", retention=Retention("created", ms)), 10)
    in_order = ["t10000", "t20000", "t30000"]
    for limit, sizes in ((1, [1, 1, 1]), (2, [2, 1]), (3, [3]), (4, [3])):
        assert [len(views) for views in await all_pages(store, mine, limit)] == sizes
        assert await listed(store, mine, limit) == in_order


async def test_tasks_are_listed_as_they_are_read_but_in_brief(here: Deployment) -> None:
    store, queue = here.store(), here.queue()
    for number in range(6):
        await store.create(here.new(retention=Retention("created", 60_000 + 1000 * number)), 10)
    done, failed, refused, waiting, running = await here.claim(queue, count=5)
    await queue.keep(running, Kept(progress=Progress(1, 2, "half")))
    await queue.finish(done, result={"content": [{"type": "text", "text": "x" * 10_000}]})
    why = {"content": [{"type": "text", "text": "No such order"}], "isError": True}
    await queue.finish(failed, result=why)
    await queue.finish(refused, error={"code": -32000, "message": "No"})
    await queue.wait(waiting, {"k": QUESTION}, waiting.journal)
    page = await store.page(here.owner(), None, 10)
    whole = [await store.get(here.owner(), view.task_id) for view in page.views]
    briefs = [replace(view, now_ms=0) for view in page.views]
    assert [view.result for view in briefs] == [{}, why, None, None, None, None]
    assert briefs == [
        replace(view, now_ms=0, questions={}, capabilities={}, result=brief.result)
        for view, brief in zip(whole, briefs, strict=True)
        if view is not None
    ]
    assert [view.phase for view in briefs] == [Phase.DONE] * 3 + [Phase.WAITING, Phase.RUNNING, Phase.QUEUED]


async def test_a_result_whose_flag_is_not_true_is_not_a_failure(here: Deployment) -> None:
    store, queue = here.store(), here.queue()
    await store.create(here.new(), 10)
    await queue.finish(await here.claim_one(queue), result={"content": [], "isError": False})
    assert [view.result for view in (await store.page(here.owner(), None, 10)).views] == [{}]


async def test_a_failure_whose_message_cannot_be_read_is_listed_without_it(here: Deployment) -> None:
    store, queue, new = await here.created()
    content = [{"type": "text", "text": "no paper"}]
    await queue.finish(await here.claim_one(queue), result={"content": content, "isError": True})
    assert [view.result for view in (await store.page(here.owner(), None, 10)).views] == [
        {"isError": True, "content": content}
    ]
    await store._client.command("HSET", here.keys.place(new.owner, new.task_id).task, "why", "s1.x")
    (view,) = (await store.page(here.owner(), None, 10)).views
    assert (view.opened, view.result) == (True, {"isError": True, "content": []})


async def test_a_task_that_cannot_be_opened_is_listed_as_such(here: Deployment) -> None:
    store, queue, new = await here.created()
    await queue.finish(await here.claim_one(queue), result={"content": []})
    await store._client.command("HSET", here.keys.place(new.owner, new.task_id).task, "capabilities", "s1.x")
    (view,) = (await store.page(here.owner(), None, 10)).views
    assert (view.opened, view.result) == (False, None)


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
async def test_tasks_that_expire_together_are_each_listed_once(here: Deployment, limit: int) -> None:
    """Their ids decide the order, byte by byte, whatever the server's locale."""
    store, mine = here.store(), here.owner()
    ids = ["a", "B", "b", "A", "ab", "a-b", "a_b", "a.b", "aB", "~", "!", "z", "Z", "10", "9", "x" * 128]
    for task_id in ids:
        await store.create(here.new(task_id=task_id), 50)
    await put_in_index(here, store, mine, dict.fromkeys(ids, await server_now_ms(store) + 60_000))
    assert await listed(store, mine, limit) == sorted(ids)


async def test_a_page_begins_after_a_task_that_is_gone_by_then(here: Deployment) -> None:
    store, mine, ids = here.store(), here.owner(), ["a", "b", "c", "d", "e"]
    for task_id in ids:
        await store.create(here.new(task_id=task_id), 10)
    now_ms = await server_now_ms(store)
    await put_in_index(here, store, mine, {**dict.fromkeys("abcd", now_ms + 60_000), "e": now_ms + 90_000})
    _, after = await store.page(mine, None, 2)
    assert after == (now_ms + 60_000, "b")
    for task_id in "ab":
        await store.delete(mine, task_id)
    assert [view.task_id for view in (await store.page(mine, after, 2)).views] == ["c", "d"]
    await store._client.command("ZADD", here.keys.owner_index(mine), now_ms - 500, "expired")
    after = TaskPlaceMark(now_ms - 1000, "expired too")
    assert [view.task_id for view in (await store.page(mine, after, 3)).views] == ["c", "d", "e"]
    assert await store.page(mine, TaskPlaceMark(now_ms + 90_000, "e"), 10) == ([], None)


async def test_a_task_that_goes_while_a_page_is_read_is_left_out(
    here: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, mine, run = here.store(), here.owner(), RedisClient.run
    for ms in (10_000, 20_000, 30_000):
        await store.create(here.new(task_id=f"t{ms}", retention=Retention("created", ms)), 10)

    async def delete_in_between(self: RedisClient, *given: Any) -> Any:
        reply = await run(self, *given)
        monkeypatch.setattr(RedisClient, "run", run)
        await store.delete(mine, "t20000")
        return reply

    monkeypatch.setattr(RedisClient, "run", delete_in_between)
    views, after = await store.page(mine, None, 2)
    assert [view.task_id for view in views] == ["t10000"]
    assert [view.task_id for view in (await store.page(mine, after, 2)).views] == ["t30000"]


LASTING_MS = (40_000, 40_001, 50_000, 60_000)

task_ids = st.text(VISIBLE, min_size=1, max_size=3)
happenings = st.one_of(
    st.tuples(st.just("create"), st.tuples(task_ids, st.sampled_from(LASTING_MS), st.booleans())),
    st.tuples(st.just("expire"), task_ids),
    st.tuples(st.just("delete"), st.integers(0, 20)),
    st.tuples(st.just("page"), st.integers(1, 4)),
)


@dataclass
class Reading:
    """A reader of the pages: the tasks it has seen, and those it has to see."""

    after: TaskPlaceMark | None
    seen: list[str]
    all_the_while: set[str]


class Listing:
    """An owner's list that changes while it is read, compared with a model of the living tasks."""

    def __init__(self, here: Deployment) -> None:
        self.here, self.store, self.mine = here, here.store(), here.owner()
        self.living: dict[str, int] = {}
        self.used: set[str] = set()
        self.reading: Reading | None = None

    async def run(self, steps: list[tuple[str, Any]]) -> None:
        self.start_ms = await server_now_ms(self.store)
        await self.store.create(self.here.new(BOB, task_id="bob's"), 10)
        for name, argument in steps:
            await getattr(self, name)(argument)
        while self.reading is not None:
            await self.page(2)
        in_order = sorted(self.living, key=lambda task_id: (self.living[task_id], task_id.encode()))
        for limit in (1, 3, 100):
            assert await listed(self.store, self.mine, limit) == in_order

    async def create(self, wanted: tuple[str, int, bool]) -> None:
        task_id, ms, cancelled = wanted
        if task_id in self.used:
            return
        await self.store.create(self.here.new(task_id=task_id), 1000)
        if cancelled:
            await self.store.cancel(self.mine, task_id)
        self.living[task_id] = self.start_ms + ms
        self.used.add(task_id)
        await put_in_index(self.here, self.store, self.mine, {task_id: self.living[task_id]})

    async def expire(self, task_id: str) -> None:
        """Create a task that expires before anything else happens; its place in the index remains."""
        if task_id in self.used:
            return
        await self.store.create(self.here.new(task_id=task_id, retention=Retention("created", 1)), 1000)
        self.used.add(task_id)

        async def gone() -> bool:
            return await self.store.get(self.mine, task_id) is None

        await eventually(gone)

    async def delete(self, which: int) -> None:
        if not self.living:
            return
        task_id = sorted(self.living)[which % len(self.living)]
        await self.store.delete(self.mine, task_id)
        del self.living[task_id]
        if self.reading is not None:
            self.reading.all_the_while.discard(task_id)

    async def page(self, limit: int) -> None:
        reading = self.reading or Reading(None, [], set(self.living))
        views, reading.after = await self.store.page(self.mine, reading.after, limit)
        assert len(views) == limit or reading.after is None
        assert {view.task_id for view in views} <= self.living.keys()
        reading.seen += (view.task_id for view in views)
        assert len(reading.seen) == len(set(reading.seen))
        if reading.after is None:
            assert reading.all_the_while <= set(reading.seen)
        self.reading = reading if reading.after is not None else None


@given(steps=st.lists(happenings, max_size=40))
def test_pages_show_each_living_task_once_whatever_happens_in_between(
    server: Server, steps: list[tuple[str, Any]]
) -> None:
    async def run() -> None:
        here = Deployment(server.url)
        try:
            await Listing(here).run(steps)
        finally:
            await here.aclose()

    asyncio.run(run())
