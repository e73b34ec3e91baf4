"""First legs that HAProxy repeats as their replica was killed: each order has one step id, however often it ran."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loadtest.cluster import Cluster, wait_until
from tests.integration.raw import post, tool_call
from tests.workers.conftest import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]

ORDERS = 60
"""How many orders are under way when a replica is killed: about a third of them at it."""
REPEATED = 100


class Site:
    """Replicas behind HAProxy with the shipped configuration, and what their tool notes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        environ = {"GATEWAY_TOOLS": "tests.chaos.repeated_tools", "TEST_DIRECTORY": str(directory)}
        self.cluster = Cluster(directory, replicas=3, environ=environ)

    def runs(self, number: int) -> dict[str, list[tuple[str, str]]]:
        """Return the replica and the step id of each run in a round, by order."""
        path, found = self.directory / f"charges {number}", defaultdict(list)
        for line in path.read_text().splitlines() if path.exists() else ():
            order, replica, step = line.split()
            found[order].append((replica, step))
        return found

    def order(self, name: str, number: int) -> str:
        return post(self.cluster, tool_call("charge", {"order": name, "number": number})).text

    def lose_one(self, number: int) -> dict[str, list[tuple[str, str]]]:
        """Kill the replica with most of the orders that are under way; return the runs once each is answered."""
        balancer = self.cluster.balancer
        assert balancer is not None
        with ThreadPoolExecutor(ORDERS) as pool:
            answers = {f"o{each}": pool.submit(self.order, f"o{each}", number) for each in range(ORDERS)}
            wait_until(lambda: len(self.runs(number)) == ORDERS, "every order to begin")
            holders = [replica for ((replica, _),) in self.runs(number).values()]
            lost = self.cluster[max(holders, key=holders.count)]
            lost.kill()
            runs = ORDERS + holders.count(lost.name)
            wait_until(lambda: sum(map(len, self.runs(number).values())) == runs, "its orders to begin elsewhere")
            (self.directory / f"gate {number}").touch()
            told = {name: answer.result() for name, answer in answers.items()}
        assert told == {name: runs[-1][1] for name, runs in self.runs(number).items()}
        lost.restart()
        balancer.wait_up(lost.name)
        return self.runs(number)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    with site.cluster:
        yield site


def test_each_order_has_one_step_id_however_often_it_ran(site: Site) -> None:
    repeated, steps, number = 0, set(), 0
    while repeated < REPEATED:
        number += 1
        for order, runs in site.lose_one(number).items():
            assert len({step for _, step in runs}) == 1, (order, runs)
            assert len({replica for replica, _ in runs}) == len(runs)
            repeated += len(runs) > 1
            steps.add(runs[0][1])
    assert len(steps) == number * ORDERS, "another order has another id"
