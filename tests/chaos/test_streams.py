"""A thousand streams at once, with clients that resume elsewhere and a killed worker; and the cost of streams."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from gateway.auth.tokens import mint
from gateway.runtime.compilation import is_compiled
from loadtest.cluster import wait_until
from tests.chaos.streams import Stream, asked
from tests.storage.servers import Server
from tests.wires.draft.deployment import AUDIENCE, SECRET, Deployment

STREAMS: Final = 1000
SEGMENTS: Final = 100
PRINCIPALS: Final = 5
SEED: Final = 1
FEW_STREAMS: Final = 200
MAX_STREAM_BYTES: Final = (40 if is_compiled() else 44) * 1024
SETTINGS: Final = {
    "GATEWAY_TOOLS": "tests.chaos.tools",
    "GATEWAY_STREAMS_PER_PRINCIPAL": str(STREAMS // PRINCIPALS),
    "GATEWAY_TASKS_PER_PRINCIPAL": str(STREAMS),
    "GATEWAY_WORKER_CONCURRENCY": str(STREAMS // 2),
    "GATEWAY_TASK_LEASE_SECONDS": "3",
}


@pytest.fixture
def fleet(server: Server, tmp_path: Path) -> Iterator[Deployment]:
    """Two replicas and two workers."""
    with Deployment(tmp_path, server, SETTINGS) as fleet:
        fleet.add_worker("w2")
        yield fleet


def streams_of(fleet: Deployment) -> list[Stream]:
    """Return streams of several callers; about half of them are read to their end without a break."""
    tokens = [mint(SECRET, f"user-{number}", AUDIENCE) for number in range(PRINCIPALS)]
    streams = []
    for number in range(STREAMS):
        chance = random.Random(f"{SEED} {number}")
        streams.append(
            Stream(
                tool="count",
                arguments={"name": str(number), "count": SEGMENTS},
                token=tokens[number % PRINCIPALS],
                urls=fleet.urls,
                chance=chance,
                breaks_after=chance.randint(1, 2 * SEGMENTS),
            )
        )
    return streams


def kill_in_the_middle(fleet: Deployment, streams: Sequence[Stream]) -> None:
    """Kill a worker once a third of all segments has arrived."""
    third = STREAMS * SEGMENTS // 3
    wait_until(lambda: sum(len(stream.taken) for stream in streams) >= third, "a third of all segments", 120)
    fleet.worker("w1").kill()


@pytest.mark.timeout(300)
async def test_a_thousand_streams_lose_double_and_disorder_nothing(fleet: Deployment) -> None:
    streams = streams_of(fleet)
    async with asyncio.TaskGroup() as readers:
        readers.create_task(asyncio.to_thread(kill_in_the_middle, fleet, streams))
        for stream in streams:
            readers.create_task(stream.read())
    for number, stream in enumerate(streams):
        assert stream.taken == [f"{number}: {segment}" for segment in range(1, SEGMENTS + 1)]
    assert sum(stream.resumed > 0 for stream in streams) > STREAMS // 3
    cut = [stream.cut_after for stream in streams if stream.cut_after is not None]
    assert len(cut) < STREAMS // 100, f"{len(cut)} streams have ended early; one of them after {cut[0]}"
    assert fleet.worker("w2").metric("gateway_tasks_redelivered_total") > 0


async def test_an_open_stream_costs_little_memory(fleet: Deployment) -> None:
    replica = fleet["r1"]
    async with contextlib.AsyncExitStack() as stack:
        for number in range(FEW_STREAMS):
            await wait_for_question(stack, replica.url, number)
        few = resident_bytes(replica.pid)
        for number in range(FEW_STREAMS, STREAMS):
            await wait_for_question(stack, replica.url, number)
        many = resident_bytes(replica.pid)
    assert (many - few) / (STREAMS - FEW_STREAMS) <= MAX_STREAM_BYTES


async def wait_for_question(stack: contextlib.AsyncExitStack, url: str, number: int) -> None:
    """Open the stream of a task, which stays open when the task waits for its user."""
    token = mint(SECRET, f"user-{number % PRINCIPALS}", AUDIENCE)
    params = {"name": "ask", "arguments": {}, "task": {"responseModes": ["streaming"]}}
    messages = await stack.enter_async_context(asked(url, token, "tools/call", params))
    async for message in messages:
        if message.get("params", {}).get("status") == "input_required":
            return
    raise AssertionError("the stream has ended early")


def resident_bytes(pid: int) -> int:
    """Return how much memory a process has."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024
