"""Every replica is replaced by one of another release while users are in the middle of their calls.

Replicas whose names begin with `new` run release 2 of `link_accounts`, all others release 1.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.sealing.keyring import KeyRing
from loadtest.cluster import Cluster, Replica, new_key
from tests.under_load.clients import Call, WireClient, connect, until

TOOL = "link_accounts"
PAUSE_SECONDS = 0.02  # leaves some CPU time to starting processes


def release_of(replica: str) -> int:
    return 2 if replica.startswith("new") else 1


def site_of(message: str) -> str:
    """Return the site of a question such as `Please provide your GitHub username`."""
    return message.split()[3]


class Thinkers:
    """Users that each make one call, and think about each question until the test lets them answer."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._answering: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._calls: list[asyncio.Task[Call]] = []
        self.asked: Counter[str] = Counter()

    async def start(self, count: int) -> None:
        """Let `count` more users call, and wait until all have a question to think about."""
        self._calls += [asyncio.create_task(self._call()) for _ in range(count)]
        await self.wait_asked("GitHub", len(self._calls))

    async def _call(self) -> Call:
        async with connect(self._url, self._think) as user:
            return await user.call(TOOL)

    async def _think(self, message: str) -> None:
        self.asked[site_of(message)] += 1
        await self._answering[site_of(message)].wait()

    async def wait_asked(self, site: str, count: int) -> None:
        """Wait until so many were asked for a site; ends at once if a call fails."""
        await until(
            lambda: self.asked[site] >= count or any(call.done() for call in self._calls),
            f"{count} questions for {site}",
        )
        for call in self._calls:
            if call.done():
                call.result()

    def answer(self, *sites: str) -> None:
        """Let all users answer the questions for these sites from now on."""
        for site in sites:
            self._answering[site].set()

    async def calls(self) -> Sequence[Call]:
        """Return the calls when all have ended."""
        return await asyncio.gather(*self._calls)


class BusyUsers:
    """Users that make one call after the other, and answer at once."""

    def __init__(self, url: str, *, resend: bool = False) -> None:
        self._url = url
        self._resend = resend
        self._leaving = asyncio.Event()
        self.calls: list[list[Call]] = []

    async def _work(self, calls: list[Call]) -> None:
        async with connect(self._url, resends=self._resend) as user:
            while not self._leaving.is_set():
                calls.append(await user.call(TOOL))
                await asyncio.sleep(PAUSE_SECONDS)

    @asynccontextmanager
    async def working(self, count: int) -> AsyncIterator[None]:
        """Let `count` users work until the block ends; a call that fails ends it."""
        self.calls = [[] for _ in range(count)]
        async with asyncio.TaskGroup() as group:
            for calls in self.calls:
                group.create_task(self._work(calls))
            yield
            self._leaving.set()

    async def begin_anew(self) -> None:
        """Wait until every call that runs now has ended."""
        counts = [len(calls) for calls in self.calls]
        await until(
            lambda: all(len(calls) > count for calls, count in zip(self.calls, counts, strict=True)),
            "a call of each user",
        )


def swap(cluster: Cluster, old: str, new: str) -> None:
    """Replace one replica by one of the release in its name."""
    cluster.add_replica(new, GATEWAY_DEMO_RELEASE=str(release_of(new)))
    assert cluster.remove_replica(old) == 0


def assert_nobody_noticed(calls: Iterable[Call]) -> None:
    for call in calls:
        sites = [site_of(message) for message in call.messages]
        assert max(Counter(sites).values()) == 1, f"asked twice: {call}"
        assert "GitHub" in sites, call
        release = release_of(call.legs[-1])
        second = "Google" if release == 1 else "Microsoft"
        assert second in sites, call
        assert (call.text, call.is_error) == (f"Linked GitHub account ada and {second} account ada.", False)
        for site, replica in ((site_of(message), replica) for message, replica in call.asked):
            assert release_of(replica) == {"Google": 1, "Microsoft": 2}.get(site, release_of(replica)), call


async def test_an_upgrade_asks_each_user_once_for_what_both_releases_need_and_the_rollback_asks_nothing_twice(
    start_cluster: Callable[..., Cluster],
) -> None:
    cluster = await asyncio.to_thread(start_cluster)
    thinkers, busy = Thinkers(cluster.url), BusyUsers(cluster.url)
    async with busy.working(2):
        await thinkers.start(4)

        await asyncio.to_thread(swap, cluster, "r1", "new1")
        await thinkers.start(4)  # some are asked by release 1, some by release 2
        await asyncio.to_thread(swap, cluster, "r2", "new2")
        await thinkers.start(4)

        thinkers.answer("GitHub", "Google")
        await thinkers.wait_asked("Microsoft", 12)
        await busy.begin_anew()

        await asyncio.to_thread(swap, cluster, "new1", "old1")
        await asyncio.to_thread(swap, cluster, "new2", "old2")
        thinkers.answer("Microsoft")
        calls = await thinkers.calls()
        await busy.begin_anew()

    assert_nobody_noticed([*calls, *(call for of_one in busy.calls for call in of_one)])
    assert {release_of(call.legs[-1]) for call in calls} == {1}
    first = [[site_of(message) for message in call.messages] for call in calls[:4]]
    assert [(set(sites[:2]), sites[2:]) for sites in first] == [({"GitHub", "Google"}, ["Microsoft"])] * 4
    assert {release_of(call.legs[-1]) for of_one in busy.calls for call in of_one} == {1, 2}


