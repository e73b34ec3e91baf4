"""Servers that die, hang, fill up, forget scripts or do not meet the requirements; replies that get lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import ReadOnlyError, RedisError, ResponseError

from gateway.errors import (
    ConfigurationError,
    LeaseLost,
    RejectReason,
    TaskIdTaken,
    TaskStoreAway,
    TaskStoreDown,
    ValueTooLarge,
)
from gateway.observability.process_metrics import ProcessTelemetry
from gateway.sealing.keyring import KeyRing, generate_entry
from gateway.storage import RedisClient, RedisTaskStore, connect
from gateway.storage import client as storage_client
from gateway.storage import deployment as start_up
from gateway.storage import outage_log as outages
from gateway.storage.lua.shared_scripts import SPEND
from gateway.storage.lua.task_scripts import ANSWER, CANCEL, CREATE, DELIVER, Script
from gateway.storage.retries import NotReached, did_nothing, repeatable
from gateway.tasks.model import Phase, Progress, Retention
from gateway.tasks.ports import Heartbeat, Kept, NewTask, Spending, Spent, TaskQuestion, UseEnd
from loadtest.cluster import free_port
from tests.storage.deployments import PARTITIONS, Deployment, eventually, keys_without_lifetime, rotate, seen
from tests.storage.servers import Server, make_certificate

QUESTION = TaskQuestion(b"digest", "elicitation/create", {"message": "secret question"})


@pytest.fixture
async def there(own_server: Server) -> AsyncIterator[Deployment]:
    """A deployment on a server that the test may stop, fill or restart."""
    deployment = Deployment(own_server.url)
    yield deployment
    await deployment.aclose()


async def answers_again(store: RedisTaskStore, owner: str, task_id: str) -> bool:
    try:
        return await store.get(owner, task_id) is not None
    except TaskStoreDown:
        return False


async def test_acknowledged_writes_survive_a_killed_server(there: Deployment, own_server: Server) -> None:
    store, queue = there.store(), there.queue()
    queued, held, waiting = (there.new() for _ in range(3))
    for new in (waiting, held):
        await store.create(new, 10)
    first, second = await there.claim(queue, count=2)
    await queue.wait(first, {"k": QUESTION}, first.journal)
    await queue.keep(second, Kept(steps={"one": 1}))
    await queue.emit(second, 1, {"text": "a"})
    await store.create(queued, 10)
    own_server.kill()
    with pytest.raises(TaskStoreDown):
        await store.get(held.owner, held.task_id)
    with pytest.raises(TaskStoreDown):
        await there.claim(queue)
    own_server.start()
    await eventually(lambda: answers_again(store, held.owner, held.task_id))
    await queue.keep(second, Kept(steps={"two": 2}))
    await queue.finish(second, result={"content": []})
    await store.answer(waiting.owner, waiting.task_id, {"k": {"result": 1}})
    again = await there.claim(queue, count=10)
    assert {claim.task_id for claim in again} == {queued.task_id, waiting.task_id}
    assert await store.segments(held.owner, held.task_id) == [{"text": "a"}]


async def test_a_server_that_hangs_is_given_up_and_found_again(there: Deployment, own_server: Server) -> None:
    store, new = await there.stored()
    with own_server.stopped():
        attempts = [store.get(new.owner, new.task_id) for _ in range(10)]
        outcomes = await asyncio.gather(*attempts, return_exceptions=True)
    assert all(isinstance(outcome, TaskStoreDown) for outcome in outcomes)
    await eventually(lambda: answers_again(store, new.owner, new.task_id))


async def test_a_script_that_arrives_after_its_deadline_does_nothing(there: Deployment, own_server: Server) -> None:
    store, queue = there.store(), there.queue()
    asking, unwanted, gone, late = (there.new() for _ in range(4))
    await store.create(asking, 10)
    claim = await there.claim_one(queue)
    await queue.wait(claim, {"k": QUESTION}, claim.journal)
    for new in (unwanted, gone):
        await store.create(new, 10)
    senders = [there.store() for _ in range(5)]  # each has its own connection, so everything is sent
    for sender in senders:
        await sender.create(there.new(), 10)
    for script in (ANSWER, CANCEL, DELIVER, SPEND):  # so no script has to be sent again with its text
        own_server.ask("SCRIPT", "LOAD", script.text)
    with own_server.stopped():
        given_up = await asyncio.gather(
            senders[0].create(late, 10),
            senders[1].answer(asking.owner, asking.task_id, {"k": {"result": 1}}),
            senders[2].cancel(unwanted.owner, unwanted.task_id),
            senders[3].deliver(gone.owner, gone.task_id, "stream", 60_000),
            spent(senders[4], asking.owner),
            return_exceptions=True,
        )
    assert all(isinstance(error, TaskStoreDown) for error in given_up)
    await eventually(partial(answers_again, store, asking.owner, asking.task_id))
    views = [await store.get(new.owner, new.task_id) for new in (asking, unwanted, late)]
    assert [view and view.phase for view in views] == [Phase.WAITING, Phase.QUEUED, None]
    assert await store.deliver(gone.owner, gone.task_id, "other", 60_000)
    assert (await spent(store, asking.owner, digest=b"other")).outcome is Spending.FIRST


@pytest.mark.slow
async def test_while_a_server_is_known_to_be_silent_nothing_is_sent_that_changes_anything(
    there: Deployment, own_server: Server
) -> None:
    store, first, second = there.store(), there.new(), there.new()
    await store.check()
    with own_server.stopped():
        with pytest.raises(TaskStoreDown) as unknown:
            await store.get(first.owner, first.task_id)
        with pytest.raises(TaskStoreAway):
            await store.create(second, 10)
    assert not isinstance(unknown.value, TaskStoreAway)
    await store.create(first, 10)
    assert await store.get(second.owner, second.task_id) is None


@pytest.mark.parametrize("seconds", [3600, -3600, -1.5])
async def test_a_server_whose_clock_is_set_is_asked_for_its_time_again(here: Deployment, seconds: float) -> None:
    store, new = here.store(), here.new()
    await store.check()
    await store._client.run(SPEND, ["key"], ["0", "0", 1, 1])
    clocks = store._client._clocks
    known = clocks.time_ms("")
    assert known is not None
    clocks.learn("", int(known - seconds * 1000))  # as if its clock were ahead of what is known by so much
    await store.create(new, 10)
    assert await store.get(new.owner, new.task_id) is not None


@pytest.mark.parametrize("told", [ResponseError("LATE"), ReadOnlyError("replica"), NotReached("refused")])
async def test_a_command_sent_twice_may_have_taken_effect_whatever_the_second_reply_is(told: RedisError) -> None:
    lost = ConnectionLost("closed")

    def sending(*outcomes: Any) -> Callable[[], Awaitable[Any]]:
        left = list(outcomes)

        async def send() -> Any:
            outcome = left.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return send

    assert did_nothing(told)
    assert not did_nothing(lost)
    with pytest.raises(ConnectionLost) as raised:
        await repeatable(sending(lost, told))
    assert raised.value is lost
    assert await repeatable(sending(lost, [b"done", told])) == [b"done", lost]
    with pytest.raises(type(told)) as first:
        await repeatable(sending(told, b"never asked"))
    assert first.value is told


async def test_failures_are_counted_by_kind_and_replies_of_the_protocol_are_not(
    there: Deployment, own_server: Server
) -> None:
    store, queue, new = there.store(), there.queue(), there.new()
    await store.check()
    await store.check()  # the consumer groups exist already
    await store.create(new, 10)
    await there.claim(queue)
    own_server.ask("SCRIPT", "FLUSH")
    assert await store.get(new.owner, new.task_id) is not None
    assert redis_errors(there) == {}
    with pytest.raises(TaskStoreDown):
        await store._client.command("LPUSH", there.keys.place(new.owner, new.task_id).task, "x")
    assert redis_errors(there) == {"other": 1}
    with own_server.stopped(), pytest.raises(TaskStoreDown):
        await store.get(new.owner, new.task_id)
    assert redis_errors(there) == {"other": 1, "timeout": 1}
    own_server.kill()
    with pytest.raises(TaskStoreDown):
        await store.get(new.owner, new.task_id)
    assert redis_errors(there) == {"other": 1, "timeout": 1, "connection": 1}


async def test_any_server_that_is_full_is_counted_as_full(here: Deployment, server: Server) -> None:
    store = here.store()
    await store.check()
    server.ask("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(TaskStoreDown):
            await store.create(here.new(), 10)
    finally:
        server.ask("CONFIG", "SET", "maxmemory", "0")
    assert redis_errors(here) == {"full": 1}


def redis_errors(deployment: Deployment) -> dict[str, float]:
    """Return the counted errors, by kind."""
    (family,) = [family for family in deployment.telemetry.registry.collect() if family.name == "gateway_redis_errors"]
    totals = [sample for sample in family.samples if sample.name == "gateway_redis_errors_total"]
    return {sample.labels["kind"]: sample.value for sample in totals if sample.value}


@pytest.fixture
def short_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make outages end a moment after the last failure."""
    monkeypatch.setattr(outages, "QUIET_SECONDS", 0.5)


