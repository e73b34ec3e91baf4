"""A record that cannot be read: its owner sees that, workers hand it on, and everything else continues."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
import redis

from gateway.errors import LeaseLost, RejectReason, TaskIdTaken
from gateway.sealing.formats import STORED_VALUE, TASK_RECORD
from gateway.sealing.keyring import KeyRing
from gateway.storage import RedisTaskStore, RedisWorkQueue
from gateway.storage import unreadable as module
from gateway.storage.plain_fields import read_plain
from gateway.storage.unreadable import Unreadable, UnreadableLog
from gateway.tasks.model import Phase, Progress, Retention
from gateway.tasks.ports import Claim, Kept, NewTask, Spending, TaskQuestion
from tests.storage.deployments import Deployment, is_counted, rotate, seen

pytestmark = pytest.mark.slow

QUESTION = TaskQuestion(b"digest", "elicitation/create", {"message": "?"})
MISSING = None
SOON = 60_000

REQUIRED: dict[str, frozenset[str]] = {
    "about": frozenset({"queued", "waiting", "done"}),
    "phase": frozenset({"queued", "waiting", "done"}),
    "generation": frozenset({"queued", "waiting", "done"}),
    "created": frozenset({"queued", "waiting", "done"}),
    "updated": frozenset({"queued", "waiting", "done"}),
    "expires": frozenset({"queued", "waiting", "done"}),
    "entry": frozenset({"queued"}),
    "open": frozenset({"waiting"}),
}
"""Plain field → phases in which a record must have it."""

OPTIONAL: dict[str, frozenset[str]] = {
    "ended": frozenset({"done"}),
    "kept": frozenset({"queued", "waiting", "done"}),
    "lost": frozenset({"queued", "waiting", "done"}),
    "segments": frozenset({"queued", "waiting", "done"}),
    "emitted": frozenset({"queued", "waiting", "done"}),
    "progress": frozenset({"queued", "waiting", "done"}),
    "asked": frozenset({"queued", "waiting"}),
}
"""Plain field → phases in which the record of these tests has it, although others lack it."""

HARMLESS = frozenset({"token", "stream", "stream_ends", "failed", "withdrawn"})
"""Plain fields in which any value can be used."""

CASES = [(phase, field) for field, phases in {**REQUIRED, **OPTIONAL}.items() for phase in sorted(phases)]
DAMAGE = (b"\xff", b"x", b"9" * 16)

on_one_server = pytest.mark.parametrize("server", ["redis"], indirect=True)
"""For tests with many cases; others run the same scripts on every server."""


def damage_of(field: str) -> tuple[bytes | None, ...]:
    return (*DAMAGE, MISSING) if field in REQUIRED else DAMAGE


class Site:
    """Two tasks of Alice: one that a test damages, with every plain field that a task can have, and a healthy one."""

    def __init__(self, here: Deployment) -> None:
        self.here = here
        self.store = here.store()
        self.queue = here.queue("first", lease_ms=0)
        self.victim = self._new()
        self.neighbour = self._new(max_attempts=1)

    def _new(self, **changes: Any) -> NewTask:
        return self.here.new(retention=Retention("ended", SOON), **changes)

    async def start(self, phase: str) -> None:
        """Bring the victim to a phase; the neighbour waits for a worker."""
        await self.store.create(self.victim, 10)
        await self.here.claim_one(self.queue)  # and lost
        claim = await self.here.claim_one(self.queue)
        assert claim.attempt == 2
        await self.queue.keep(claim, Kept(progress=Progress(1, 2, "so far")))
        await self.queue.emit(claim, 1, {"text": "a"})
        await self.queue.wait(claim, {"k": QUESTION, "l": QUESTION}, claim.journal)
        assert await self.store.deliver(self.victim.owner, self.victim.task_id, "stream", SOON)
        answers = {} if phase == "waiting" else {"k": {"result": 1}, "l": {"result": 1}}
        await self.store.answer(self.victim.owner, self.victim.task_id, answers)
        if phase == "done":
            claim = await self.here.claim_one(self.queue)
            await self.queue.finish(claim, result={"content": [{"type": "text", "text": "b"}], "isError": True})
        await self.store.create(self.neighbour, 10)

    @property
    def record(self) -> str:
        return self.here.keys.place(self.victim.owner, self.victim.task_id).task

    async def fields(self) -> Mapping[bytes, bytes]:
        found: Mapping[bytes, bytes] = await self.store._client.command("HGETALL", self.record)
        return found

    async def set(self, field: str, value: bytes | None) -> None:
        if value is MISSING:
            await self.store._client.command("HDEL", self.record, field)
        else:
            await self.store._client.command("HSET", self.record, field, value)

    async def seen(self, store: RedisTaskStore | None = None) -> tuple[bool, bool]:
        """Return whether the victim can be read alone and in the list; its neighbour always can."""
        store = store or self.store
        mine = await store.get(self.victim.owner, self.victim.task_id)
        other = await store.get(self.neighbour.owner, self.neighbour.task_id)
        page = await store.page(self.victim.owner, None, 10)
        listed = {view.task_id: view for view in page.views}
        assert mine is not None
        assert other is not None
        assert other.opened
        assert listed[self.neighbour.task_id].opened
        return mine.opened, listed[self.victim.task_id].opened

    async def claimed(self, queue: RedisWorkQueue) -> list[Claim]:
        return [claim for _ in range(4) for claim in await self.here.claim(queue, count=10)]


@pytest.fixture
async def site(here: Deployment) -> Site:
    return Site(here)


def lines(caplog: pytest.LogCaptureFixture, task: NewTask) -> list[str]:
    return [record.message for record in caplog.records if getattr(record, "task", None) == task.task_id]


@pytest.mark.parametrize("phase", ["queued", "waiting", "done"])
async def test_the_tables_above_name_every_plain_field_of_a_record(site: Site, phase: str) -> None:
    await site.start(phase)
    plain = {name.decode() for name in await site.fields()} - {"about"}
    named = {field for table in (REQUIRED, OPTIONAL) for field, phases in table.items() if phase in phases}
    assert {name for name in plain if not is_counted(name)} - HARMLESS == named - {"about"}
    assert await site.seen() == (True, True)


@on_one_server
@pytest.mark.parametrize(("phase", "field"), CASES)
async def test_a_task_with_a_damaged_field_is_shown_as_such_and_its_neighbour_as_it_is(
    site: Site, phase: str, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    await site.start(phase)
    owner, task_id, whole = site.victim.owner, site.victim.task_id, await site.fields()
    for value in damage_of(field):
        await site.set(field, value)
        before = await site.fields()
        # A list does not read how often something was asked.
        assert await site.seen() == (False, field == "asked")
        if field not in ("asked", "progress", "open", "entry"):  # nobody changes a task that is shown as failed
            for view in (
                await site.store.answer(owner, task_id, {"k": {"result": 1}}),
                await site.store.cancel(owner, task_id),
            ):
                assert view is not None
                assert not view.opened
            assert not await site.store.deliver(owner, task_id, "stream", SOON)
        assert await site.store.segments(owner, task_id) == [{"text": "a"}]
        assert await site.fields() == before
        await site.set(field, whole[field.encode()])
        assert await site.seen() == (True, True)
    await site.set(field, damage_of(field)[-1])
    assert lines(caplog, site.victim) == ["task is damaged in the store"]
    assert lines(caplog, site.neighbour) == []
    with pytest.raises(TaskIdTaken):
        await site.store.create(site.victim, 10)
    assert await site.store.delete(owner, task_id) is not None
    assert await site.store.get(owner, task_id) is None
    assert [view.task_id for view in (await site.store.page(owner, None, 10)).views] == [site.neighbour.task_id]


@on_one_server
@pytest.mark.parametrize("field", [field for phase, field in CASES if phase == "queued"])
async def test_a_worker_hands_a_damaged_task_on_without_an_attempt_and_runs_its_neighbour(
    site: Site, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    await site.start("queued")
    whole, others = await site.fields(), [site.here.queue(name, lease_ms=0) for name in ("second", "third")]
    for number, value in enumerate(damage_of(field)):
        await site.set(field, value)
        claims = await site.here.claim(site.queue, count=10)
        assert [claim.task_id for claim in claims] == ([] if number else [site.neighbour.task_id])
        before = await site.fields()
        for queue in (*others, site.queue):
            assert await site.here.claim(queue, count=10) == []
        assert await site.fields() == before, "a task that was handed on is only looked at"
        await site.set(field, whole[field.encode()])
    told = lines(caplog, site.victim)
    assert told == ["task is damaged in the store"] * 3, "one line from each worker"
    claim = await site.here.claim_one(site.queue)
    assert (claim.task_id, claim.attempt, claim.segments) == (site.victim.task_id, 2, 1)


@on_one_server
@pytest.mark.parametrize("field", sorted(HARMLESS))
async def test_other_plain_fields_may_have_any_value(site: Site, field: str) -> None:
    await site.start("queued")
    for value in (b"", b"\xff", b"x", b"9" * 16, MISSING):
        await site.set(field, value)
        assert await site.seen() == (True, True)
        if field != "stream":  # another stream has the right to deliver
            assert await site.store.deliver(site.victim.owner, site.victim.task_id, "stream", SOON)
    claims = await site.here.claim(site.queue, count=10)
    assert {claim.task_id for claim in claims} == {site.victim.task_id, site.neighbour.task_id}


@pytest.mark.parametrize("about", [{"v": TASK_RECORD.reads + 1}, {"v": 99, "tool": ["moved"]}], ids=str)
@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("phase", [b"paused", b"queued"])
async def test_a_record_in_a_newer_format_is_left_to_the_release_that_wrote_it(
    site: Site, about: dict[str, Any], phase: bytes, complete: bool, caplog: pytest.LogCaptureFixture
) -> None:
    await site.start("queued")
    old = json.loads((await site.fields())[b"about"])
    await site.set("about", json.dumps({**old, **about} if complete else about).encode())
    await site.set("phase", phase)
    before = await site.fields()
    assert await site.seen() == (False, False)
    await site.store.cancel(site.victim.owner, site.victim.task_id)
    assert [claim.task_id for claim in await site.claimed(site.queue)][:1] == [site.neighbour.task_id]
    assert await site.fields() == before
    assert set(lines(caplog, site.victim)) == {"task was stored by a newer release"}
    count = site.here.telemetry.registry.get_sample_value(
        "gateway_task_field_rejections_total", {"reason": RejectReason.NEWER_SCHEMA.value}
    )
    assert count
    assert count > 0


async def test_a_record_without_a_number_is_read_and_run_like_one_with_the_first(site: Site) -> None:
    """As release 0.2.0 writes it: the sealed values are bound to facts that have no number."""
    store, new = site.store, site.victim
    await store.create(new, 10)
    about = json.loads((await site.fields())[b"about"])
    assert about.pop("v") == TASK_RECORD.writes
    stored = json.dumps(about, separators=(",", ":")).encode()
    for field, value in (
        ("capabilities", [dict(new.capabilities), []]),
        ("call", {"arguments": dict(new.arguments), "principal": None, "context": {}}),
    ):
        await site.set(field, store._records.seal(new.owner, new.task_id, field, value, stored).encode())
    await site.set("about", stored)
    view = await seen(store, new)
    assert view.opened
    assert (await site.here.claim_one(site.queue)).arguments == new.arguments


@on_one_server
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("result", ["no", "map"]),
        ("error", {"code": "text", "message": "m"}),
        ("error", ["no", "map"]),
        ("questions", ["no", "map"]),
        ("questions", {"k": "no row"}),
        ("questions", {}),
        ("capabilities", {"as": "one map"}),
    ],
    ids=str,
)
async def test_a_sealed_value_of_another_shape_makes_only_its_own_task_unreadable(
    site: Site, field: str, value: Any
) -> None:
    await site.start("waiting")
    about = (await site.fields())[b"about"] if field == "capabilities" else b""
    sealed = site.store._records.seal(site.victim.owner, site.victim.task_id, field, value, about)
    await site.set(field, sealed.encode())
    assert (await site.seen())[0] is False


@on_one_server
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("call", []),
        ("call", {"arguments": {}}),
        ("call", {"arguments": {}, "principal": ["only", "two"], "context": {}}),
        ("head", []),
        ("head", MISSING),
        ("call", MISSING),
        ("a:k", 7),
        ("n:k", MISSING),
        ("questions", {"k": 5}),
        ("questions", {}),
        ("questions", MISSING),
    ],
    ids=str,
)
async def test_a_worker_hands_on_a_task_whose_sealed_part_it_cannot_read(site: Site, field: str, value: Any) -> None:
    await site.start("queued")
    owner, task_id, about = site.victim.owner, site.victim.task_id, (await site.fields())[b"about"]
    if value is MISSING:
        await site.set(field, b"s1.none" if field == "n:k" else MISSING)
    else:
        sealed = site.store._records.seal(owner, task_id, field, value, about if field == "call" else b"")
        await site.set(field, sealed.encode())
    assert {claim.task_id for claim in await site.claimed(site.queue)} == {site.neighbour.task_id}
    assert (await site.fields())[b"lost"] == b"1"
    assert (await site.fields())[b"phase"] == b"queued"


async def test_stored_values_in_a_newer_format_are_told_apart_from_a_missing_key(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    await site.start("done")
    store, owner, task_id = site.store, site.victim.owner, site.victim.task_id
    segments = site.here.keys.place(owner, task_id).segments
    newer = b"%d:" % (STORED_VALUE.reads + 1)
    for field in ("result", "capabilities"):
        sealed = (await site.fields())[field.encode()]
        await site.set(field, newer + sealed)
        assert (await site.seen())[0] is False
        await site.set(field, b"%d:" % STORED_VALUE.reads + sealed)
        assert (await site.seen())[0] is True
    await store._client.command("XADD", segments, "2-0", "block", newer + b"s1.anything")
    await store._client.command("XADD", segments, "3-0", "moved", "elsewhere")
    assert await store.segments(owner, task_id) == [{"text": "a"}]
    assert lines(caplog, site.victim) == ["task was stored by a newer release"]


async def test_an_answer_to_a_single_use_call_in_a_newer_format_is_not_repeated(site: Site) -> None:
    store, mine = site.store, site.here.owner()
    spent = await store.spend(mine, "flow", 1, b"digest", SOON, leg_ms=SOON)
    assert spent.outcome is Spending.FIRST
    await store.store_answer(mine, "flow", 1, b"digest", b"body")
    key = site.here.keys.spent_answer(mine, "flow", 1)
    sealed = await store._client.command("GET", key)
    for number, outcome in ((STORED_VALUE.reads, Spending.ANSWERED), (STORED_VALUE.reads + 1, Spending.REFUSED)):
        await store._client.command("SET", key, b"%d:" % number + sealed, "KEEPTTL")
        assert (await store.spend(mine, "flow", 1, b"digest", SOON, leg_ms=SOON)).outcome is outcome


async def test_a_worker_without_the_key_hands_a_task_on_at_once_and_it_fails_for_nobody(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    await site.start("queued")
    other = await rotate(site.here)
    stranger = site.here.queue("stranger", ring=other)
    for _ in range(3):
        assert await site.here.claim(stranger, count=10) == []
    both = site.here.queue("both", ring=KeyRing((*other.keys, *site.here.ring.keys)))
    claims = await site.here.claim(both, count=10)
    assert {claim.task_id: claim.attempt for claim in claims} == {site.victim.task_id: 2, site.neighbour.task_id: 1}
    assert lines(caplog, site.victim) == ["task cannot be opened with the keys of this process"]


async def test_a_lost_worker_counts_but_one_without_the_key_never_gives_a_task_up(site: Site) -> None:
    await site.store.create(site.neighbour, 10)
    other = await rotate(site.here)
    ring = KeyRing((*other.keys, *site.here.ring.keys))
    await site.here.claim_one(site.here.queue("lost", ring=ring))
    stranger = site.here.queue("stranger", ring=other, lease_ms=0)
    for _ in range(3):
        assert await site.here.claim(stranger) == []
    view = await site.store.get(site.neighbour.owner, site.neighbour.task_id)
    assert view is not None
    assert view.phase is Phase.QUEUED
    assert await site.here.claim(site.here.queue("keyed", ring=ring, lease_ms=0)) == []
    view = await site.here.store(ring=ring).get(site.neighbour.owner, site.neighbour.task_id)
    assert view is not None
    assert view.error is not None
    assert view.error["data"] == {"attempts": 1}


async def test_tasks_that_cannot_be_read_hide_no_lost_task_and_make_no_worker_spin(site: Site) -> None:
    here, store = site.here, site.store
    lost = here.queue("lost")
    for _ in range(40):
        new = here.new()
        await store.create(new, 100)
        await store._client.command("HSET", here.keys.place(new.owner, new.task_id).task, "phase", "paused")
    await store.create(site.neighbour, 100)
    assert [claim.task_id for claim in await here.claim(lost, count=100)] == [site.neighbour.task_id]
    # Its lease ends, as those of the others did when they were handed on.
    name = here.keys.queue(here.keys.partition_of(here.owner()))
    with redis.Redis.from_url(here.url) as client:
        held = client.xpending_range(name, "workers", "-", "+", 100)
    (entry,) = [each["message_id"] for each in held if each["time_since_delivered"] < 30_000]
    assert len(held) == 41
    await store._client.command("XCLAIM", name, "workers", "lost", 0, entry, "IDLE", 60_000)
    worker = here.queue("worker")
    before = await calls(store, "xautoclaim")
    claims = [claim for _ in range(20) for claim in await here.claim(worker, count=8)]
    looks = await calls(store, "xautoclaim") - before
    assert looks <= 7, "one look through 41 entries, 8 at a time"
    assert claims == []  # the neighbour may run once only, and its worker was lost
    view = await store.get(site.neighbour.owner, site.neighbour.task_id)
    assert view is not None
    assert view.error is not None


async def calls(store: RedisTaskStore, command: str) -> int:
    """Return how often a command was called on the server."""
    stats: Any = await store._client.command("INFO", "commandstats")
    return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])


async def test_an_entry_that_names_no_task_stays_alone(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    name = site.here.keys.queue(site.here.keys.partition_of(site.here.owner()))
    await site.store.check()
    for fields in (("other", "x"), ("task", "short"), ("task", b"\xff" * 70), ("task", "g" * 64 + "id")):
        await site.store._client.command("XADD", name, "*", *fields)
    await site.store.create(site.neighbour, 10)
    assert [claim.task_id for claim in await site.claimed(site.queue)][:1] == [site.neighbour.task_id]
    assert "task is damaged in the store" in [record.message for record in caplog.records]


async def test_damaged_ids_in_maps_and_indexes_lead_to_no_task(site: Site) -> None:
    await site.store.create(site.neighbour, 10)
    owner = site.neighbour.owner
    keys, command = site.here.keys, site.store._client.command
    await command("ZADD", keys.owner_index(owner), 2**45, b"\xff")
    await command("HSET", keys.requests(owner), "request", b"\xff")
    await command("PEXPIRE", keys.requests(owner), SOON)
    await command("SET", keys.order(owner, "order"), b"\xff", "PX", SOON)
    assert [view.task_id for view in (await site.store.page(owner, None, 10)).views] == [site.neighbour.task_id]
    assert await site.store.of_request(owner, "request") is not None
    with suppress(TaskIdTaken):
        await site.store.create(site.here.new(order="order", order_ms=SOON), 10)


WHOLE: Mapping[str, bytes] = {
    "about": b'{"tool":"t","version":1,"form":"f","attempts":1}',
    "phase": b"waiting",
    "open": b"[]",
    "generation": b"1",
    "created": b"2000",
    "updated": b"2000",
    "expires": b"3000",
}
END_OF_9999 = 253_402_300_799_999


@pytest.mark.parametrize(
    ("field", "value", "is_read"),
    [
        ("expires", 2000, True),
        ("expires", 1999, False),
        ("expires", END_OF_9999, True),
        ("expires", END_OF_9999 + 1, False),
        ("ended", END_OF_9999 + 1, False),
        ("kept", 10**15 - 1, True),
        ("kept", 10**15, False),
    ],
)
def test_a_time_that_no_task_can_have_is_damage(field: str, value: int, is_read: bool) -> None:
    assert read_plain(WHOLE).problem is None
    plain = read_plain({**WHOLE, field: b"%d" % value})
    assert (plain.problem is None) == is_read
    assert plain.created_ms <= plain.expires_ms <= END_OF_9999
    if plain.problem is not None:
        assert (plain.problem.field, plain.problem.reason) == (field, RejectReason.MALFORMED)


def test_a_number_that_nobody_could_have_counted_to_is_damage() -> None:
    for value in (b"9" * 5000, b"0" * 5000):  # Python refuses to read the first one
        problem = read_plain({**WHOLE, "lost": value}).problem
        assert problem is not None
        assert problem.field == "lost"


def problem(reason: RejectReason = RejectReason.MALFORMED) -> Unreadable:
    return Unreadable(reason, "field")


def test_each_task_is_logged_once_and_for_each_kind_of_trouble(caplog: pytest.LogCaptureFixture) -> None:
    told = UnreadableLog(clock=lambda: 0.0)
    for _ in range(3):
        for reason in (RejectReason.MALFORMED, RejectReason.NOT_AUTHENTIC, RejectReason.UNKNOWN_KEY):
            told.note("owner", "one", problem(reason))
    told.note("owner", "two", problem())
    assert [record.message for record in caplog.records] == [
        "task is damaged in the store",
        "task cannot be opened with the keys of this process",
        "task is damaged in the store",
    ]
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def test_the_memory_of_logged_tasks_is_bounded_and_a_thousand_of_them_flood_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    told = UnreadableLog(clock=lambda: now)
    for _ in range(2):
        for number in range(module.MAX_NOTED + 500):
            told.note("owner", f"t{number}", problem())
    assert len(caplog.records) == len(told._noted) == module.MAX_NOTED
    now = module.FORGET_SECONDS
    told.note("owner", "later", problem())
    assert len(caplog.records) == module.MAX_NOTED + 1
    assert len(told._noted) <= module.MAX_NOTED


async def test_a_running_task_that_is_damaged_ends_only_its_own_leg(site: Site) -> None:
    await site.start("queued")
    claims = {claim.task_id: claim for claim in await site.here.claim(site.queue, count=10)}
    mine, other = claims[site.victim.task_id], claims[site.neighbour.task_id]
    for field in ("expires", "kept", "segments"):
        whole = (await site.fields())[field.encode()]
        await site.set(field, b"x")
        for write in (
            site.queue.keep(mine, Kept(steps={"one": 1})),
            site.queue.emit(mine, 2, {"text": "b"}),
            site.queue.finish(mine, result={"content": []}),
            site.queue.release(mine, mine.journal),
        ):
            with pytest.raises(LeaseLost):
                await write
        await site.set(field, whole)
    await site.queue.finish(other, result={"content": []})
    await site.queue.finish(mine, result={"content": []})
