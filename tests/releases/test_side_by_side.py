"""This release runs beside the previous one, on the same keys and the same store, and no client notices.

Behind the shipped HAProxy, a site goes from the previous release to this one and back, one process at a time.
Meanwhile, clients of every wire place orders of every kind. The rollout ends when orders of every kind have gone from
each release to the other. `RELEASES_SECONDS` makes it last longer.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path

import pytest

from loadtest.cluster import wait_until
from tests.releases import modern_orders, session_orders  # noqa: F401 - these fill KINDS
from tests.releases.account import Account, EffectFile
from tests.releases.buyers import HASTY_SECONDS, Buyer, Market
from tests.releases.cluster import SideBySide
from tests.releases.environment import THIS, Release, previous
from tests.releases.kinds import KINDS

SECONDS = float(os.environ.get("RELEASES_SECONDS") or 0)
STAGES = 7
POLL_SECONDS = 0.5
STAGE_SECONDS = 240.0
"""How long a stage may take until every kind of order has gone both ways."""

SHED = "shed call"
"""Goes from one release to the other only when the last process of its release is replaced."""


class Rollout:
    """A site that is rolled out, and its clients.

    Args:
        cluster: the site.
    """

    def __init__(self, cluster: SideBySide) -> None:
        self._cluster = cluster
        self._began = time.monotonic()
        self._effects = EffectFile(cluster.effects)
        self._market = Market(cluster.url, cluster.token, self._effects)

    @property
    def account(self) -> Account:
        """Everything that is known so far."""
        cluster = self._cluster
        return Account(self._market.orders, self._effects.update(), frozenset(cluster.left), cluster.incidents)

    async def there_and_back(self, before: Release, after: Release) -> None:
        """Go from one release to the other and back while clients place orders."""
        numbers = itertools.count(1)
        buyers = [Buyer(self._market, kind, next(numbers)) for kind in KINDS.values() for _ in range(kind.hasty)]
        buyers += [Buyer(self._market, kind, next(numbers), patient=True) for kind in KINDS.values() if kind.asks]
        buying = [asyncio.create_task(buyer.buy()) for buyer in buyers]
        try:
            await self._roll(before, after)
            self._market.close()
            await asyncio.wait(buying, timeout=HASTY_SECONDS)
        finally:
            for task in buying:
                task.cancel()
            await asyncio.gather(*buying, return_exceptions=True)

    async def _roll(self, before: Release, after: Release) -> None:
        """Go through all stages, or through those until something is wrong."""
        await self._stage(self._not_served)
        for release in (after, before):
            replica = partial(self._cluster.replace_replica, release, self._until_it_can_shed)
            worker = partial(self._cluster.replace_worker, release)
            # In between, tasks of the replica that stays longest depend on workers of the other release alone.
            steps = (
                ((replica, worker), self._not_crossed),
                ((worker,), self._not_served),
                ((replica,), self._not_served),
            )
            for replacements, missing in steps:
                if self.account.is_lost:
                    return
                for replace in replacements:
                    await asyncio.to_thread(replace)
                await self._stage(missing)
            await asyncio.to_thread(self._cluster.rotate_keys)

    def _until_it_can_shed(self, process: str) -> None:
        """Wait until a call has just begun to run in a process that it leaves when the process is stopped."""
        effects = EffectFile(self._cluster.effects)

        def has_begun() -> bool:
            since = time.time() - 1
            recent = takewhile(lambda effect: effect.at > since, reversed(effects.update()))
            return any((effect.process, effect.key) == (process, "unit 0") for effect in recent)

        wait_until(has_begun, f"a call that {process} can shed")

    async def _stage(self, missing: Callable[[], Sequence[str]]) -> None:
        """Begin the next stage, and wait until it has seen every kind of order."""
        self._market.move()
        began = time.monotonic()
        end = began + SECONDS / STAGES
        while not self.account.is_lost and ((lacking := missing()) or time.monotonic() < end):
            if time.monotonic() > end + STAGE_SECONDS:
                raise AssertionError(f"stage {self._market.stage} never saw {lacking}")
            await asyncio.sleep(POLL_SECONDS)
        processes = ", ".join(process.name for process in (*self._cluster.replicas, *self._cluster.workers))
        sys.stdout.write(f"{time.monotonic() - self._began:4.0f} s: stage {self._market.stage} with {processes}\n")

    def _not_served(self) -> Sequence[str]:
        """Return the kinds of which no order has begun and ended in this stage, or an earlier one still runs.

        Work that the last process of a release hands over must continue without it.
        """
        orders, stage = self._market.orders, self._market.stage
        served = {order.kind for order in orders if order.over and order.stage == stage}
        delayed = {order.kind for order in orders if not (order.over or order.patient) and order.stage < stage}
        return [kind for kind in KINDS if kind not in served or kind in delayed]

    def _not_crossed(self) -> Sequence[str]:
        """Return the kinds of which no order has gone from each release to the other one in this stage."""
        return self.account.not_crossed((kind for kind in KINDS if kind != SHED), since=self._market.stage)


@pytest.mark.timeout(1800 + SECONDS)
async def test_no_client_notices_a_rollout_and_its_way_back(tmp_path: Path) -> None:
    before = previous()
    assert before.version != THIS.version
    with SideBySide(tmp_path, before, THIS) as cluster:
        rollout = Rollout(cluster)
        try:
            await rollout.there_and_back(before, THIS)
        finally:
            cluster.note_logs()
            account = rollout.account
            sys.stdout.write(f"\n{account.report()}\n")
    assert list(account.problems()) == []
    assert account.not_crossed(KINDS) == []
