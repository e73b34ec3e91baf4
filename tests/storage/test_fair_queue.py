"""Tasks behind those of an owner with too many: they come first, and no task is lost or counted."""

from __future__ import annotations

import itertools

import pytest

from gateway.sealing.principal import Principal
from gateway.storage import work_queue
from gateway.tasks.model import Retention
from gateway.tasks.ports import Claim
from tests.storage.deployments import ALICE, Deployment, gone, seen


def neighbour(here: Deployment) -> Principal:
    """Another owner in the same partition as Alice."""
    wanted = here.keys.partition_of(here.owner(ALICE))
    others = (Principal("https://issuer", f"neighbour-{number}", "client") for number in itertools.count())
    return next(other for other in others if here.keys.partition_of(here.owner(other)) == wanted)


async def claim_all(here: Deployment, count: int = 100) -> list[Claim]:
    return await here.claim(here.queue(), count=count)


async def test_a_task_that_may_not_begin_goes_behind_all_others_and_loses_no_attempt(here: Deployment) -> None:
    store, queue, other = here.store(), here.queue(), neighbour(here)
    first, second = here.new(), here.new(other)
    for new in (first, second):
        await store.create(new, 10)
    partition = here.keys.partition_of(first.owner)
    asked: list[str] = []

    def may_begin(owner: str) -> bool:
        asked.append(owner)
        return owner != first.owner

    (claim,) = await queue.claim(partition, 10, 0, may_begin)
    assert (claim.owner, asked) == (second.owner, [first.owner, second.owner])
    view = await seen(store, first)
    assert (view.phase, view.generation) == ("queued", 0)

    (claim,) = await queue.claim(partition, 10, 0)
    assert (claim.task_id, claim.attempt, claim.generation) == (first.task_id, 1, 1)


async def test_a_task_that_was_put_back_goes_to_any_worker_at_once(here: Deployment) -> None:
    new = here.new()
    await here.store().create(new, 10)
    partition = here.keys.partition_of(new.owner)
    assert await here.queue("w1").claim(partition, 1, 0, lambda _owner: False) == []
    (claim,) = await here.queue("w2").claim(partition, 1, 0)
    assert claim.task_id == new.task_id


async def test_tasks_of_others_come_before_those_of_owners_that_are_named(here: Deployment) -> None:
    store, queue, other = here.store(), here.queue(), neighbour(here)
    mine = [here.new() for _ in range(5)]
    theirs = here.new(other)
    for new in (*mine, theirs):
        await store.create(new, 10)
    await store.cancel(mine[1].owner, mine[1].task_id)
    partition = here.keys.partition_of(theirs.owner)

    assert not await queue.make_way(partition, [mine[0].owner, theirs.owner])
    assert await queue.make_way(partition, [mine[0].owner])
    order = [claim.task_id for claim in await queue.claim(partition, 10, 0)]
    assert order == [theirs.task_id, *(mine[number].task_id for number in (0, 2, 3, 4))]
    assert not await queue.make_way(partition, [mine[0].owner])


async def test_tasks_that_have_expired_are_not_put_behind(here: Deployment) -> None:
    store, queue, other = here.store(), here.queue(), neighbour(here)
    brief, theirs = here.new(retention=Retention("created", 50)), here.new(other)
    for new in (brief, theirs):
        await store.create(new, 10)

    await gone(store, brief)
    partition = here.keys.partition_of(theirs.owner)
    assert await queue.make_way(partition, [brief.owner])
    assert await store._client.command("XLEN", here.keys.queue(partition)) == 1


async def test_a_task_far_behind_in_the_queue_moves_closer_each_time(
    here: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_queue, "SEEN_ENTRIES", 4)
    monkeypatch.setattr(work_queue, "MOVED_ENTRIES", 2)
    store, queue, other = here.store(), here.queue(), neighbour(here)
    mine = [here.new() for _ in range(9)]
    theirs = here.new(other)
    for new in (*mine, theirs):
        await store.create(new, 100)
    partition = here.keys.partition_of(theirs.owner)
    seen = [await queue.make_way(partition, [mine[0].owner]) for _ in range(4)]
    assert seen == [False, False, False, True]
    claims = await queue.claim(partition, 100, 0)
    assert claims[0].task_id == theirs.task_id
    assert {claim.task_id for claim in claims} == {new.task_id for new in (*mine, theirs)}


async def test_a_look_that_finds_nobody_else_leaves_the_order_if_it_does_not_look_further(
    here: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_queue, "SEEN_ENTRIES", 4)
    monkeypatch.setattr(work_queue, "MOVED_ENTRIES", 2)
    store, queue = here.store(), here.queue()
    mine = [here.new() for _ in range(9)]
    for new in mine:
        await store.create(new, 100)
    partition = here.keys.partition_of(mine[0].owner)
    assert not await queue.make_way(partition, [mine[0].owner], further=False)
    claims = await queue.claim(partition, 100, 0)
    assert [claim.task_id for claim in claims] == [new.task_id for new in mine]


async def test_tasks_that_have_begun_stay_where_they_are(here: Deployment) -> None:
    store, queue, other = here.store(), here.queue(), neighbour(here)
    mine, theirs = here.new(), here.new(other)
    await store.create(mine, 10)
    claim = await here.claim_one(queue)
    await store.create(theirs, 10)
    assert await queue.make_way(claim.partition, [mine.owner])
    assert await queue.heartbeat(claim) == "ok"
    await queue.finish(claim, result={})
    assert [claim.task_id for claim in await claim_all(here)] == [theirs.task_id]


async def test_a_queue_that_nobody_has_made_yet_has_nobody_in_it(here: Deployment) -> None:
    assert not await here.queue().make_way(0, ["a" * 64])


async def test_in_a_cluster_too(cluster: str) -> None:
    here = Deployment(cluster)
    store, queue, other = here.store(), here.queue(), neighbour(here)
    mine, theirs = here.new(), here.new(other)
    for new in (mine, theirs):
        await store.create(new, 10)
    partition = here.keys.partition_of(mine.owner)
    assert await queue.make_way(partition, [mine.owner])
    assert [claim.task_id for claim in await queue.claim(partition, 10, 0)] == [theirs.task_id, mine.task_id]
    await here.aclose()
