"""Counting all tasks by phase: the counts match the tasks, and expired tasks leave them on their own."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from prometheus_client import CollectorRegistry

from gateway.errors import LeaseLost, TaskStoreDown
from gateway.observability.task_totals import TaskTotals
from gateway.sealing.principal import Principal
from gateway.storage import RedisTaskStore, RedisWorkQueue
from gateway.tasks.model import Phase, Retention, TaskView
from gateway.tasks.ports import TaskQuestion
from tests.storage.deployments import Deployment, eventually
from tests.storage.servers import Server

pytestmark = pytest.mark.slow

QUESTION = TaskQuestion(b"digest", "elicitation/create", {"message": "How many?"})
CALLERS = [Principal("issuer", name, "") for name in ("ada", "bob", "eve", "kim", "zoe")]
LONG, SHORT = Retention("created", 60_000), Retention("created", 200)
SHORT_ONCE_ENDED = Retention("ended", 200)


@pytest.fixture
async def spread(cluster: str) -> AsyncIterator[Deployment]:
    deployment = Deployment(cluster)
    yield deployment
    await deployment.aclose()


async def treat(here: Deployment, store: RedisTaskStore, queue: RedisWorkQueue, dice: random.Random) -> None:
    """Lead one task through a random life; some tasks expire at a random moment."""
    caller = dice.choice(CALLERS)
    new = here.new(caller, retention=dice.choice([LONG, LONG, SHORT, SHORT_ONCE_ENDED]))
    await store.create(new, 1000)
    if dice.random() < 0.3:
        await store.cancel(new.owner, new.task_id)
    for claim in await here.claim(queue, caller, dice.randint(1, 2)):
        try:
            match dice.randrange(5):
                case 0:
                    await queue.finish(claim, result={"content": []})
                case 1:
                    await queue.release(claim, claim.journal)
                case 2 | 3:
                    await queue.wait(claim, {"k": QUESTION}, claim.journal)
                    if dice.random() < 0.5:
                        await store.answer(claim.owner, claim.task_id, {"k": {"result": 1}})
        except LeaseLost:
            continue  # another life has cancelled or deleted it, or it has expired
    if dice.random() < 0.2:
        await store.delete(new.owner, new.task_id)


async def read_all(here: Deployment, store: RedisTaskStore) -> list[TaskView]:
    pages = [await store.page(here.owner(caller), None, 1000) for caller in CALLERS]
    return [view for page in pages for view in page.views]


async def storm(here: Deployment, seed: int) -> None:
    store, queue = here.store(), here.queue()
    await store.check()
    for wave in range(6):
        lives = (treat(here, store, queue, random.Random(f"{seed} {wave} {life}")) for life in range(20))
        ends = await asyncio.gather(*lives, return_exceptions=True)
        # On a busy machine a command may take too long. Its effect is read below.
        assert [end for end in ends if end is not None and not isinstance(end, TaskStoreDown)] == []

    async def only_the_long_lived_are_left() -> list[TaskView]:
        views = await read_all(here, store)
        return views if all(view.expires_ms - view.now_ms > 1000 for view in views) else []

    phases = Counter(view.phase for view in await eventually(only_the_long_lived_are_left))
    assert len(phases) > 2
    assert await store.totals() == await queue.totals() == {phase: phases[phase] for phase in Phase}


@pytest.mark.parametrize("seed", range(3))
async def test_the_count_agrees_with_the_tasks_after_a_storm(here: Deployment, seed: int) -> None:
    await storm(here, seed)


@pytest.mark.parametrize("seed", range(3))
async def test_the_count_agrees_with_the_tasks_after_a_storm_in_a_cluster(spread: Deployment, seed: int) -> None:
    await storm(spread, seed)


async def test_tasks_that_expire_leave_the_count_though_nobody_touches_them(here: Deployment) -> None:
    store, queue = here.store(), here.queue()
    running, waiting, done, ended = (here.new(retention=kind) for kind in (SHORT, SHORT, SHORT, SHORT_ONCE_ENDED))
    for new in (running, waiting, done, ended, here.new(retention=LONG), here.new(retention=SHORT)):
        await store.create(new, 10)
    claims = await here.claim(queue, count=4)
    for claim in claims:
        with suppress(LeaseLost):  # on a busy machine it may have expired already
            if claim.task_id == waiting.task_id:
                await queue.wait(claim, {"k": QUESTION}, claim.journal)
            elif claim.task_id != running.task_id:
                await queue.finish(claim, result={"content": []})

    async def only_one_is_left() -> bool:
        return await store.totals() == {**dict.fromkeys(Phase, 0), Phase.QUEUED: 1}

    await eventually(only_one_is_left)
    partition = here.keys.partition_of(here.owner())
    assert await store._client.command("ZCARD", here.keys.phase_index(partition, Phase.QUEUED)) == 6 - len(claims)


async def test_a_count_takes_a_fixed_number_of_commands_however_many_tasks_there_are(own_server: Server) -> None:
    here = Deployment(own_server.url)
    store = here.store()
    try:
        await store.create(here.new(), 10)
        indexes = [here.keys.phase_index(partition, phase) for partition in (0, 1) for phase in Phase]
        for index in indexes:
            living = {f"member {number}": 9e15 for number in range(1000)}
            await store._client.command("ZADD", index, *(part for pair in living.items() for part in pair[::-1]))
        await store.totals()
        own_server.ask("CONFIG", "RESETSTAT")
        assert sum((await store.totals()).values()) == 1000 * len(indexes) + 1
        stats = await store._client.command("INFO", "commandstats")
        calls = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()}
        assert {name: calls[name] for name in calls if name in {"zcount", "evalsha", "time"}} == {
            "zcount": len(indexes),
            "evalsha": here.keys.partitions,
            "time": here.keys.partitions,
        }
    finally:
        await here.aclose()


async def test_the_totals_disappear_and_come_back_with_the_server(own_server: Server) -> None:
    here = Deployment(own_server.url)
    store, registry = here.store(), CollectorRegistry()
    totals = TaskTotals(store.totals)
    registry.register(totals)

    async def shown() -> float | None:
        await totals.look()
        return registry.get_sample_value("gateway_tasks", {"phase": "queued"})

    try:
        await store.create(here.new(), 10)
        assert await shown() == 1
        own_server.kill()
        assert await shown() is None
        assert here.telemetry.registry.get_sample_value("gateway_redis_errors_total", {"kind": "connection"}) == 2
        own_server.start()
        assert await eventually(shown) == 1
    finally:
        await here.aclose()
