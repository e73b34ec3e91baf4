"""With more load than replicas can serve, some requests are refused, some legs handed on, and all others finish."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from loadtest.cluster import Cluster
from tests.integration.raw import tool_call
from tests.under_load.clients import Call, User, WireClient, connect, until
from tests.under_load.probes import Probes
from tests.under_load.test_leaving import TOOLS, noted, times
from tests.under_load.tools import QUESTIONS

SHEDDING = {**TOOLS, "GATEWAY_QUEUE_TARGET_MS": "1", "GATEWAY_MAX_INFLIGHT": "64"}
"""Any wait is too long, and no request is refused."""

MOST_SHEDS = 2
UNITS = 20


@asynccontextmanager
async def overload(url: str) -> AsyncIterator[None]:
    """Keep all replicas busy until the block ends, with calls that cannot be handed on themselves."""
    leaving = asyncio.Event()

    async def work() -> None:
        async with WireClient(url) as client:
            while not leaving.is_set():
                assert (await client.call("block", {"milliseconds": 4})).text == "done"

    async with asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(work())
        yield
        leaving.set()


class Users:
    """Users with the real client, which make one call after the other until there is enough data.

    Attributes:
        calls: by the name that the tool notes.
    """

    def __init__(self) -> None:
        self.calls: dict[str, Call] = {}
        self._numbers = itertools.count()

    async def work(self, url: str, tool: str, enough: Callable[[], bool], **arguments: int) -> None:
        """Let three users work until it is enough."""

        async def call(user: User) -> None:
            while not enough():
                name = f"{tool}-{next(self._numbers)}"
                self.calls[name] = await user.call(tool, {"call": name, **arguments})

        async with connect(url) as one, connect(url) as two, connect(url) as three, asyncio.timeout(90):
            await asyncio.gather(*(call(user) for user in (one, two, three)))


def sheds(call: Call) -> int:
    """Return how often a call was handed on; every other leg asks, or is the last one."""
    return len(call.legs) - 1 - len(call.asked)


async def test_long_calls_finish_across_replicas_and_hardly_anything_is_computed_twice(
    start_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = await asyncio.to_thread(start_cluster, SHEDDING)
    users = Users()
    with Probes(cluster) as probes:
        async with overload(cluster.url):
            await users.work(
                cluster.url,
                "crunch",
                lambda: sum(sheds(call) == MOST_SHEDS for call in users.calls.values()) >= 3,
                units=UNITS,
                unit_ms=5,
            )

    assert probes.problems == []
    computed = times(tmp_path, "units")
    for name, call in users.calls.items():
        units = {unit: count for unit, count in computed.items() if unit[0] == name}
        assert (call.text, call.is_error) == (f"{UNITS} units", False)
        assert len(units) == UNITS
        assert sheds(call) <= MOST_SHEDS
        assert sum(units.values()) - UNITS <= sheds(call)
    where = {(call, replica) for call, _, replica in noted(tmp_path, "units") if call in users.calls}
    assert len(where) > len(users.calls), "no call was computed by two replicas"


async def test_a_call_of_eight_questions_that_is_handed_on_besides_ends_within_the_ten_rounds_of_a_client(
    start_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = await asyncio.to_thread(start_cluster, SHEDDING)
    users = Users()
    async with overload(cluster.url):
        await users.work(
            cluster.url,
            "interview",
            lambda: any(sheds(call) == MOST_SHEDS for call in users.calls.values()),
            unit_ms=5,
        )

    for call in users.calls.values():
        assert (call.text, call.is_error) == (f"{QUESTIONS} answers", False)
        assert call.messages == [f"Question {number}?" for number in range(QUESTIONS)]
        assert sheds(call) <= MOST_SHEDS
    assert times(tmp_path, "works") == {(name, str(n)): 1 for name in users.calls for n in range(QUESTIONS)}


async def test_what_is_refused_has_run_nothing_and_what_is_accepted_ends(
    start_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    settings = {**TOOLS, "GATEWAY_MAX_INFLIGHT": "4"}  # and two more wait
    cluster = await asyncio.to_thread(start_cluster, settings, replicas=1, balancer=False)
    (replica,) = cluster.replicas
    early, late = ([f"{when}-{number}" for number in range(6)] for when in ("early", "late"))
    with Probes(cluster) as probes:
        async with WireClient(cluster.url) as client, asyncio.TaskGroup() as group:
            accepted = [group.create_task(client.call("stand_at_gate", {"call": name})) for name in early]
            await until(lambda: len(noted(tmp_path, "standing")) == 4, "four calls at the gate")
            await until(lambda: replica.metric("gateway_requests_waiting") == 2, "two calls that wait")

            for name in late:
                refusal = await client.send(tool_call("stand_at_gate", {"call": name}))
                assert refusal.status_code == 503
                assert int(refusal.headers["retry-after"]) >= 1
                assert refusal.json()["error"]["code"] == -31001
                assert refusal.json()["id"] is None
            await probes.ask_anew()
            (tmp_path / "gate").touch()

        assert [call.result().text for call in accepted] == early
        assert sorted(name for (name,) in noted(tmp_path, "standing")) == early
        async with WireClient(cluster.url) as client:
            assert [(await client.call("stand_at_gate", {"call": name})).text for name in late] == late
    assert probes.problems == []
    assert replica.metric("gateway_requests_refused_total", reason="overloaded") == len(late)


async def test_of_a_crowd_at_the_balancer_each_call_is_served_once_or_refused_and_not_run(
    start_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = await asyncio.to_thread(start_cluster, {**TOOLS, "GATEWAY_MAX_INFLIGHT": "2"})  # and one more waits
    served: list[str] = []
    refused: list[str] = []

    async def insist(caller: int) -> None:
        async with WireClient(cluster.url) as client:
            for number in itertools.count():
                call = f"{caller}-{number}"
                response = await client.send(tool_call("stand_at_gate", {"call": call}))
                if response.status_code == 200:
                    assert response.json()["result"]["content"][0]["text"] == call
                    served.append(call)
                    return
                assert (response.status_code, response.json()["error"]["code"]) == (503, -31001)
                refused.append(call)

    with Probes(cluster) as probes:
        async with asyncio.TaskGroup() as group:
            for caller in range(30):
                group.create_task(insist(caller))
            await until(lambda: len(refused) >= 24, "all to be refused that have no place")
            (tmp_path / "gate").touch()

    assert probes.problems == []
    assert len(served) == 30
    assert sorted(call for (call,) in noted(tmp_path, "standing")) == sorted(served)
