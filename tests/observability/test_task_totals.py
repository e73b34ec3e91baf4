"""The count of tasks that a process shows: the last one, unless it is stale."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from gateway.errors import TaskStoreDown
from gateway.observability.task_totals import STALE_SECONDS, TaskTotals
from gateway.tasks.model import Phase


class Store:
    """Reports as many queued tasks as it has answered requests for the count."""

    def __init__(self) -> None:
        self.away = False
        self.asked = 0
        self.changed = asyncio.Event()

    async def totals(self) -> dict[Phase, int]:
        self.asked += 1
        self.changed.set()
        if self.away:
            raise TaskStoreDown
        return {**dict.fromkeys(Phase, 0), Phase.QUEUED: self.asked}


def shown(totals: TaskTotals) -> dict[str, float]:
    (family,) = totals.collect()
    assert (family.name, family.type) == ("gateway_tasks", "gauge")
    return {sample.labels["phase"]: sample.value for sample in family.samples}


async def test_what_was_counted_is_shown_for_every_phase() -> None:
    totals = TaskTotals(Store().totals)
    assert shown(totals) == {}
    await totals.look()
    assert shown(totals) == {"queued": 1, "running": 0, "waiting": 0, "done": 0, "cancelled": 0}


async def test_the_count_is_hidden_while_the_store_is_down_and_shown_again_afterwards() -> None:
    store = Store()
    totals = TaskTotals(store.totals)
    await totals.look()
    store.away = True
    await totals.look()
    assert shown(totals) == {}
    store.away = False
    await totals.look()
    assert shown(totals)["queued"] == 3


async def test_a_count_that_is_old_is_not_shown() -> None:
    now = 5.0
    totals = TaskTotals(Store().totals, lambda: now)
    await totals.look()
    now += STALE_SECONDS - 1
    assert shown(totals) != {}
    now += 1
    assert shown(totals) == {}


async def test_a_scrape_never_asks_the_store_and_the_first_count_does_not_wait() -> None:
    store, registry = Store(), CollectorRegistry()
    async with TaskTotals(store.totals).running(registry):
        await store.changed.wait()
        await asyncio.sleep(0)
        for _ in range(5):
            assert registry.get_sample_value("gateway_tasks", {"phase": "queued"}) == 1
        assert store.asked == 1
    assert registry.get_sample_value("gateway_tasks", {"phase": "queued"}) is None
