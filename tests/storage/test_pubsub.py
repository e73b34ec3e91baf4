"""Hints reach all listeners over one connection, and nothing depends on hints alone."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
import redis
from redis.asyncio.client import PubSub

from gateway.errors import TaskStoreDown
from gateway.storage import pubsub, task_store
from tests.storage.deployments import BOB, Deployment, eventually
from tests.storage.servers import Server

MANY_STEPS = 20
"""More than enough to subscribe and start listening."""

MANY_SECONDS = 5.0


async def test_a_listener_on_another_replica_hears_of_every_change(here: Deployment) -> None:
    _store, queue, new = await here.created()
    async with aclosing(here.store().watch(new.owner, [new.task_id])) as hints:
        assert await anext(hints) == new.task_id
        claim = await here.claim_one(queue)
        assert await anext(hints) == new.task_id
        await queue.finish(claim, result={"content": []})
        assert await anext(hints) == new.task_id


async def test_each_task_is_yielded_at_first_and_those_of_others_never(here: Deployment) -> None:
    store = here.store()
    first, second, third = (here.new() for _ in range(3))
    foreign = here.new(BOB, task_id=first.task_id)
    for new in (first, second, third, foreign):
        await store.create(new, 10)
    async with aclosing(store.watch(first.owner, [first.task_id, second.task_id])) as hints:
        assert {await anext(hints), await anext(hints)} == {first.task_id, second.task_id}
        await store.cancel(third.owner, third.task_id)
        await store.cancel(foreign.owner, foreign.task_id)
        await store.cancel(second.owner, second.task_id)
        heard: set[str] = set()
        while second.task_id not in heard:
            heard.add(await anext(hints))
        assert heard <= {first.task_id, second.task_id}


async def test_a_process_listens_over_one_connection(here: Deployment, server: Server) -> None:
    store = here.store()
    new, other = here.new(), here.new(BOB)
    watches = [store.watch(task.owner, [task.task_id]) for task in (new, new, other, other)]
    for watch in watches:
        await anext(watch)
    with redis.Redis.from_url(here.url) as client:
        channels = [here.keys.changes(task.owner) for task in (new, other)]
        assert {count for _, count in client.pubsub_numsub(*channels)} == {1}
        for watch in watches:
            await watch.aclose()

        async def left() -> bool:
            return {count for _, count in client.pubsub_numsub(*channels)} == {0}

        await eventually(left)


async def test_workers_hear_of_running_tasks_that_are_cancelled(here: Deployment) -> None:
    store, queue = here.store(), here.queue()
    queued, running = here.new(), here.new()
    async with aclosing(here.queue("w2").cancellations()) as cancelled:
        waiting = asyncio.ensure_future(anext(cancelled))
        await eventually(lambda: subscribed(here))
        await store.create(running, 10)
        await here.claim_one(queue)
        await store.create(queued, 10)
        await store.cancel(queued.owner, queued.task_id)
        await store.cancel(running.owner, running.task_id)
        assert await waiting == (running.owner, running.task_id)


async def subscribed(here: Deployment) -> bool:
    with redis.Redis.from_url(here.url) as client:
        return [count for _, count in client.pubsub_numsub(here.keys.cancellations())] == [1]


async def test_a_listener_hears_again_after_the_server_was_gone(own_server: Server) -> None:
    there = Deployment(own_server.url)
    store, new = await there.stored()
    async with aclosing(there.store().watch(new.owner, [new.task_id])) as hints:
        await anext(hints)
        own_server.kill()
        own_server.start()
        assert await anext(hints) == new.task_id

        async def cancelled() -> bool:
            try:
                view = await store.cancel(new.owner, new.task_id)
            except TaskStoreDown:
                return False
            return view is not None

        await eventually(cancelled)
        assert await anext(hints) == new.task_id
    await there.aclose()


async def test_a_lost_hint_is_made_up_for_by_looking_again(here: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_store, "RECHECK_SECONDS", 0.05)
    monkeypatch.setattr(pubsub.Listener, "hear", lambda self, text: None)
    store, new = await here.stored()
    async with aclosing(store.watch(new.owner, [new.task_id])) as hints:
        for _ in range(4):
            assert await anext(hints) == new.task_id


async def test_a_store_that_is_down_neither_ends_a_watch_nor_holds_it_up_for_long(own_server: Server) -> None:
    own_server.kill()
    there = Deployment(own_server.url)
    store, new = there.store(), there.new()
    async with aclosing(store.watch(new.owner, [new.task_id])) as hints:
        assert await anext(hints) == new.task_id
        own_server.start()
        assert await anext(hints) == new.task_id
    await there.aclose()


def trip_once(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Fail as redis-py does when two tasks reopen one lost connection."""
    original = getattr(PubSub, what)

    async def trip(self: PubSub, *args: Any, **options: Any) -> None:
        monkeypatch.setattr(PubSub, what, original)
        raise AttributeError("'NoneType' object has no attribute 'writelines'")

    monkeypatch.setattr(PubSub, what, trip)


@pytest.mark.parametrize("what", ["subscribe", "unsubscribe", "get_message"])
async def test_a_connection_that_breaks_in_an_unforeseen_way_is_replaced(
    what: str, here: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_store, "RECHECK_SECONDS", 1000)  # only a new connection recovers the missed hints
    monkeypatch.setattr(pubsub, "RECHECK_SECONDS", 0.5)
    store, new, other = here.store(), here.new(), here.new(BOB)
    await store.create(new, 10)
    async with aclosing(store.watch(new.owner, [new.task_id])) as hints:
        assert await anext(hints) == new.task_id
        trip_once(monkeypatch, what)
        async with aclosing(store.watch(other.owner, [other.task_id])) as others:
            assert await anext(others) == other.task_id
        assert await anext(hints) == new.task_id
        await store.cancel(new.owner, new.task_id)
        assert await anext(hints) == new.task_id


async def test_a_listener_for_one_task_is_not_woken_by_another_task_of_its_owner(here: Deployment) -> None:
    store, first, second = here.store(), here.new(), here.new()
    await store.create(first, 10)
    await store.create(second, 10)
    heard: list[str] = []
    hear = pubsub.Listener.hear

    def note(listener: pubsub.Listener, text: str) -> None:
        heard.append(pubsub.topic_of(text))
        hear(listener, text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pubsub.Listener, "hear", note)
        async with aclosing(store.watch(first.owner, [first.task_id])) as hints:
            assert await anext(hints) == first.task_id
            await store.cancel(second.owner, second.task_id)
            await store.cancel(first.owner, first.task_id)
            assert await anext(hints) == first.task_id
    assert heard == [first.task_id]


async def test_a_listener_that_is_cancelled_at_any_moment_is_gone_and_disturbs_nobody(here: Deployment) -> None:
    store = here.store()
    new, other = here.new(), here.new(BOB)

    async def listen() -> None:
        async with aclosing(store.watch(other.owner, [other.task_id])) as hints:
            async for _ in hints:
                pass

    with redis.Redis.from_url(here.url) as client:
        async with aclosing(store.watch(new.owner, [new.task_id])) as hints:
            await anext(hints)
            connections = [listed["id"] for listed in client.client_list(_type="pubsub")]
            for steps in range(MANY_STEPS):
                listener = asyncio.create_task(listen())
                for _ in range(steps):
                    await asyncio.sleep(0)
                listener.cancel()
                assert await asyncio.wait({listener}, timeout=MANY_SECONDS) == ({listener}, set())
                assert listener.cancelled()
            assert [listed["id"] for listed in client.client_list(_type="pubsub")] == connections
