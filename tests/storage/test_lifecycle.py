"""The life of a task from its creation to its end, on every kind of server."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from gateway.errors import LeaseLost, TaskIdTaken, TooManyTasks
from gateway.sealing.keyring import KeyRing, generate_entry
from gateway.tasks.model import Phase, Progress, Retention
from gateway.tasks.ports import Heartbeat, Kept, TaskQuestion
from gateway.tasks.retention import expires_ms
from tests.storage.deployments import BOB, MAX_TTL_MS, Deployment, eventually, everything, gone, seen

QUESTION = TaskQuestion(b"digest", "elicitation/create", {"message": "How many?"})
ANSWER = {"result": {"action": "accept", "content": {"n": 1}}}
RESULT: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}


async def test_a_created_task_reads_back_and_is_queued(here: Deployment) -> None:
    store, new = here.store(), here.new()
    created = await store.create(new, 10)
    assert (created.phase, created.generation, created.ttl_ms, created.ended_ms) == (Phase.QUEUED, 0, 60_000, None)
    read = await here.store().get(new.owner, new.task_id)
    assert read is not None
    assert read.now_ms >= created.now_ms
    for name in ("task_id", "tool", "phase", "created_ms", "updated_ms", "expires_ms", "ttl_ms", "form"):
        assert getattr(read, name) == getattr(created, name)
    assert read.capabilities == created.capabilities == {"elicitation": {}}


async def test_a_worker_gets_everything_that_the_creator_gave(here: Deployment) -> None:
    journal = {"flow": "f", "seed": b"s", "answers": {"k": [[b"d", ANSWER]]}, "steps": {"one": [1, 2**70]}, "new": 1}
    new = here.new(journal=journal, context={"level": "info"})
    await here.store().create(new, 10)
    claim = await here.claim_one(here.queue())
    assert (claim.owner, claim.task_id, claim.tool, claim.tool_version) == (new.owner, new.task_id, new.tool, 3)
    assert (claim.arguments, claim.principal, claim.context) == (new.arguments, new.principal, {"level": "info"})
    assert (claim.generation, claim.attempt, claim.max_attempts, claim.segments) == (1, 1, 3, 0)
    assert claim.journal == journal


async def test_an_anonymous_callers_task_stays_anonymous(here: Deployment) -> None:
    await here.store().create(here.new(None), 10)
    (claim,) = await here.claim(here.queue(), None)
    assert claim.principal is None


async def test_two_workers_claim_a_task_once(here: Deployment) -> None:
    store = here.store()
    for _ in range(20):
        await store.create(here.new(), 100)
    queues = [here.queue(f"w{number}") for number in range(4)]
    handed_out = await asyncio.gather(*(here.claim(queue, count=20) for queue in queues))
    claims = [claim for claims in handed_out for claim in claims]
    assert len(claims) == 20
    assert len({claim.task_id for claim in claims}) == 20


async def test_a_worker_that_waits_is_handed_a_task_as_it_is_created(here: Deployment) -> None:
    store, queue, new = here.store(), here.queue(), here.new()
    await here.claim(queue)
    waiting = asyncio.create_task(eventually(lambda: queue.claim(here.keys.partition_of(new.owner), 1)))
    await store.create(new, 10)
    (claim,) = await waiting
    assert claim.task_id == new.task_id


async def test_a_result_is_returned_and_the_journal_is_gone(here: Deployment) -> None:
    store, queue, new, claim = await here.begun()
    await queue.keep(claim, Kept(steps={"one": 1}, checkpoint={"version": 1, "value": 2, "logs": 0}))
    await queue.finish(claim, result=RESULT)
    view = await seen(store, new)
    assert (view.phase, view.result, view.error, view.opened) == (Phase.DONE, RESULT, None, True)
    assert view.ended_ms is not None
    left = await store._client.command("HKEYS", here.keys.place(new.owner, new.task_id).task)
    assert not {b"call", b"head", b"cp", b"s:one", b"entry"} & set(left)


async def test_an_error_is_returned_unchanged(here: Deployment) -> None:
    store, queue, new = await here.created()
    error = {"code": -32021, "message": "No", "data": {"requiredCapabilities": {}}}
    await queue.finish(await here.claim_one(queue), error=error)
    view = await seen(store, new)
    assert (view.phase, view.result, view.error) == (Phase.DONE, None, error)


async def test_a_finished_task_leaves_nothing_in_the_queue(here: Deployment) -> None:
    store, queue = here.store(), here.queue()
    for _ in range(5):
        await store.create(here.new(), 10)
    first, second, third, fourth, fifth = await here.claim(queue, count=5)
    await queue.finish(first, result=RESULT)
    await queue.wait(second, {"k": QUESTION}, second.journal)
    await store.cancel(third.owner, third.task_id)
    await queue.release(fourth, fourth.journal)
    await store.cancel(fourth.owner, fourth.task_id)
    name = here.keys.queue(here.keys.partition_of(here.owner()))
    assert await store._client.command("XLEN", name) == 1
    pending = await store._client.command("XPENDING", name, "workers")
    assert pending["pending"] == 1
    await queue.finish(fifth, result=RESULT)
    assert await store._client.command("XLEN", name) == 0


async def test_the_next_worker_finds_everything_that_was_kept(here: Deployment) -> None:
    _store, queue, _new, claim = await here.begun()
    await queue.keep(claim, Kept(steps={"one": 1}))
    await queue.keep(claim, Kept(steps={"two": None}, checkpoint={"version": 3, "value": [1], "logs": 2}))
    (again,) = await here.claim(here.queue("w2", lease_ms=0))
    assert again.journal["steps"] == {"one": 1, "two": None}
    assert again.journal["checkpoint"] == {"version": 3, "value": [1], "logs": 2}
    assert (again.generation, again.attempt) == (2, 2)


async def test_a_released_task_continues_elsewhere_without_a_counted_attempt(here: Deployment) -> None:
    store, queue, new, claim = await here.begun()
    await queue.release(claim, {**claim.journal, "steps": {"one": 1}, "legs": 7})
    view = await seen(store, new)
    assert view.phase is Phase.QUEUED
    again = await here.claim_one(here.queue("w2"))
    assert (again.attempt, again.generation, again.journal["steps"], again.journal["legs"]) == (1, 2, {"one": 1}, 7)


async def test_values_that_left_the_journal_leave_the_store(here: Deployment) -> None:
    journal = {"flow": "f", "answers": {"k": [[b"d", ANSWER]]}, "checkpoint": {"version": 1, "value": 1, "logs": 0}}
    queue = here.queue()
    await here.store().create(here.new(journal=journal), 10)
    await queue.release(await here.claim_one(queue), {"flow": "f"})
    assert (await here.claim_one(queue)).journal == {"flow": "f"}


async def test_a_waiting_task_shows_its_questions_until_each_is_answered(here: Deployment) -> None:
    store, queue, new, claim = await here.begun()
    await queue.wait(
        claim, {"a": QUESTION, "b": QUESTION}, {**claim.journal, "pending": {"a": b"digest", "b": b"digest"}}
    )
    view = await seen(store, new)
    assert view.phase is Phase.WAITING
    assert list(view.questions) == ["a", "b"]
    assert (view.questions["a"].key, view.questions["a"].params) == ("a", {"message": "How many?"})
    assert await here.claim(queue) == []
    steps: list[tuple[dict[str, Any], Phase, list[str]]] = [
        ({"a": ANSWER, "unknown": ANSWER}, Phase.WAITING, ["b"]),
        ({"a": {"result": "other"}, "b": ANSWER}, Phase.QUEUED, []),
    ]
    for answers, phase, left in steps:
        answered = await store.answer(new.owner, new.task_id, answers)
        assert answered is not None
        assert (answered.phase, list(answered.questions)) == (phase, left)
    again = await here.claim_one(queue)
    assert again.journal["answers"] == {"a": [[b"digest", ANSWER]], "b": [[b"digest", ANSWER]]}
    assert "pending" not in again.journal
    assert again.attempt == 1


async def test_a_question_asked_again_gets_a_key_that_was_never_used(here: Deployment) -> None:
    store, queue, new = await here.created()
    for wire_key in ("size", "size~2", "size~3"):
        claim = await here.claim_one(queue)
        await queue.wait(claim, {"size": QUESTION}, claim.journal)
        view = await seen(store, new)
        assert {name: question.key for name, question in view.questions.items()} == {wire_key: "size"}
        if wire_key != "size":
            same = await store.answer(new.owner, new.task_id, {"size": ANSWER})
            assert same is not None
            assert same.phase is Phase.WAITING
        await store.answer(new.owner, new.task_id, {wire_key: ANSWER})


async def test_an_answer_that_was_forgotten_does_not_come_back(here: Deployment) -> None:
    store, queue, new, claim = await here.begun()
    await queue.wait(claim, {"k": QUESTION}, claim.journal)
    await store.answer(new.owner, new.task_id, {"k": ANSWER})
    claim = await here.claim_one(queue)
    journal = {name: value for name, value in claim.journal.items() if name != "answers"}
    await queue.wait(claim, {"k": QUESTION}, journal)
    await store.answer(new.owner, new.task_id, {"k~2": {"result": 2}})
    assert (await here.claim_one(queue)).journal["answers"] == {"k": [[b"digest", {"result": 2}]]}


async def test_the_same_answer_from_two_replicas_queues_the_task_once(here: Deployment) -> None:
    _store, queue, new, claim = await here.begun()
    await queue.wait(claim, {"k": QUESTION}, claim.journal)
    await asyncio.gather(*(here.store().answer(new.owner, new.task_id, {"k": ANSWER}) for _ in range(4)))
    assert len(await here.claim(queue, count=10)) == 1


async def test_progress_and_its_message_are_returned(here: Deployment) -> None:
    store, queue, new, claim = await here.begun()
    for progress in (Progress(1, 4, "one"), Progress(2.5), Progress(3, None, "three")):
        await queue.keep(claim, Kept(progress=progress))
        view = await seen(store, new)
        assert view.progress == progress


async def test_segments_are_stored_once_and_in_order(here: Deployment) -> None:
    store, queue, new, claim = await here.begun()
    await queue.emit(claim, 1, {"text": "a"})
    await queue.emit(claim, 1, {"text": "not stored"})
    with pytest.raises(ValueError, match="segment 3"):
        await queue.emit(claim, 3, {"text": "too soon"})
    (claim,) = await here.claim(here.queue("w2", lease_ms=0))
    assert claim.segments == 1
    claim.segments = 0
    await queue.emit(claim, 1, {"text": "a worker that was behind"})
    await queue.emit(claim, 2, {"text": "b"})
    await queue.finish(claim, result=RESULT)
    assert await store.segments(new.owner, new.task_id) == [{"text": "a"}, {"text": "b"}]
    assert await store.segments(new.owner, new.task_id, after=1) == [{"text": "b"}]
    assert await queue.segments(new.owner, new.task_id, after=2) == []


@pytest.mark.parametrize("before", ["queued", "running", "waiting"])
async def test_a_task_is_cancelled_wherever_it_is(here: Deployment, before: str) -> None:
    store, queue, new = await here.created()
    claim = None
    if before != "queued":
        claim = await here.claim_one(queue)
    if claim is not None and before == "waiting":
        await queue.wait(claim, {"k": QUESTION}, claim.journal)
    view = await store.cancel(new.owner, new.task_id)
    assert view is not None
    assert (view.phase, dict(view.questions)) == (Phase.CANCELLED, {})
    assert view.ended_ms is not None
    assert await here.claim(queue) == []
    if claim is not None:
        assert await queue.heartbeat(claim) is Heartbeat.CANCELLED
        with pytest.raises(LeaseLost) as caught:
            await queue.finish(claim, result=RESULT)
        assert caught.value.cancelled


async def test_a_task_that_has_ended_cannot_be_cancelled(here: Deployment) -> None:
    store, queue, new = await here.created()
    await queue.finish(await here.claim_one(queue), result=RESULT)
    view = await store.cancel(new.owner, new.task_id)
    assert view is not None
    assert (view.phase, view.result) == (Phase.DONE, RESULT)


async def test_of_a_cancellation_and_an_end_at_once_one_wins(here: Deployment) -> None:
    store, queue = here.store(), here.queue()
    ends = set()
    for turn in range(20):
        new = here.new()
        await store.create(new, 100)
        claim = await here.claim_one(queue)
        both = [store.cancel(new.owner, new.task_id), queue.finish(claim, result=RESULT)]
        outcomes = await asyncio.gather(*(both if turn % 2 else reversed(both)), return_exceptions=True)
        view = await seen(store, new)
        lost = any(isinstance(outcome, LeaseLost) for outcome in outcomes)
        assert view.phase is (Phase.CANCELLED if lost else Phase.DONE)
        ends.add(view.phase)
    assert ends <= {Phase.CANCELLED, Phase.DONE}


async def test_a_heartbeat_keeps_a_task_from_being_redelivered(here: Deployment) -> None:
    store, queue, thief = here.store(), here.queue(lease_ms=300), here.queue("w2", lease_ms=300)
    await store.create(here.new(), 10)
    claim = await here.claim_one(queue)
    assert await queue.heartbeat(claim) is Heartbeat.OK
    assert await here.claim(thief) == []
    (again,) = await eventually(lambda: here.claim(thief))
    assert again.attempt == 2
    assert await queue.heartbeat(claim) is Heartbeat.LOST


async def test_a_worker_that_lost_its_lease_can_write_nothing(here: Deployment) -> None:
    store, queue, new = await here.created()
    stale = await here.claim_one(queue)
    (claim,) = await here.claim(here.queue("w2", lease_ms=0))
    before = await store._client.command("HGETALL", here.keys.place(new.owner, new.task_id).task)
    for write in (
        queue.keep(stale, Kept(steps={"late": 1}, progress=Progress(1))),
        queue.emit(stale, 1, {"text": "late"}),
        queue.wait(stale, {"k": QUESTION}, stale.journal),
        queue.release(stale, stale.journal),
        queue.finish(stale, result=RESULT),
    ):
        with pytest.raises(LeaseLost) as caught:
            await write
        assert not caught.value.cancelled
    assert await queue.heartbeat(stale) is Heartbeat.LOST
    assert await store._client.command("HGETALL", here.keys.place(new.owner, new.task_id).task) == before
    await here.queue("w2").finish(claim, result=RESULT)


async def test_writes_that_end_a_claim_can_be_repeated(here: Deployment) -> None:
    store, queue, new, claim = await here.begun()
    for _ in range(2):
        await queue.release(claim, claim.journal)
    claim = await here.claim_one(queue)
    for _ in range(2):
        await queue.wait(claim, {"k": QUESTION}, claim.journal)
    await store.answer(new.owner, new.task_id, {"k": ANSWER})
    (claim,) = await here.claim(queue, count=10)
    for _ in range(2):
        await queue.finish(claim, result=RESULT)
    assert await here.claim(queue) == []


async def test_a_task_over_which_too_many_workers_were_lost_fails(here: Deployment) -> None:
    store, thief, new = here.store(), here.queue(lease_ms=0), here.new(max_attempts=2)
    await store.create(new, 10)
    assert [claim.attempt for claim in await here.claim(thief)] == [1]
    assert [claim.attempt for claim in await here.claim(thief)] == [2]
    assert await here.claim(thief) == []
    view = await seen(store, new)
    assert view.phase is Phase.DONE
    assert view.error is not None
    assert view.error["code"] == -32603


async def test_no_more_tasks_are_stored_than_the_owner_may_have(here: Deployment) -> None:
    store, queue = here.store(), here.queue()
    first = here.new()
    await store.create(first, 2)
    await store.create(here.new(), 2)
    with pytest.raises(TooManyTasks) as caught:
        await store.create(here.new(), 2)
    assert 1 <= caught.value.retry_after_seconds <= 60
    await store.create(here.new(BOB), 2)
    await queue.finish((await here.claim(queue))[0], result=RESULT)
    with pytest.raises(TooManyTasks):
        await store.create(here.new(), 2)


async def test_room_comes_back_as_tasks_expire_and_others_stay_counted(here: Deployment) -> None:
    store, brief, lasting = here.store(), here.new(retention=Retention("created", 100)), here.new()
    await store.create(brief, 2)
    await store.create(lasting, 2)

    await gone(store, brief)
    assert (await store.totals())[Phase.QUEUED] == 1
    await store.create(here.new(), 2)
    with pytest.raises(TooManyTasks):
        await store.create(here.new(), 2)


async def test_a_worker_that_paused_before_its_claim_takes_nothing_from_the_next_worker(here: Deployment) -> None:
    store, slow, quick = here.store(), here.queue("slow"), here.queue("quick", lease_ms=0)
    await store.create(here.new(), 10)
    await here.claim(slow)
    await store.create(here.new(), 10)
    name = here.keys.queue(here.keys.partition_of(here.owner()))
    ((entry_id, fields),) = await slow._client.read_group("slow", "workers", name, 1, 0)
    claims = await here.claim(quick, count=10)
    assert len(claims) == 2
    assert await slow._claim(entry_id, fields) is None
    assert {await quick.heartbeat(claim) for claim in claims} == {Heartbeat.OK}


@pytest.mark.parametrize("task_id", ["mine", "{0}", "a}{b:c", "~!@#$%^&*()", "x" * 128])
async def test_an_id_is_used_once_by_each_owner(here: Deployment, task_id: str) -> None:
    store, queue = here.store(), here.queue()
    await store.create(here.new(task_id=task_id, request="first"), 1)
    await queue.emit(await here.claim_one(queue), 1, {"text": "a"})
    before = await everything(here)
    with pytest.raises(TaskIdTaken):
        await store.create(here.new(task_id=task_id, arguments={"city": "Rome"}, request="second"), 1)
    assert await everything(here) == before
    await store.create(here.new(BOB, task_id=task_id), 1)


async def test_an_id_can_be_used_again_when_its_task_has_expired(here: Deployment) -> None:
    store, queue, new, claim = await here.begun(task_id="mine", retention=Retention("ended", 1))
    await queue.emit(claim, 1, {"text": "a"})
    await queue.finish(claim, result=RESULT)

    await gone(store, new)
    await store.create(here.new(task_id="mine"), 1)
    assert await store.segments(new.owner, new.task_id) == []
    with pytest.raises(LeaseLost):
        await queue.emit(claim, 2, {"text": "b"})
    assert (await here.claim_one(queue)).segments == 0


@pytest.mark.parametrize("task_id", ["{0}", "a}{b:c", "~!@#$%^&*()", "x" * 128])
def test_ids_of_clients_do_not_move_keys_to_another_slot(task_id: str) -> None:
    keys = Deployment("redis://unused").keys
    (tag,) = {key.partition("{")[2].partition("}")[0] for key in keys.place("ab" * 32, task_id).keys}
    assert tag in {"0", "1"}


async def test_another_owner_can_neither_see_nor_touch_a_task(here: Deployment) -> None:
    store, queue, new, bob = here.store(), here.queue(), here.new(request="request"), here.owner(BOB)
    await store.create(new, 10)
    claim = await here.claim_one(queue)
    await queue.emit(claim, 1, {"text": "a"})
    await queue.wait(claim, {"k": QUESTION}, claim.journal)
    before = await store._client.command("HGETALL", here.keys.place(new.owner, new.task_id).task)
    assert await store.get(bob, new.task_id) is None
    assert await store.answer(bob, new.task_id, {"k": ANSWER}) is None
    assert await store.cancel(bob, new.task_id) is None
    assert await store.segments(bob, new.task_id) == []
    assert await store.delete(bob, new.task_id) is None
    assert await store.deliver(bob, new.task_id, "stream", 1000) is False
    assert await store.of_request(bob, new.request) is None
    assert await store.page(bob, None, 10) == ([], None)
    assert await store._client.command("HGETALL", here.keys.place(new.owner, new.task_id).task) == before


async def test_retention_from_the_end_counts_from_the_end(here: Deployment) -> None:
    store, queue, new = here.store(), here.queue(), here.new(retention=Retention("ended", 100))
    created = await store.create(new, 10)
    assert created.ttl_ms == 600_000
    claim = await here.claim_one(queue)
    await queue.emit(claim, 1, {"text": "a"})
    await queue.finish(claim, result=RESULT)
    view = await store.get(new.owner, new.task_id)
    if view is not None:  # a slow machine may be late
        assert view.ended_ms is not None
        assert view.expires_ms == view.ended_ms + 100

    await gone(store, new)
    assert await store.segments(new.owner, new.task_id) == []


@pytest.mark.parametrize("before", ["queued", "running", "waiting"])
async def test_retention_from_the_end_counts_from_a_cancellation_too(here: Deployment, before: str) -> None:
    store, queue, new = here.store(), here.queue(), here.new(retention=Retention("ended", 50))
    await store.create(new, 1)
    if before != "queued":
        claim = await here.claim_one(queue)
        await queue.emit(claim, 1, {"text": "a"})
        if before == "waiting":
            await queue.wait(claim, {"k": QUESTION}, claim.journal)
    view = await store.cancel(new.owner, new.task_id)
    assert view is not None
    assert view.ended_ms is not None
    assert (view.expires_ms, view.ttl_ms) == (view.ended_ms + 50, view.ended_ms + 50 - view.created_ms)

    await gone(store, new)
    await store.create(here.new(), 1)
    assert await store.segments(new.owner, new.task_id) == []


async def test_a_reader_that_reads_the_task_first_has_all_segments_when_it_has_ended(here: Deployment) -> None:
    store, queue, new, count = here.store(), here.queue(), here.new(retention=Retention("ended", 60_000)), 30
    await store.create(new, 10)
    claim = await here.claim_one(queue)

    async def work() -> None:
        for number in range(count):
            await queue.emit(claim, number + 1, {"n": number})
        await queue.finish(claim, result=RESULT)

    working, held = asyncio.create_task(work()), 0
    while True:
        view = await seen(store, new)
        blocks = await store.segments(new.owner, new.task_id)
        assert len(blocks) >= held
        held = len(blocks)
        if view.phase.ended:
            break
    assert held == count
    await working


async def test_a_retention_is_cut_to_the_longest_allowed(here: Deployment) -> None:
    view = await here.store().create(here.new(retention=Retention("created", 10**12)), 10)
    assert view.ttl_ms == 600_000


@pytest.mark.parametrize(
    "retention", [Retention("created", 9_000), Retention("ended", 9_000), Retention("ended", 10**9)]
)
async def test_the_servers_arithmetic_of_expiry_is_the_models(here: Deployment, retention: Retention) -> None:
    store, queue, new = here.store(), here.queue(), here.new(retention=retention)
    created = await store.create(new, 10)
    assert created.expires_ms == expires_ms(retention, created.created_ms, None, MAX_TTL_MS)
    await queue.finish(await here.claim_one(queue), result=RESULT)
    view = await seen(store, new)
    assert view.expires_ms == expires_ms(retention, view.created_ms, view.ended_ms, MAX_TTL_MS)
    kept = min(retention.ms, MAX_TTL_MS) if retention.counts_from == "ended" else None
    assert created.kept_ms == view.kept_ms == kept


async def test_a_task_that_expired_in_the_queue_or_in_a_worker_is_forgotten(here: Deployment) -> None:
    store, queue = here.store(), here.queue()
    running, queued = (here.new(retention=Retention("created", 1500)) for _ in range(2))
    await store.create(running, 10)
    claim = await here.claim_one(queue)
    await store.create(queued, 10)

    await gone(store, queued)
    assert await here.claim(queue) == []
    assert await queue.heartbeat(claim) is Heartbeat.LOST
    with pytest.raises(LeaseLost):
        await queue.finish(claim, result=RESULT)
    assert await store._client.command("XLEN", here.keys.queue(claim.partition)) == 0


async def test_totals_count_the_living_by_phase(here: Deployment) -> None:
    store, queue = here.store(), here.queue()
    for principal in (None, BOB):
        await store.create(here.new(principal), 10)
    for _ in range(3):
        await store.create(here.new(), 10)
    first, second = await here.claim(queue, count=2)
    await queue.finish(first, result=RESULT)
    await queue.wait(second, {"k": QUESTION}, second.journal)
    brief = here.new(retention=Retention("created", 30))
    await store.create(brief, 10)

    async def counted() -> bool:
        totals = await store.totals()
        done, waiting = totals[Phase.DONE], totals[Phase.WAITING]
        return (totals[Phase.QUEUED], done, waiting, totals[Phase.RUNNING]) == (3, 1, 1, 0)

    await eventually(counted)


async def test_a_worker_that_leaves_is_forgotten_unless_it_still_holds_something(here: Deployment) -> None:
    store, queue = here.store(), here.queue()
    await store.create(here.new(), 10)
    claim = await here.claim_one(queue)
    name = here.keys.queue(claim.partition)
    await queue.leave()
    assert len(await store._client.command("XINFO", "CONSUMERS", name, "workers")) == 1
    await queue.release(claim, claim.journal)
    await queue.leave()
    assert await store._client.command("XINFO", "CONSUMERS", name, "workers") == []


async def test_fields_count_by_the_key_that_sealed_them(here: Deployment) -> None:
    old, new = (KeyRing.parse(generate_entry(os.urandom)) for _ in range(2))
    both = KeyRing((*new.keys, *old.keys))
    store, queue, task = here.store(old), here.queue("w1", both), here.new()

    def fields(does: str, ring: KeyRing) -> float:
        labels = {"key_id": ring.sealing_key.key_id.hex()}
        return here.telemetry.registry.get_sample_value(f"gateway_task_fields_{does}_total", labels) or 0

    await store.create(task, 10)
    sealed = fields("sealed", old)
    assert sealed > 2
    claim = await here.claim_one(queue)
    assert (fields("opened", old), fields("opened", new)) == (sealed, 0)
    await queue.finish(claim, result=RESULT)
    assert (fields("sealed", old), fields("sealed", new)) == (sealed, 1)
    store._records._holder.replace(both)
    await seen(store, task)
    assert fields("opened", new) == 1


@pytest.mark.parametrize("is_error", [False, True])
async def test_a_task_that_comes_with_its_result_is_done_and_nobody_runs_it(here: Deployment, is_error: bool) -> None:
    store, queue = here.store(), here.queue()
    result = {"content": [{"type": "text", "text": "why"}], "isError": is_error, "structuredContent": {"a": 1}}
    new = here.new(result=result)
    created = await store.create(new, 10)
    read = await store.get(new.owner, new.task_id)
    assert read is not None
    for view in (created, read):
        assert (view.phase, view.result, view.ended_ms) == (Phase.DONE, result, view.created_ms)
    assert await here.claim(queue) == []
    (listed,) = (await store.page(new.owner, None, 10)).views
    assert listed.phase is Phase.DONE
    assert listed.result == ({"isError": True, "content": result["content"]} if is_error else {})
    assert (await store.totals())[Phase.DONE] == 1
    counted, real = here.kept_bytes()
    assert counted == real
    cancelled = await store.cancel(new.owner, new.task_id)
    assert cancelled is not None
    assert cancelled.phase is Phase.DONE