@pytest.mark.usefixtures("short_quiet")
async def test_an_outage_is_logged_once_and_so_is_its_end(
    there: Deployment, own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    new = there.new()
    stores = [there.store() for _ in range(3)]
    await stores[0].create(new, 10)
    own_server.kill()
    for store in stores:
        with pytest.raises(TaskStoreDown):
            await store.get(new.owner, new.task_id)
    await stores.pop().aclose()
    own_server.start()
    for store in stores:
        await eventually(partial(answers_again, store, new.owner, new.task_id))
    assert outages_told(caplog) == ["not available"]
    await eventually(partial(ends, stores[0], new, caplog))
    for store in stores:
        assert await answers_again(store, new.owner, new.task_id)
    assert outages_told(caplog) == ["not available", "available again"]


async def ends(store: RedisTaskStore, new: NewTask, caplog: pytest.LogCaptureFixture) -> bool:
    """Read a task; return whether the outage is over after that."""
    return await answers_again(store, new.owner, new.task_id) and "available again" in outages_told(caplog)


@pytest.mark.usefixtures("short_quiet")
async def test_a_full_server_where_reads_work_and_writes_do_not_is_one_outage(
    there: Deployment, own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    store, new = await there.stored()
    own_server.ask("CONFIG", "SET", "maxmemory", "1")
    for _ in range(20):
        with pytest.raises(TaskStoreAway):
            await store.create(there.new(), 10)
        assert await store.get(new.owner, new.task_id) is not None
    own_server.ask("CONFIG", "SET", "maxmemory", "0")
    await store.create(there.new(), 10)
    assert outages_told(caplog) == ["not available"]
    await eventually(partial(ends, store, new, caplog))
    assert outages_told(caplog) == ["not available", "available again"]


@pytest.mark.usefixtures("short_quiet")
async def test_the_end_of_an_outage_is_logged_even_if_the_client_that_noticed_it_is_gone(
    there: Deployment, own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    own_server.kill()
    passing, lasting = there.store(), there.store()
    with pytest.raises(TaskStoreDown):
        await passing.check()
    await passing.aclose()
    own_server.start()
    await eventually(lambda: checks(lasting))
    await eventually(partial(ends_by_check, lasting, caplog))
    assert outages_told(caplog) == ["not available", "available again"]


async def ends_by_check(store: RedisTaskStore, caplog: pytest.LogCaptureFixture) -> bool:
    return await checks(store) and "available again" in outages_told(caplog)


async def checks(store: RedisTaskStore) -> bool:
    try:
        await store.check()
    except TaskStoreDown:
        return False
    return True


def outages_told(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [record.getMessage() for record in caplog.records if record.name == "gateway.storage"]
    return [text.removeprefix("task store is ") for text in texts]


async def test_a_full_server_takes_nothing_new_and_still_lets_tasks_end(there: Deployment, own_server: Server) -> None:
    store, queue = there.store(), there.queue()
    for _ in range(4):
        await store.create(there.new(), 10)
    first, second, third, fourth = await there.claim(queue, count=4)
    own_server.ask("CONFIG", "SET", "maxmemory", "1")
    refused = there.new()
    with pytest.raises(TaskStoreDown):
        await store.create(refused, 10)
    with pytest.raises(TaskStoreDown):
        await queue.keep(first, Kept(steps={"one": 1}))
    await queue.finish(first, result={"content": []})
    await queue.wait(second, {"k": QUESTION}, second.journal)
    await queue.release(third, third.journal)
    assert await store.delete(fourth.owner, fourth.task_id) is not None
    own_server.ask("CONFIG", "SET", "maxmemory", "0")
    assert await store.get(refused.owner, refused.task_id) is None
    totals = await store.totals()
    assert totals == {**dict.fromkeys(Phase, 0), Phase.DONE: 1, Phase.WAITING: 1, Phase.QUEUED: 1}
    assert len(await there.claim(queue, count=10)) == 1


async def test_a_server_that_forgot_its_scripts_gets_them_again(there: Deployment, own_server: Server) -> None:
    store, queue, new = await there.created()
    own_server.ask("SCRIPT", "FLUSH")
    assert len(await asyncio.gather(*(store.get(new.owner, new.task_id) for _ in range(20)))) == 20
    own_server.ask("SCRIPT", "FLUSH")
    claim = await there.claim_one(queue)
    own_server.ask("SCRIPT", "FLUSH")
    await queue.finish(claim, result={"content": []})


async def test_a_command_never_waits_for_a_batch_that_has_just_gone(
    here: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_client, "_BATCHES", 1)
    store, new = await here.stored()
    for _ in range(10):
        assert await store.get(new.owner, new.task_id) is not None


async def test_a_server_that_lost_everything_serves_new_tasks(there: Deployment, own_server: Server) -> None:
    store, queue = there.store(), there.queue()
    await store.create(there.new(), 10)
    await there.claim_one(queue)
    own_server.ask("FLUSHALL")
    new = there.new()
    await store.create(new, 10)
    (claim,) = await eventually(lambda: there.claim(queue))
    assert claim.task_id == new.task_id


async def test_every_transition_can_be_sent_twice(here: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each first reply were lost: the second one finds the work done."""
    run = RedisClient.run

    async def run_twice(self: RedisClient, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        await run(self, script, keys, args)
        return await run(self, script, keys, args)

    monkeypatch.setattr(RedisClient, "run", run_twice)
    store, queue, new = here.store(), here.queue(), here.new()
    await store.create(new, 1)
    claim = await here.claim_one(queue)
    await queue.emit(claim, 1, {"text": "a"})
    await queue.keep(claim, Kept(steps={"one": 1}, progress=Progress(1)))
    await queue.release(claim, {**claim.journal, "steps": {"one": 1}})
    claim = await here.claim_one(queue)
    assert (claim.generation, claim.attempt) == (2, 1)
    await queue.wait(claim, {"k": QUESTION}, claim.journal)
    await store.answer(new.owner, new.task_id, {"k": {"result": 1}})
    (claim,) = await here.claim(queue, count=10)
    assert claim.generation == 3
    await queue.finish(claim, result={"content": []})
    assert await store.segments(new.owner, new.task_id) == [{"text": "a"}]
    assert await here.claim(queue) == []
    assert (await spent(store, new.owner)).outcome is Spending.FIRST
    assert (await spent(store, new.owner)).outcome is Spending.RUNNING
    assert await store.deliver(new.owner, new.task_id, "stream", 1000) is False
    assert await store.delete(new.owner, new.task_id) is not None
    second = here.new(request="request")
    await store.create(second, 1)
    assert await store.of_request(second.owner, "request") == second.task_id
    assert await store.deliver(second.owner, second.task_id, "stream", 60_000)
    assert await store.delete(second.owner, second.task_id) is not None


@pytest.mark.parametrize("meanwhile", ["claimed", "ended", "cancelled"])
async def test_a_creation_can_be_sent_again_whatever_became_of_the_task(
    here: Deployment, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    run, queue, new = RedisClient.run, here.queue(), here.new()

    async def run_twice(self: RedisClient, script: Script, keys: Sequence[str], args: Sequence[Any]) -> Any:
        reply = await run(self, script, keys, args)
        if script is not CREATE:
            return reply
        if meanwhile == "cancelled":
            await here.store().cancel(new.owner, new.task_id)
        else:
            claim = await here.claim_one(queue)
            if meanwhile == "ended":
                await queue.finish(claim, result={"content": []})
        return await run(self, script, keys, args)

    monkeypatch.setattr(RedisClient, "run", run_twice)
    view = await here.store().create(new, 10)
    assert (view.task_id, view.phase) == (new.task_id, Phase.QUEUED)


async def test_nothing_that_users_gave_can_be_read_from_disk(there: Deployment, own_server: Server) -> None:
    store, queue = there.store(), there.queue()
    new = there.new(
        arguments={"city": "secret argument"},
        capabilities={"x": "secret capability"},
        context={"x": "secret context"},
        journal={"flow": "f", "seed": b"s", "steps": {"one": "secret step"}, "secret head": 1},
    )
    await store.create(new, 10)
    claim = await there.claim_one(queue)
    kept = Kept(checkpoint={"value": "secret checkpoint"}, progress=Progress(1, 2, "secret message"))
    await queue.keep(claim, kept)
    await queue.emit(claim, 1, {"text": "secret segment"})
    await queue.wait(claim, {"k": QUESTION}, claim.journal)
    await store.answer(new.owner, new.task_id, {"k": {"result": "secret answer"}})
    claim = await there.claim_one(queue)
    assert claim.journal["answers"] == {"k": [[b"digest", {"result": "secret answer"}]]}
    await queue.finish(claim, result={"content": "secret result"})
    await spent(store, new.owner)
    await store.store_answer(new.owner, "flow", 1, b"digest", b"secret body")
    own_server.ask("SAVE")
    written = b"".join(file.read_bytes() for file in files(own_server.directory))
    assert b"some_tool" in written
    for name in (b"secret", b"alice", b"issuer"):
        assert name not in written


def files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


async def test_a_record_whose_key_is_gone_is_reported_as_such_and_stays_for_those_who_have_the_key(
    here: Deployment,
) -> None:
    _store, new = await here.stored(max_attempts=1)
    other = await rotate(here)
    stranger = here.queue(ring=other, lease_ms=0)
    for _ in range(3):
        assert await here.claim(stranger) == []
    view = await here.store(ring=other).get(new.owner, new.task_id)
    assert view is not None
    assert (view.phase, view.opened, view.capabilities) == (Phase.QUEUED, False, {})
    claim = await here.claim_one(here.queue("w2", ring=KeyRing((*other.keys, *here.ring.keys)), lease_ms=0))
    assert (claim.attempt, claim.arguments) == (1, new.arguments)


async def test_values_that_do_not_open_are_counted_by_reason(here: Deployment) -> None:
    def rejected(reason: RejectReason) -> float | None:
        return here.telemetry.registry.get_sample_value("gateway_task_field_rejections_total", {"reason": reason.value})

    store, new = await here.stored()
    assert {rejected(reason) for reason in RejectReason} == {0}
    await here.store(ring=KeyRing.parse(generate_entry(os.urandom))).get(new.owner, new.task_id)
    assert rejected(RejectReason.UNKNOWN_KEY) == 1
    record = here.keys.place(new.owner, new.task_id).task
    for sealed, reason in (
        (store._records.seal(new.owner, new.task_id, "call", {}), RejectReason.NOT_AUTHENTIC),
        ("\N{SNOWMAN}", RejectReason.MALFORMED),
    ):
        await store._client.command("HSET", record, "capabilities", sealed)
        await store.get(new.owner, new.task_id)
        assert rejected(reason) == 1


async def test_a_worker_without_the_key_leaves_the_task_to_one_that_has_it(here: Deployment) -> None:
    _store, new = await here.stored()
    other = await rotate(here)
    assert await here.claim(here.queue(ring=other)) == []
    claim = await here.claim_one(here.queue("w2", ring=KeyRing((*other.keys, *here.ring.keys)), lease_ms=0))
    assert claim.arguments == new.arguments


async def test_keys_can_rotate_while_a_task_waits(here: Deployment) -> None:
    old, new_entry = generate_entry(os.urandom), generate_entry(os.urandom)
    before, during, after = (KeyRing.parse(text) for text in (old, f"{new_entry},{old}", new_entry))
    store, queue, new = here.store(ring=before), here.queue(ring=before), here.new()
    await store.create(new, 10)
    claim = await here.claim_one(queue)
    await queue.wait(claim, {"k": QUESTION}, claim.journal)
    rotated = here.store(ring=during)
    view = await rotated.answer(new.owner, new.task_id, {"k": {"result": 1}})
    assert view is not None
    assert view.opened
    queue = here.queue("w2", ring=during)
    claim = await here.claim_one(queue)
    assert claim.arguments == new.arguments
    await queue.finish(claim, result={"content": []})
    last = await here.store(ring=after).get(new.owner, new.task_id)
    assert last is not None
    assert not last.opened  # its capabilities are older than the rotation


async def test_a_value_moved_to_another_field_or_task_does_not_open(here: Deployment) -> None:
    store, queue, mine, other = here.store(), here.queue(), here.new(), here.new()
    for new in (mine, other):
        await store.create(new, 10)
        await queue.finish(await here.claim_one(queue), result={"content": [new.task_id]})
    client = store._client
    stolen = await client.command("HGET", here.keys.place(other.owner, other.task_id).task, "result")
    for field in ("result", "capabilities"):
        await client.command("HSET", here.keys.place(mine.owner, mine.task_id).task, field, stolen)
        view = await seen(store, mine)
        assert (view.opened, view.result) == (False, None)


@pytest.mark.parametrize(
    "change",
    [{"tool": "other_tool"}, {"version": 4}, {"form": "draft"}, {"attempts": 99}],
    ids=lambda change: next(iter(change)),
)
async def test_a_task_whose_clear_part_was_changed_runs_nowhere_and_reveals_nothing(
    here: Deployment, change: dict[str, Any]
) -> None:
    """Someone who can write to the server must not be able to run another tool with this tool's arguments."""
    store, new = await here.stored()
    record = here.keys.place(new.owner, new.task_id).task
    about = json.loads(await store._client.command("HGET", record, "about"))
    await store._client.command("HSET", record, "about", json.dumps({**about, **change}, separators=(",", ":")))
    assert await here.claim(here.queue()) == []
    view = await seen(store, new)
    assert (view.opened, view.capabilities) == (False, {})


async def test_a_sealed_part_that_is_bound_to_no_tool_does_not_open(here: Deployment) -> None:
    store, new = await here.stored()
    record = here.keys.place(new.owner, new.task_id).task
    call: dict[str, Any] = {"arguments": {}, "principal": None, "context": {}}
    for field, value in (("call", call), ("capabilities", [{}, []])):
        unbound = store._records.seal(new.owner, new.task_id, field, value)
        await store._client.command("HSET", record, field, unbound)
    assert await here.claim(here.queue()) == []
    view = await seen(store, new)
    assert not view.opened


async def test_a_task_without_the_scopes_of_its_tool_does_not_open(here: Deployment) -> None:
    """Without scopes, a replica cannot know which callers may reach the task."""
    store, new = await here.stored()
    record = here.keys.place(new.owner, new.task_id).task
    about = await store._client.command("HGET", record, "about")
    before = store._records.seal(new.owner, new.task_id, "capabilities", dict(new.capabilities), about)
    await store._client.command("HSET", record, "capabilities", before)
    assert await here.claim(here.queue()) == []
    view = await seen(store, new)
    assert not view.opened


@pytest.mark.parametrize("second_worker", ["w2", "w1"])
async def test_of_two_claims_with_one_generation_only_the_one_that_the_server_knows_can_write(
    here: Deployment, second_worker: str
) -> None:
    """A server that lost its newest changes, including a claim, uses the same generation again."""
    store, queue, new = await here.created()
    before = await dump(store, here.keys.prefix)
    lost = await here.claim_one(queue)
    await queue.keep(lost, Kept(steps={"one": "lost"}))
    await restore(store, before)
    held = await here.claim_one(here.queue(second_worker))
    assert lost.generation == held.generation
    assert await queue.heartbeat(lost) is Heartbeat.LOST
    for write in (
        queue.keep(lost, Kept(steps={"one": "stale"})),
        queue.emit(lost, 1, {"text": "stale"}),
        queue.wait(lost, {"k": QUESTION}, lost.journal),
        queue.release(lost, lost.journal),
        queue.finish(lost, result={"content": "stale"}),
    ):
        with pytest.raises(LeaseLost):
            await write
    await queue.emit(held, 1, {"text": "held"})
    await queue.finish(held, result={"content": "held"})
    with pytest.raises(LeaseLost):
        await queue.finish(lost, result={"content": "stale"})
    view = await seen(store, new)
    assert view.result == {"content": "held"}
    assert await store.segments(new.owner, new.task_id) == [{"text": "held"}]


async def dump(store: RedisTaskStore, prefix: str) -> dict[bytes, tuple[int, bytes]]:
    """Return a deployment's keys with their lifetimes and values."""
    async with store._client._one_server() as server:
        names = [name async for name in server.scan_iter(match=f"{prefix}*")]
        return {name: (max(0, await server.pttl(name)), await server.dump(name) or b"") for name in names}


async def restore(store: RedisTaskStore, dumped: dict[bytes, tuple[int, bytes]]) -> None:
    async with store._client._one_server() as server:
        for name, (lifetime_ms, value) in dumped.items():
            await server.restore(name, lifetime_ms, value, replace=True)


async def spent(store: RedisTaskStore, owner: str, flow: str = "flow", digest: bytes = b"digest") -> Spent:
    return await store.spend(owner, flow, 1, digest, 60_000, leg_ms=60_000)


async def test_a_leg_is_spent_once_and_its_answer_repeats_for_the_same_request(here: Deployment) -> None:
    store, other = here.store(), here.store()
    mine = here.owner()
    outcomes = [(await attempt).outcome for attempt in [spent(store, mine), spent(other, mine), spent(store, mine)]]
    assert outcomes == [Spending.FIRST, Spending.RUNNING, Spending.RUNNING]
    assert (await spent(other, mine, digest=b"other")).outcome is Spending.REFUSED
    await store.store_answer(mine, "flow", 1, b"digest", b"body")
    assert await spent(other, mine) == Spent(Spending.ANSWERED, b"body")
    assert await spent(other, mine, digest=b"other") == Spent(Spending.REFUSED)
    assert (await spent(other, mine, "next")).outcome is Spending.FIRST
    assert (await spent(other, here.owner(None))).outcome is Spending.FIRST


async def test_of_many_that_spend_a_leg_at_once_one_may_use_it(here: Deployment) -> None:
    mine, replicas = here.owner(), [here.store(), here.store()]
    outcomes = [use.outcome for use in await asyncio.gather(*(spent(store, mine) for store in replicas * 12))]
    assert outcomes.count(Spending.FIRST) == 1
    assert outcomes.count(Spending.RUNNING) == 23


async def test_a_leg_that_is_taken_but_not_begun_falls_free(here: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a replica had died before it learned that it may use the leg."""
    store, other, mine = here.store(), here.store(), here.owner()

    async def dies(*_: object) -> None:
        raise ConnectionResetError

    monkeypatch.setattr(store, "_begin", dies)
    with pytest.raises(ConnectionResetError):
        await spent(store, mine)
    for digest in (b"digest", b"other"):
        assert (await spent(other, mine, digest=digest)).outcome is Spending.RUNNING

    async def free() -> bool:
        return (await spent(other, mine, digest=b"other")).outcome is Spending.FIRST

    await eventually(free)


@pytest.mark.parametrize(
    ("end", "same", "another"),
    [
        (UseEnd.NEVER, Spending.FIRST, Spending.FIRST),
        (UseEnd.REPEATABLE, Spending.FIRST, Spending.REFUSED),
        (UseEnd.USED, Spending.REFUSED, Spending.REFUSED),
    ],
)
async def test_a_use_without_an_answer_ends_in_the_requested_state(
    here: Deployment, end: UseEnd, same: Spending, another: Spending
) -> None:
    store, other, mine = here.store(), here.store(), here.owner()
    for flow, digest, outcome in (("one", b"digest", same), ("two", b"other", another)):
        use = (await spent(store, mine, flow)).use
        assert use is not None
        store.end_use(use, end)
        await asyncio.gather(*store._ending)
        assert (await spent(other, mine, flow, digest)).outcome is outcome


async def test_a_use_that_only_the_same_request_can_repeat_stays_so_however_the_repetition_ends(
    here: Deployment,
) -> None:
    store, mine = here.store(), here.owner()
    for end in (UseEnd.REPEATABLE, UseEnd.NEVER, UseEnd.NEVER):
        use = (await spent(store, mine)).use
        assert use is not None
        store.end_use(use, end)
        await asyncio.gather(*store._ending)
        assert (await spent(store, mine, digest=b"other")).outcome is Spending.REFUSED


async def test_an_order_that_is_repeated_is_its_first_task(here: Deployment) -> None:
    store, other, queue = here.store(), here.store(), here.queue()
    first = here.new(order="order", order_ms=60_000)
    await store.create(first, 1)
    again = await other.create(here.new(order="order", order_ms=60_000), 1)
    assert (again.task_id, again.phase) == (first.task_id, Phase.QUEUED)
    await queue.finish(await here.claim_one(queue), result={"content": []})
    assert (await other.create(here.new(order="order", order_ms=60_000), 1)).phase is Phase.DONE
    await other.create(here.new(order="another", order_ms=60_000), 2)
    await other.create(here.new(None, order="order", order_ms=60_000), 1)
    assert [claim.owner for claim in await here.claim(queue, count=10)].count(first.owner) == 1
    await store.delete(first.owner, first.task_id)
    with pytest.raises(TaskIdTaken):
        await other.create(here.new(order="order", order_ms=60_000), 10)


async def test_an_order_is_remembered_for_its_time_and_no_longer_than_its_task(here: Deployment) -> None:
    store = here.store()
    for order, order_ms, kept_ms in (("short", 20, 60_000), ("long", 60_000, 20)):
        ordered = [here.new(order=order, order_ms=order_ms, retention=Retention("created", kept_ms)) for _ in range(50)]

        async def is_new() -> bool:
            new = ordered.pop()  # noqa: B023 - used up within the round
            return (await store.create(new, 1000)).task_id == new.task_id

        assert await is_new()
        await eventually(is_new)


async def test_the_check_accepts_what_it_finds_twice_and_refuses_another_number_of_partitions(here: Deployment) -> None:
    await here.store().check()
    await here.queue().check()
    with pytest.raises(ConfigurationError, match=r"GATEWAY_TASK_PARTITIONS: 3, but .* spread over 2") as caught:
        await here.store(partitions=PARTITIONS + 1).check()
    assert str(caught.value).isprintable()


async def test_a_process_with_another_number_of_partitions_never_stores_anything(
    here: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    await here.store().check()
    with pytest.raises(TaskStoreDown):
        await here.store(partitions=PARTITIONS + 1).create(here.new(), 10)
    assert any(record.levelno == logging.CRITICAL for record in caplog.records)


async def test_a_server_that_evicts_is_refused(there: Deployment, own_server: Server) -> None:
    own_server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    with pytest.raises(ConfigurationError, match="allkeys-lru; set it to noeviction"):
        await there.store().check()


async def test_a_server_that_is_too_old_is_refused(here: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_up, "MIN_VERSION", (99, 0))
    with pytest.raises(ConfigurationError, match=r"use 6\.2 or newer"):
        await here.store().check()


async def test_a_store_that_was_down_at_the_start_is_checked_at_its_first_use(
    there: Deployment, own_server: Server
) -> None:
    own_server.kill()
    store, queue, new = there.store(), there.queue(), there.new()
    with pytest.raises(TaskStoreDown):
        await store.check()
    own_server.start()

    async def created() -> bool:
        try:
            await store.create(new, 10)
        except TaskStoreDown:
            return False
        return True

    await eventually(created)
    assert (await there.claim_one(queue)).task_id == new.task_id


@pytest.mark.parametrize("url", ["http://x", "redis://host:port", "", "redis+cluster://h:x"])
def test_an_invalid_url_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigurationError, match="GATEWAY_REDIS_URL") as caught:
        connect(url, ProcessTelemetry())
    assert str(caught.value).isprintable()


async def test_a_lifetime_is_what_the_fixture_looks_for(here: Deployment) -> None:
    store = here.store()
    await store._client.command("SET", f"{here.keys.prefix}:left", "x")
    assert keys_without_lifetime(here.url, here.keys.prefix) == [f"{here.keys.prefix}:left"]
    await store._client.command("DEL", f"{here.keys.prefix}:left")


@contextlib.contextmanager
def tls_server(directory: Path, port: int, *options: str) -> Iterator[tuple[Server, str]]:
    """Run a server that takes TLS at a port, with the password `pass:word`; provide it and the query that trusts it."""
    directory.mkdir()
    certificate, key = make_certificate(directory)
    tls = ["--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
    tls += ["--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no", "--requirepass", "pass:word"]
    server = Server("redis", directory, *tls, *options)
    server.password = "pass:word"
    server.start()
    try:
        yield server, f"?ssl_ca_certs={certificate}"
    finally:
        server.end()


@pytest.mark.slow
async def test_a_server_is_reached_over_tls_with_a_password_and_only_so(short_directory: Path) -> None:
    port = free_port()
    with tls_server(short_directory / "tls", port) as (_, trusted):
        for url, refusal in (
            (f"rediss://:pass%3Aword@127.0.0.1:{port}/0{trusted}", None),
            (f"rediss://default:pass%3Aword@127.0.0.1:{port}{trusted}", None),
            (f"rediss://:pass%3Aword@127.0.0.1:{port}", TaskStoreDown),
            (f"rediss://:wrong@127.0.0.1:{port}{trusted}", ConfigurationError),
            (f"redis://:pass%3Aword@127.0.0.1:{port}", TaskStoreDown),
        ):
            there = Deployment(url)
            if refusal is None:
                view = await there.store().create(there.new(), 10)
                assert view.phase is Phase.QUEUED
            else:
                with pytest.raises(refusal):
                    await there.store().check()
            await there.aclose()


async def test_every_connection_to_a_cluster_uses_tls(short_directory: Path) -> None:
    port, bus = free_port(), free_port()
    cluster = ("--cluster-enabled", "yes", "--cluster-port", str(bus), "--tls-cluster", "yes")
    small = ("--proto-max-bulk-len", "1mb")
    with tls_server(short_directory / "tls-cluster", port, *cluster, *small) as (server, trusted):
        server.ask("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        await eventually(lambda: asyncio.to_thread(lambda: "cluster_state:ok" in str(server.ask("CLUSTER", "INFO"))))
        there = Deployment(f"rediss+cluster://:pass%3Aword@127.0.0.1:{port}{trusted}")
        _store, queue, new = await there.created()
        async with asyncio.timeout(10), aclosing(there.store().watch(new.owner, [new.task_id])) as hints:
            await anext(hints)
            await there.claim_one(queue)
            assert await anext(hints) == new.task_id
        with pytest.raises(ValueTooLarge):
            await queue._client.command("SET", "{x}", b"x" * (2**20 + 1))
        await there.aclose()
        assert "Error accepting a client connection" not in server.log_path.read_text()


async def send_over_a_closed_connection() -> list[str]:
    """Send over a connection that was just closed, then over a good one; return the reply."""
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    _, closed = await asyncio.open_connection(*server.sockets[0].getsockname())
    closed.transport.abort()
    await asyncio.sleep(0)
    sent: list[str] = []

    async def send() -> str:
        sent.append("sent")
        if len(sent) == 1:
            closed.writelines([b"PING"])
        return "answered"

    try:
        sent.append(await repeatable(send))
    finally:
        server.close()
    return sent


def test_a_connection_that_closes_just_before_something_is_written_to_it_counts_as_lost() -> None:
    assert uvloop.run(send_over_a_closed_connection()) == ["sent", "sent", "answered"]


async def test_a_command_that_cannot_be_sent_keeps_no_other_waiting(here: Deployment) -> None:
    client = here.store()._client
    texts = [*map(str, range(10)), "\ud800", *map(str, range(10, 20))]
    async with asyncio.timeout(storage_client.SECONDS / 2):
        told = await asyncio.gather(*(client.command("ECHO", text) for text in texts), return_exceptions=True)
    assert [reply for reply in told if isinstance(reply, bytes)] == [str(number).encode() for number in range(20)]
    assert isinstance(told[10], UnicodeEncodeError)


async def test_a_worker_that_reads_from_a_closed_connection_finds_the_store_down(
    there: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop refuses such a write with a `RuntimeError`, which no caller expects."""
    queue = there.queue()

    async def closed(*_: Any, **__: Any) -> None:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

    monkeypatch.setattr(Redis, "execute_command", closed)
    with pytest.raises(TaskStoreDown):
        await there.claim(queue)
    with pytest.raises(TaskStoreDown):
        await queue._client.info()
