"""Replicas drain or vanish in the middle of calls: clients notice little, and few steps run twice."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from loadtest.cluster import Cluster
from tests.under_load.clients import WireClient, until
from tests.under_load.probes import Probes

TOOLS = {"GATEWAY_TOOLS": "tests.under_load.tools"}
LEAVING = {
    "GATEWAY_DRAIN_NOTICE_SECONDS": "2",  # longer than the balancer needs to see it
    "GATEWAY_QUEUE_TARGET_MS": "60000",  # only draining replicas hand calls on
}
PAUSE_SECONDS = 0.02


def noted(directory: Path, file: str) -> list[list[str]]:
    """Return the words of each line that tools have recorded."""
    path = directory / file
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def times(directory: Path, file: str) -> Counter[tuple[str, ...]]:
    """Count how often each thing was done, on any replica."""
    return Counter(tuple(words[:-1]) for words in noted(directory, file))


@asynccontextmanager
async def steady_load(url: str) -> AsyncIterator[None]:
    """Let clients of the wire make one call after the other until the block ends; one that fails ends it."""
    leaving = asyncio.Event()
    numbers = itertools.count()

    async def work(tool: str, **size: int) -> None:
        async with WireClient(url) as client:
            while not leaving.is_set():
                call = await client.call(tool, {"call": f"{tool}-{next(numbers)}", **size})
                assert not call.is_error, call
                await asyncio.sleep(PAUSE_SECONDS)

    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(work("reserve"))
            group.create_task(work("crunch", units=8, unit_ms=5))
        yield
        leaving.set()


def return_of(cluster: Cluster, name: str) -> None:
    """Restart a replica that has stopped, as in a rolling update."""
    cluster[name].restart()
    assert cluster.balancer is not None
    cluster.balancer.wait_up(name)


async def test_no_call_fails_while_each_replica_leaves_in_turn_and_nothing_is_done_twice(
    start_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """Some calls run on the replica as it drains, and take longer than the drain."""
    (tmp_path / "gate").touch()
    cluster = await asyncio.to_thread(start_cluster, {**TOOLS, **LEAVING})

    async def leave(name: str, client: WireClient, probes: Probes) -> None:
        names = [f"{name}-{number}" for number in range(6)]
        marches = [asyncio.create_task(client.call("march", {"call": call}, first=cluster[name].url)) for call in names]
        await until(lambda: {call for call, *_ in noted(tmp_path, "legs")} >= set(names), "the calls to be under way")
        probes.leaving.add(name)
        assert await asyncio.to_thread(cluster[name].terminate) == 0
        for call in names:
            (tmp_path / f"halt-{call}").touch()
        for march in marches:
            legs = (await march).legs
            assert (legs[0], legs[-1]) == (name, "r2" if name == "r1" else "r1")
        await asyncio.to_thread(return_of, cluster, name)
        probes.leaving.remove(name)
        await probes.ask_anew()

    with Probes(cluster) as probes:
        async with steady_load(cluster.url), WireClient(cluster.url) as client:
            await leave("r1", client, probes)
            await leave("r2", client, probes)

    assert probes.problems == []
    assert set(probes.answers) == {"server/discover", "/healthz", "/readyz", "/metrics"}
    for file in ("steps", "units", "before", "after"):
        assert set(times(tmp_path, file).values()) == {1}, file


async def test_of_a_replica_that_is_killed_only_the_legs_under_way_are_run_again(
    start_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = await asyncio.to_thread(start_cluster, TOOLS)
    names = [f"call-{number}" for number in range(6)]
    async with WireClient(cluster.url) as client, asyncio.TaskGroup() as group:
        calls = [group.create_task(client.call("reserve", {"call": name})) for name in names]
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
