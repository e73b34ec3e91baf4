"""The limit on the bytes of one owner's tasks, for every kind of write by replicas and workers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis

from gateway.errors import NoRoomLeft, TaskStoreAway, TooManyTaskBytes
from gateway.storage.lua.task_scripts import CREATE
from gateway.storage.scripts import run_on_task
from gateway.tasks.model import Phase, Retention
from gateway.tasks.ports import Kept, TaskQuestion
from tests.storage.deployments import ALICE, BOB, Deployment, eventually, seen

LARGE = "x" * 30_000
ROOM = 100_000
"""Enough for two large tasks, which grow by a third when sealed, but not for three."""

QUESTION = TaskQuestion(b"digest", "elicitation/create", {"message": LARGE})


def large(here: Deployment, **changes: Any) -> Any:
    return here.new(**{"arguments": {"text": LARGE}, **changes})


async def test_a_task_without_room_is_refused_until_another_one_is_gone(here: Deployment) -> None:
    store = here.store()
    first, second, third = (large(here) for _ in range(3))
    await store.create(first, 10, ROOM)
    await store.create(second, 10, ROOM)
    with pytest.raises(TooManyTaskBytes, match=f"no more than {ROOM} bytes") as refused:
        await store.create(third, 10, ROOM)
    assert 1 <= refused.value.retry_after_seconds <= 60
    assert await store.get(third.owner, third.task_id) is None

    await store.create(large(here, principal=BOB, owner=here.owner(BOB)), 10, ROOM)
    await store.delete(first.owner, first.task_id)
    await store.create(third, 10, ROOM)
    counted, real = here.kept_bytes(ALICE)
    assert counted == real <= ROOM


async def test_a_creation_that_is_repeated_counts_once(here: Deployment) -> None:
    store, new = here.store(), large(here)
    place = here.keys.place(new.owner, new.task_id)
    for _ in range(2):
        limits = (10, ROOM, 60_000, 60_000, "created")
        reply = await run_on_task(store._client, CREATE, place, *limits, "", b"about", "call", "sealed", 0)
        assert reply[0] == b"created"
    counted, real = here.kept_bytes()
    assert counted == real == len("about" + "sealed")


async def test_expired_tasks_give_their_room_back(here: Deployment) -> None:
    store = here.store()
    await store.create(here.new(), 10, ROOM)  # which keeps the sums alive
    brief = [large(here, retention=Retention("created", 100)) for _ in range(2)]
    for new in brief:
        await store.create(new, 10, ROOM)

    async def gone() -> bool:
        return all([await store.get(new.owner, new.task_id) is None for new in brief])

    await eventually(gone)
    for _ in range(2):
        await store.create(large(here), 10, ROOM)
    counted, real = here.kept_bytes()
    assert counted == real > 0


async def test_a_task_that_ends_keeps_its_result_and_its_segments_alone(here: Deployment) -> None:
    store, queue = here.store(), here.queue()
    await store.create(large(here), 10, ROOM)
    claim = await here.claim_one(queue)
    await queue.keep(claim, Kept(steps={"one": "y" * 10_000}))
    for _ in range(2):
        await queue.emit(claim, 1, {"text": "z" * 100})
    counted, real = here.kept_bytes()
    assert counted == real > 50_000
    await queue.finish(claim, result={"content": []})
    counted, real = here.kept_bytes()
    assert counted == real < 2000

    await store.create(large(here), 10, ROOM)
    claim = await here.claim_one(queue)
    await store.cancel(claim.owner, claim.task_id)
    counted, real = here.kept_bytes()
    assert counted == real < 3000


WRITES = {
    "step": lambda queue, claim: queue.keep(claim, Kept(steps={"loot": LARGE})),
    "checkpoint": lambda queue, claim: queue.keep(claim, Kept(checkpoint={"value": LARGE})),
    "segment": lambda queue, claim: queue.emit(claim, 1, {"text": LARGE}),
    "question": lambda queue, claim: queue.wait(claim, {"name": QUESTION}, claim.journal),
    "journal": lambda queue, claim: queue.release(claim, {**claim.journal, "steps": {"loot": LARGE}}),
    "result": lambda queue, claim: queue.finish(claim, result={"text": LARGE * 3}),
}


@pytest.mark.parametrize("kind", WRITES)
async def test_a_write_without_room_changes_nothing_and_the_running_task_can_still_end(
    here: Deployment, kind: str
) -> None:
    store, queue = here.store(), here.queue()
    await store.create(large(here), 10, ROOM)
    claim = await here.claim_one(queue)
    await store.create(large(here), 10, ROOM)
    before = here.kept_bytes()
    with pytest.raises(NoRoomLeft, match=f"may store {ROOM} bytes in total"):
        await WRITES[kind](queue, claim)
    assert here.kept_bytes() == before
    view = await seen(store, claim)
    assert view.phase is Phase.RUNNING

    await queue.finish(claim, result={"content": [], "isError": True})
    counted, real = here.kept_bytes()
    assert counted == real < before[0]


async def test_an_answer_without_room_is_refused_and_can_be_sent_again(here: Deployment) -> None:
    store, queue = here.store(), here.queue()
    await store.create(large(here), 10, ROOM)
    claim = await here.claim_one(queue)
    await queue.wait(claim, {"name": TaskQuestion(b"digest", "elicitation/create", {})}, claim.journal)
    other = large(here)
    await store.create(other, 10, ROOM)
    with pytest.raises(TooManyTaskBytes):
        await store.answer(claim.owner, claim.task_id, {"name": {"text": LARGE}})
    await store.delete(other.owner, other.task_id)
    view = await store.answer(claim.owner, claim.task_id, {"name": {"text": LARGE}})
    assert view is not None
    assert view.phase is Phase.QUEUED
    counted, real = here.kept_bytes()
    assert counted == real


async def test_tasks_that_are_created_at_once_by_several_replicas_keep_no_more_either(here: Deployment) -> None:
    stores = [here.store() for _ in range(4)]
    created = await asyncio.gather(
        *(stores[number % 4].create(large(here), 100, 10 * ROOM) for number in range(60)), return_exceptions=True
    )
    refused = [reply for reply in created if isinstance(reply, BaseException)]
    kinds = {type(reply) for reply in refused}
    assert TooManyTaskBytes in kinds <= {TooManyTaskBytes, TaskStoreAway}, "a busy machine answers some of them late"
    counted, real = here.kept_bytes()
    assert 9 * ROOM < counted == real <= 10 * ROOM


async def test_a_task_stored_without_sizes_does_not_make_them_expire_before_the_tasks(here: Deployment) -> None:
    store = here.store()
    await store.create(here.new(retention=Retention("created", 500_000)), 10, ROOM)
    names = here.keys.sizes(here.owner()), here.keys.owner_index(here.owner())
    with redis.Redis.from_url(here.url) as client:
        client.delete(names[0])  # a release that kept none stored it
        for seconds in (1, 400):
            await store.create(here.new(retention=Retention("created", seconds * 1000)), 10, ROOM)
        sizes_ms, owned_ms = map(client.pttl, names)
    assert owned_ms - 1000 < sizes_ms <= owned_ms + 1000


async def test_in_a_cluster_too(cluster: str) -> None:
    here = Deployment(cluster)
    store = here.store()
    for _ in range(2):
        await store.create(large(here), 10, ROOM)
    with pytest.raises(TooManyTaskBytes):
        await store.create(large(here), 10, ROOM)
    await here.aclose()