def hold(replicas: Iterable[Replica], *, seals: str, opens: str | None = None) -> bool:
    """Return whether all replicas seal with one key, open with the other, and know no third one."""
    return all(
        replica.metric("gateway_seal_keys") == (1 if opens is None else 2)
        and replica.metric("gateway_seal_keys", key_id=id_of(seals), role="seals") == 1
        and (opens is None or replica.metric("gateway_seal_keys", key_id=id_of(opens), role="opens") == 1)
        for replica in replicas
    )


def id_of(entry: str) -> str:
    (key,) = KeyRing.parse(entry).keys
    return key.key_id.hex()


async def test_nobody_notices_either_when_the_seal_keys_rotate_meanwhile_and_a_replica_is_killed(
    start_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    old, new = new_key(), new_key()
    keys = tmp_path / "keys"
    keys.write_text(old)
    settings = {"GATEWAY_SEAL_KEYS": "", "GATEWAY_SEAL_KEYS_FILE": str(keys)}
    cluster = await asyncio.to_thread(start_cluster, settings)

    async def rotate(entries: str, *, seals: str, opens: str | None = None) -> None:
        keys.write_text(entries)
        await until(lambda: hold(cluster.replicas, seals=seals, opens=opens), "the keys to reach every replica")

    thinkers, busy = Thinkers(cluster.url), BusyUsers(cluster.url, resend=True)
    async with busy.working(2):
        await thinkers.start(4)
        await rotate(f"{old},{new}", seals=old, opens=new)
        await asyncio.to_thread(swap, cluster, "r1", "new1")
        await asyncio.to_thread(cluster.add_replica, "new2", GATEWAY_DEMO_RELEASE="2")
        cluster["r2"].kill()
        await busy.begin_anew()
        assert await asyncio.to_thread(cluster.remove_replica, "r2") == -signal.SIGKILL
        await rotate(f"{new},{old}", seals=new, opens=old)

        thinkers.answer("GitHub", "Google")
        await thinkers.start(4)
        await thinkers.wait_asked("Microsoft", 8)
        await busy.begin_anew()  # now no state of the old key is left
        await rotate(new, seals=new)

        await asyncio.to_thread(swap, cluster, "new1", "old1")
        await asyncio.to_thread(swap, cluster, "new2", "old2")
        thinkers.answer("Microsoft")
        calls = await thinkers.calls()

    assert_nobody_noticed([*calls, *(call for of_one in busy.calls for call in of_one)])
    assert {release_of(call.legs[-1]) for call in calls} == {1}


async def test_tasks_that_began_under_one_release_continue_under_the_next_one(
    start_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    settings = {"GATEWAY_TOOLS": "tests.under_load.tools"}
    cluster = await asyncio.to_thread(start_cluster, settings, replicas=1, workers=1, redis=True)
    async with WireClient(cluster.url) as client:
        order = (await client.result("tools/call", name="order"))["taskId"]
        asked = await client.task(order, "input_required")
        assert list(asked["inputRequests"]) == ["name"]
        await client.result("tasks/update", taskId=order, inputResponses={"name": accept(name="ada")})
        asked = await client.task(order, "input_required")
        assert list(asked["inputRequests"]) == ["size"]
        counting = (await client.result("tools/call", name="count_on"))["taskId"]
        counted = tmp_path / "counted"
        await until(lambda: counted.exists() and len(counted.read_text().splitlines()) > 3, "a task that runs")

        codes = await asyncio.to_thread(cluster.rolling_restart, {"GATEWAY_DEMO_RELEASE": "2"})
        assert codes == {"r1": 0, "w1": 0}

        await client.result("tasks/update", taskId=order, inputResponses={"size": accept(size="large")})
        asked = await client.task(order, "input_required")
        assert list(asked["inputRequests"]) == ["size~2"]  # another form: the old answer stays, a new one is asked for
        await client.result("tasks/update", taskId=order, inputResponses={"size~2": accept(size=3)})
        assert text_of(await client.task(order, "completed")) == "ada: 3"

        await until(lambda: counted.read_text().splitlines()[-1].endswith(" 2"), "release 2 to count on")
        (tmp_path / "gate").touch()
        told = text_of(await client.task(counting, "completed"))
    numbers = [int(line.split()[0]) for line in counted.read_text().splitlines()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert told == f"counted to {len(numbers)}"


def accept(**content: object) -> dict[str, object]:
    return {"action": "accept", "content": content}


def text_of(task: dict[str, Any]) -> str:
    (block,) = task["result"]["content"]
    return str(block["text"])
