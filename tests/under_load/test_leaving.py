"""Replicas leave, or are gone, in the middle of calls: what clients notice, and what is done twice."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from loadtest.cluster import Cluster
from tests.under_load.clients import Call, WireClient, until
from tests.under_load.probes import Probes

TOOLS = {"GATEWAY_TOOLS": "tests.under_load.tools"}
NOTICE = {"GATEWAY_DRAIN_NOTICE_SECONDS": "2"}  # longer than the balancer takes to see it
UNITS = 10
PAUSE_SECONDS = 0.02


def noted(directory: Path, file: str) -> list[list[str]]:
    """Return the words of each line that tools have noted."""
    path = directory / file
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def times(directory: Path, file: str) -> Counter[tuple[str, ...]]:
    """Count how often each thing was done, wherever that was."""
    return Counter(tuple(words[:-1]) for words in noted(directory, file))


class SteadyLoad:
    """Clients of the wire who make one call after the other; one that fails ends it.

    Attributes:
        calls: those that have ended.
    """

    def __init__(self, url: str) -> None:
        self.calls: list[Call] = []
        self._url = url
        self._leaving = asyncio.Event()
        self._numbers = itertools.count()

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Let them work until the block ends."""
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(self._work("reserve"))
                group.create_task(self._work("crunch", units=UNITS, unit_ms=5))
            yield
            self._leaving.set()

    async def _work(self, tool: str, **arguments: int) -> None:
        async with WireClient(self._url) as client:
            while not self._leaving.is_set():
                call = await client.call(tool, call=f"{tool}-{next(self._numbers)}", **arguments)
                assert not call.is_error, call
                self.calls.append(call)
                await asyncio.sleep(PAUSE_SECONDS)


async def test_no_call_fails_while_each_replica_leaves_in_turn_and_nothing_is_done_twice(
    start_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    (tmp_path / "gate").touch()
    cluster = await asyncio.to_thread(start_cluster, {**TOOLS, **NOTICE})
    load = SteadyLoad(cluster.url)
    with Probes(cluster) as probes:
        async with load.working():
            codes = await asyncio.to_thread(cluster.rolling_restart, {}, on_event=probes.on_event)

    assert codes == {"r1": 0, "r2": 0}
    assert probes.problems == []
    assert set(probes.answers) == {"server/discover", "/healthz", "/readyz", "/metrics"}
    handed_on = [call for call in load.calls if call.text == f"{UNITS} units" and len(call.legs) > 1]
    assert {call.legs[0] for call in handed_on} == {"r1", "r2"}, "no call was under way where a replica left"
    for file in ("units", "before", "after"):
        assert set(times(tmp_path, file).values()) == {1}, file


async def test_of_a_replica_that_is_killed_only_the_legs_under_way_are_run_again(
    start_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = await asyncio.to_thread(start_cluster, TOOLS)
    names = [f"call-{number}" for number in range(6)]
    async with WireClient(cluster.url) as client, asyncio.TaskGroup() as group:
        calls = [group.create_task(client.call("reserve", call=name)) for name in names]
        await until(lambda: len(noted(tmp_path, "after")) == len(names), "the second leg of each call")
        cut_off = {call for call, replica in noted(tmp_path, "after") if replica == "r1"}
        assert 0 < len(cut_off) < len(names)
        cluster["r1"].kill()
        again = len(names) + len(cut_off)
        await until(lambda: len(noted(tmp_path, "after")) == again, "the legs of the killed replica to be run again")
        (tmp_path / "gate").touch()

    assert [call.result().text for call in calls] == names
    assert times(tmp_path, "before") == {(name,): 1 for name in names}
    assert times(tmp_path, "after") == {(name,): 2 if name in cut_off else 1 for name in names}
    assert {call for call, replica in noted(tmp_path, "after")[len(names) :] if replica == "r2"} == cut_off
