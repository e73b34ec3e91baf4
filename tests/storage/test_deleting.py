"""Tasks that their owner deletes or finds by the request that created them; the right to deliver their questions."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
import redis

from gateway.errors import LeaseLost, TaskIdTaken, TooManyTasks
from gateway.storage import RedisTaskStore, task_store
from gateway.storage.lua import task_scripts
from gateway.tasks.model import Phase, Progress, Retention, TaskView
from gateway.tasks.ports import Heartbeat, Kept, TaskQuestion
from tests.storage.deployments import BOB, Deployment, eventually, server_now_ms

QUESTION = TaskQuestion(b"digest", "elicitation/create", {"message": "How many?"})
RESULT = {"content": [{"type": "text", "text": "done"}]}


async def bring_to(here: Deployment, store: RedisTaskStore, task_id: str, phase: str) -> None:
    """Create a task and bring it to a phase; if it runs, it emits something."""
    queue, new = here.queue(), here.new(task_id=task_id, request="request")
    await store.create(new, 10)
    if phase == "queued":
        return
    claim = await here.claim_one(queue)
    await queue.keep(claim, Kept(steps={"one": 1}, progress=Progress(1, 2, "half")))
    await queue.emit(claim, 1, {"text": "a"})
    if phase == "waiting":
        await queue.wait(claim, {"k": QUESTION}, claim.journal)
    elif phase == "done":
        await queue.finish(claim, result=RESULT)
    elif phase == "cancelled":
        await store.cancel(new.owner, task_id)


@pytest.mark.parametrize("phase", list(Phase))
async def test_a_deleted_task_is_unknown_wherever_it_was(here: Deployment, phase: str) -> None:
    store, mine = here.store(), here.owner()
    await bring_to(here, store, "mine", phase)
    was = await store.delete(mine, "mine")
    assert was is not None
    assert (was.task_id, was.phase, was.result) == ("mine", phase, RESULT if phase == "done" else None)
    assert await store.get(mine, "mine") is None
    assert await store.answer(mine, "mine", {"k": {"result": 1}}) is None
    assert await store.cancel(mine, "mine") is None
    assert await store.delete(mine, "mine") is None
    assert await store.deliver(mine, "mine", "stream", 1000) is False
    assert await store.segments(mine, "mine") == []
    assert await store.page(mine, None, 10) == ([], None)
    assert await store.of_request(mine, "request") in ("mine", None)
    assert set((await store.totals()).values()) == {0}
    assert await here.claim(here.queue("w2", lease_ms=0)) == []
    assert await store._client.command("XLEN", here.keys.queue(here.keys.partition_of(mine))) == 0


@pytest.mark.parametrize("phase", list(Phase))
async def test_of_a_deleted_task_nothing_is_kept_but_its_id(here: Deployment, phase: str) -> None:
    store, place = here.store(), here.keys.place(here.owner(), "mine")
    await bring_to(here, store, "mine", phase)
    await store.delete(here.owner(), "mine")
    assert await store._client.command("HKEYS", place.task) == [b"deleted"]
    assert await store._client.command("EXISTS", place.segments, here.keys.owner_index(here.owner())) == 0


@pytest.mark.parametrize("phase", list(Phase))
async def test_an_id_that_the_client_chose_stays_taken_and_too_many_of_them_count_for_the_quota(
    here: Deployment, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_store, "DELETED_IDS", 1)
    store, mine = here.store(), here.owner()
    await bring_to(here, store, "mine", phase)
    assert await store.delete(mine, "mine", chosen=True) is not None
    with pytest.raises(TaskIdTaken):
        await store.create(here.new(task_id="mine"), 1)
    await store.create(here.new(task_id="other"), 1)
    assert await store.delete(mine, "other", chosen=True) is not None
    with pytest.raises(TooManyTasks):
        await store.create(here.new(), 1)
    await store.create(here.new(task_id="third"), 2)
    assert [view.task_id for view in (await store.page(mine, None, 10)).views] == ["third"]


async def test_an_id_of_ours_is_remembered_for_as_long_as_a_repeat_may_take(here: Deployment) -> None:
    store, place = here.store(), here.keys.place(here.owner(), "mine")
    await store.create(here.new(task_id="mine", retention=Retention("created", 600_000)), 10)
    before = await store._client.command("PTTL", place.task)
    await store.delete(here.owner(), "mine")
    assert 0 < await store._client.command("PTTL", place.task) <= task_scripts.DELETED_MS < before


@pytest.mark.parametrize("phase", list(Phase))
async def test_the_id_of_a_deleted_task_stays_taken_and_its_place_in_the_quota_is_free(
    here: Deployment, phase: str
) -> None:
    store = here.store()
    await bring_to(here, store, "mine", phase)
    with pytest.raises(TooManyTasks):
        await store.create(here.new(), 1)
    await store.delete(here.owner(), "mine")
    for quota in (0, 1):
        with pytest.raises(TaskIdTaken):
            await store.create(here.new(task_id="mine"), quota)
    await store.create(here.new(), 1)


@pytest.mark.parametrize("retention", [Retention("created", 60_000), Retention("ended", 60_000)])
@pytest.mark.parametrize("ended", [False, True])
async def test_the_id_stays_taken_until_the_task_would_have_expired(
    here: Deployment, retention: Retention, ended: bool
) -> None:
    store, queue, new = await here.created(retention=retention)
    if ended:
        await queue.finish(await here.claim_one(queue), result=RESULT)
    view = await store.get(new.owner, new.task_id)
    await store.delete(new.owner, new.task_id)
    left_ms = await store._client.command("PTTL", here.keys.place(new.owner, new.task_id).task)
    now_ms = await server_now_ms(store)
    assert view is not None
    assert 0 < left_ms <= 60_000
    if retention.counts_from == "created" or ended:  # otherwise the task ended as it was deleted
        assert now_ms + left_ms >= view.expires_ms


async def test_the_id_of_a_deleted_task_is_free_once_the_task_would_have_expired(here: Deployment) -> None:
    store, new = await here.stored(task_id="mine", retention=Retention("created", 100))
    await store.delete(new.owner, "mine")

    async def created() -> bool:
        try:
            await store.create(here.new(task_id="mine"), 1)
        except TaskIdTaken:
            return False
        return True

    await eventually(created)


async def test_the_worker_of_a_deleted_task_is_notified_and_can_write_nothing(here: Deployment) -> None:
    store, queue, new = here.store(), here.queue(), here.new()
    async with aclosing(here.queue("w2").cancellations()) as cancelled:
        told = asyncio.ensure_future(anext(cancelled))
        await eventually(lambda: subscribed(here))
        await store.create(new, 10)
        claim = await here.claim_one(queue)
        await store.delete(new.owner, new.task_id)
        assert await told == (new.owner, new.task_id)
    assert await queue.heartbeat(claim) is Heartbeat.CANCELLED
    for write in (
        queue.keep(claim, Kept(steps={"late": 1}, progress=Progress(1))),
        queue.emit(claim, 1, {"text": "late"}),
        queue.wait(claim, {"k": QUESTION}, claim.journal),
        queue.release(claim, claim.journal),
        queue.finish(claim, result=RESULT),
    ):
        with pytest.raises(LeaseLost) as caught:
            await write
        assert caught.value.cancelled
    assert await store._client.command("HKEYS", here.keys.place(new.owner, new.task_id).task) == [b"deleted"]
    assert await store.segments(new.owner, new.task_id) == []


async def subscribed(here: Deployment) -> bool:
    with redis.Redis.from_url(here.url) as client:
        return [count for _, count in client.pubsub_numsub(here.keys.cancellations())] == [1]


async def test_listeners_hear_of_a_deletion(here: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_store, "RECHECK_SECONDS", 1000)
    store, new = await here.stored()
    async with aclosing(here.store().watch(new.owner, [new.task_id])) as hints:
        await anext(hints)
        await store.delete(new.owner, new.task_id)
        assert await anext(hints) == new.task_id


async def test_of_deletions_at_once_one_finds_the_task(here: Deployment) -> None:
    _store, new = await here.stored()
    found = await asyncio.gather(*(here.store().delete(new.owner, new.task_id) for _ in range(4)))
    assert [view.task_id for view in found if isinstance(view, TaskView)] == [new.task_id]


async def test_deleting_leaves_the_task_of_another_owner_with_the_same_id(here: Deployment) -> None:
    store, mine, other = here.store(), here.new(task_id="same"), here.new(BOB, task_id="same")
    for new in (mine, other):
        await store.create(new, 10)
    await store.delete(mine.owner, "same")
    assert await store.get(mine.owner, "same") is None
    assert await store.get(other.owner, "same") is not None
    assert [view.task_id for view in (await store.page(other.owner, None, 10)).views] == ["same"]


# Requests that created tasks


async def test_a_task_is_found_by_the_request_that_created_it_and_by_its_owner_alone(here: Deployment) -> None:
    store, mine, other, silent = here.store(), here.new(request="r"), here.new(BOB, request="r"), here.new()
    for new in (mine, other, silent):
        await store.create(new, 10)
    assert await here.store().of_request(mine.owner, "r") == mine.task_id
    assert await store.of_request(other.owner, "r") == other.task_id
    assert await store.of_request(here.owner(None), "r") is None
    assert await store.of_request(mine.owner, "") is None


async def test_of_two_tasks_of_one_request_the_newer_is_found(here: Deployment) -> None:
    store, first, second = here.store(), here.new(request="r"), here.new(request="r")
    for new in (first, second):
        await store.create(new, 10)
    await store.delete(first.owner, first.task_id)
    assert await store.of_request(first.owner, "r") == second.task_id


async def test_a_task_that_could_not_be_created_is_found_by_no_request(here: Deployment) -> None:
    store = here.store()
    await store.create(here.new(task_id="mine", request="first"), 1)
    with pytest.raises(TaskIdTaken):
        await store.create(here.new(task_id="mine", request="second"), 1)
    with pytest.raises(TooManyTasks):
        await store.create(here.new(request="third"), 1)
    assert [await store.of_request(here.owner(), name) for name in ("first", "second", "third")] == ["mine", None, None]


@pytest.mark.parametrize("end", ["deleted", "expired"])
async def test_requests_whose_tasks_are_gone_are_forgotten_as_others_come(here: Deployment, end: str) -> None:
    store, lasting = here.store(), [here.new(request=f"lasting-{number}") for number in range(5)]
    for new in lasting:
        await store.create(new, 1000)
    brief = [here.new(request=f"brief-{number}", retention=Retention("created", 100)) for number in range(100)]
    for new in brief:
        await store.create(new, 1000)
        if end == "deleted":
            await store.delete(new.owner, new.task_id)

    async def gone() -> bool:
        return await store.get(brief[-1].owner, brief[-1].task_id) is None

    await eventually(gone)
    for _ in range(100):
        new = here.new(request="again")
        await store.create(new, 1000)
        await store.delete(new.owner, new.task_id)
    assert await store._client.command("HLEN", here.keys.requests(here.owner())) < 20
    for new in lasting:
        assert await store.of_request(new.owner, new.request) == new.task_id


# The right to deliver questions


async def test_one_stream_at_a_time_may_deliver(here: Deployment) -> None:
    store, new, other = here.store(), here.new(), here.new()
    for task in (new, other):
        await store.create(task, 10)
    assert [await store.deliver(new.owner, new.task_id, name, 60_000) for name in "abab"] == [True, False, True, False]
    assert await store.deliver(other.owner, other.task_id, "b", 60_000)
    attempts = (here.store().deliver(other.owner, other.task_id, name, 60_000) for name in "acde")
    assert await asyncio.gather(*attempts) == [False] * 4


async def test_the_right_passes_on_when_it_runs_out(here: Deployment) -> None:
    store, new = await here.stored()
    assert await store.deliver(new.owner, new.task_id, "a", 100)
    await eventually(lambda: store.deliver(new.owner, new.task_id, "b", 60_000))
    assert not await store.deliver(new.owner, new.task_id, "a", 60_000)


async def test_prolonging_counts_from_then_on(here: Deployment) -> None:
    store, new = await here.stored()
    for ms in (60_000, 1):
        assert await store.deliver(new.owner, new.task_id, "a", ms)
    await eventually(lambda: store.deliver(new.owner, new.task_id, "b", 60_000))


async def test_a_right_that_is_given_back_is_free_and_listeners_hear_of_it(
    here: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_store, "RECHECK_SECONDS", 1000)
    store, new = await here.stored()
    await store.deliver(new.owner, new.task_id, "a", 60_000)
    async with aclosing(here.store().watch(new.owner, [new.task_id])) as hints:
        await anext(hints)
        assert not await store.deliver(new.owner, new.task_id, "b", 0)
        assert await store.deliver(new.owner, new.task_id, "a", 0)
        assert await anext(hints) == new.task_id
    assert await store.deliver(new.owner, new.task_id, "b", 60_000)


async def test_the_right_outlasts_questions_and_ends_with_the_task(here: Deployment) -> None:
    store, queue, new = await here.created()
    assert await store.deliver(new.owner, new.task_id, "a", 60_000)
    claim = await here.claim_one(queue)
    await queue.wait(claim, {"k": QUESTION}, claim.journal)
    assert not await store.deliver(new.owner, new.task_id, "b", 60_000)
    await store.answer(new.owner, new.task_id, {"k": {"result": 1}})
    claim = await here.claim_one(queue)
    assert not await store.deliver(new.owner, new.task_id, "b", 60_000)
    await queue.finish(claim, result=RESULT)
    assert [await store.deliver(new.owner, new.task_id, name, 60_000) for name in "ab"] == [False, False]
    assert b"stream" not in await store._client.command("HKEYS", here.keys.place(new.owner, new.task_id).task)
