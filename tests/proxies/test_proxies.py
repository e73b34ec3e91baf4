"""Each shipped proxy configuration works with two real replicas and the real client."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import httpx2
import msgspec
import pytest

from loadtest.cluster import Replica, wait_until
from tests.certificates import make_certificate
from tests.integration.raw import SECONDS, Answer, call, headers_of, post, post_bytes, tool_call
from tests.proxies.front import PROXIES, Front
from tests.proxies.site import Site, User, connect

KIB = 1024
LARGEST_HEAD = 32 * KIB
LARGEST_BODY = 1024 * KIB
SILENCE_SECONDS = 6
"""Six times as long as a replica of these tests is silent."""

USERS = 3
CALLS = 6
"""How many calls each user makes before and after a replica goes."""

WIRES = pytest.mark.parametrize("session", [False, True], ids=["2026-07-28", "2025-11-25"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture(scope="module", params=PROXIES, ids=lambda proxy: proxy.program)
def kind(request: pytest.FixtureRequest) -> type[Front]:
    """The proxy under test."""
    found: type[Front] = request.param
    return found


@contextmanager
def started(front: Front) -> Iterator[Front]:
    try:
        front.start()
        front.wait_ready()
        yield front
    finally:
        front.stop()


@pytest.fixture(scope="module")
def front(kind: type[Front], site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """A proxy that may not have noticed yet that both replicas serve."""
    site.complete()
    with started(kind(tmp_path_factory.mktemp(kind.program), site.addresses)) as front:
        yield front


@pytest.fixture
def both(site: Site, front: Front) -> Front:
    """A proxy that sends requests to both replicas."""
    site.complete()
    wait_until(lambda: served_by(front, 4) == {"r1", "r2"}, "both replicas to be used")
    return front


def served_by(front: Front, requests: int) -> set[str]:
    """Make this many requests, and return the replicas that answered."""
    return {call(front, "give", {"size": 1}).headers.get("x-gateway-replica", "") for _ in range(requests)}


def refusal(answer: Answer) -> tuple[int, int]:
    """Return the status and the code of an error that a client can read."""
    assert answer.headers["content-type"] == "application/json"
    assert answer.message["error"]["message"]
    return answer.error


async def follow(user: User, site: Site, gate: str) -> list[float]:
    """Call a tool that waits halfway, let it continue at its first progress, and return the progress that arrived."""
    seen: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)
        site.open(gate)

    await user.client.call_tool("tell", {"gate": gate}, progress_callback=note)
    return seen


@WIRES
async def test_progress_arrives_while_the_tool_runs(both: Front, site: Site, session: bool) -> None:
    async with connect(both, session=session) as user:
        assert await follow(user, site, f"progress of {both.program} {session}") == [1, 2]


async def test_streams_that_begin_at_once_are_not_cut_off(both: Front, site: Site) -> None:
    """This holds even if the proxy has not seen the end of the request when the first event arrives."""
    async with connect(both) as user:
        for number in range(40):
            await follow(user, site, f"stream {number} of {both.program}")


@WIRES
async def test_two_questions_and_a_large_state_reach_both_replicas(both: Front, session: bool) -> None:
    async with connect(both, session=session) as user:
        served: set[str] = set()
        for number in itertools.count():
            answered = len(user.legs)
            name = f"asked-by-{both.program}-{session}-{number}"
            assert await user.call("ask_twice", name=name, kept=40 * KIB) == f"first?, second?, {40 * KIB}"
            served = set(user.legs[answered:])
            if served == {"r1", "r2"} or number == 40:
                break
    assert served == {"r1", "r2"}


async def test_a_large_result_arrives_whole(both: Front) -> None:
    async with connect(both) as user:
        assert len(await user.call("give", size=300 * KIB)) == 300 * KIB


async def test_a_stream_outlives_the_time_limit_for_silence(kind: type[Front], site: Site, tmp_path: Path) -> None:
    """The limit is in force: it ends a call whose client takes no stream, and so gets no comments."""
    site.complete()
    name = f"silence-{kind.program}"
    quiet = tool_call("hold", {"name": f"{name}-without-stream", "gate": name})
    with started(kind(tmp_path, site.addresses, silence_seconds=SILENCE_SECONDS)) as front:
        async with connect(front) as user:
            streamed = asyncio.create_task(user.call("hold", name=name, gate=name))
            holder = await asyncio.to_thread(site.holder, name)
            cut_off = await asyncio.to_thread(
                post_bytes, front, msgspec.json.encode(quiet), {**headers_of(quiet), "accept": "application/json"}
            )
            assert refusal(cut_off) == (504, -31004)
            site.open(name)
            assert await streamed == f"held by {holder.name}"


async def test_an_argument_in_a_header_may_be_larger_than_8_kib(both: Front) -> None:
    async with connect(both) as user:
        await user.client.list_tools()  # returns which arguments go into headers
        assert await user.call("count_in_header", text="x" * 20 * KIB) == str(20 * KIB)


def test_a_head_that_is_too_large_is_refused_with_a_reason(both: Front) -> None:
    message = tool_call("count_in_header", {"text": "x"})
    for size in (LARGEST_HEAD, LARGEST_HEAD + 8 * KIB):
        answer = post_bytes(both, b"{}", {**headers_of(message), "mcp-param-text": "x" * size})
        assert answer.status == 431
        if both.explains_heads:
            assert refusal(answer) == (431, -32600)


def test_the_largest_body_passes_and_a_larger_one_is_refused_with_a_reason(both: Front) -> None:
    """A replica that refuses reads no further: unless the proxy has its own limit, the reason may get lost."""
    message = tool_call("count", {"text": ""})
    room = LARGEST_BODY - len(msgspec.json.encode(message))
    assert call(both, "count", {"text": "x" * room}).text == str(room)

    def is_refused() -> bool:
        try:
            answer = call(both, "count", {"text": "x" * (room + 1)})
        except httpx.TransportError:
            answer = None
        told = answer is not None and answer.status == 413 and refusal(answer) == (413, -32600)
        assert told or not both.limits_bodies
        return told

    wait_until(is_refused, "the reason to arrive")


def test_the_host_that_a_client_names_is_the_one_that_the_gateway_checks(both: Front) -> None:
    message = tool_call("give", {"size": 1})
    body, headers = msgspec.json.encode(message), headers_of(message)
    assert post_bytes(both, body, {**headers, "host": both.netloc}).status == 200
    wrong = post_bytes(both, body, {**headers, "host": "elsewhere.example.com"})
    assert wrong.status == 403
    assert "does not answer for that host" in wrong.message["error"]["message"]


async def test_tls_and_http2_in_front_carry_streams_and_questions(
    kind: type[Front], site: Site, tmp_path: Path
) -> None:
    site.complete()
    gate = f"tls of {kind.program}"
    seen: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)
        site.open(gate)

    with started(kind(tmp_path, site.addresses, certificate=make_certificate(tmp_path))) as front:
        async with connect(front, http2=True) as user:
            await user.client.call_tool("tell", {"gate": gate}, progress_callback=note)
            assert await user.call("ask_twice", name=f"tls-{kind.program}", kept=40 * KIB) == (
                f"first?, second?, {40 * KIB}"
            )
    assert seen == [1, 2]
    assert set(user.versions) == {"HTTP/2"}


class Load:
    """Users that call all the time, each call with a different name.

    Attributes:
        results: name of a call → its result.
        cuts: how many requests got no response, which ends the connection of the client.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.results: dict[str, str] = {}
        self.cuts = 0
        self.stopping = False

    async def use(self, user: User, prefix: str) -> None:
        """Call until the load ends: a call that asks, then one that does not."""
        for number in itertools.count():
            if self.stopping:
                return
            for tool in ("ask_twice", "run"):
                name = f"{self.name}-{prefix}-{number}-{tool}"
                self.results[name] = await user.call(tool, name=name)

    async def more(self) -> None:
        """Wait until each user has made some more calls."""
        enough = len(self.results) + USERS * CALLS
        async with asyncio.timeout(SECONDS * 2):
            while len(self.results) < enough:  # noqa: ASYNC110 - the users' tasks add to it
                await asyncio.sleep(0.01)

    def failures(self) -> dict[str, str]:
        """Return the results that are errors."""
        return {name: text for name, text in self.results.items() if text.startswith("error")}


@asynccontextmanager
async def load(front: Front, name: str, *, session: bool = False) -> AsyncIterator[Load]:
    """Let users call, from before the block to its end."""
    load = Load(name)

    async def use(number: int) -> None:
        while not load.stopping:
            try:
                async with connect(front, session=session) as user:
                    await load.use(user, f"{number}-{load.cuts}")
            except* httpx2.RemoteProtocolError:
                load.cuts += 1

    async with asyncio.TaskGroup() as users:
        for number in range(USERS):
            users.create_task(use(number))
        await load.more()
        try:
            yield load
        finally:
            load.stopping = True


async def refuses(replica: Replica) -> None:
    """Wait until a draining replica accepts no more calls."""
    await asyncio.to_thread(
        wait_until, lambda: post(replica, tool_call("give", {"size": 1})).status == 503, "the notice to be over"
    )


@asynccontextmanager
async def held(front: Front, site: Site, name: str) -> AsyncIterator[tuple[Awaitable[Answer], Replica]]:
    """Make a call without a stream that waits for the gate of its name; yield it and the replica that runs it."""
    message = tool_call("hold", {"name": name, "gate": name})
    headers = {**headers_of(message), "accept": "application/json"}
    calling = asyncio.create_task(asyncio.to_thread(post_bytes, front, msgspec.json.encode(message), headers))
    try:
        yield calling, await asyncio.to_thread(site.holder, name)
    finally:
        site.open(name)
        await calling


@WIRES
async def test_a_replica_that_leaves_costs_no_call(both: Front, site: Site, session: bool) -> None:
    """A client with a session loses the calls that wait for an answer there, and gets -31001 without health checks."""
    name = f"leaving-{both.program}-{session}"
    async with held(both, site, name) as (holding, leaving), load(both, name, session=session) as calls:
        leaving.signal(signal.SIGTERM)
        await refuses(leaving)
        await calls.more()
        site.open(name)
        assert (await holding).text == f"held by {leaving.name}"
        assert await asyncio.to_thread(leaving.wait) == 0
        await calls.more()
    failures = calls.failures()
    assert calls.cuts == 0
    if not session:
        assert failures == {}
    told = {called for called, text in failures.items() if text.startswith("error -31001")}
    assert bool(told) == (session and not both.sees_leaving)
    assert all(called.endswith("ask_twice") for called in failures.keys() - told)
    runs = site.runs()
    ran = [runs.get(called, []) for called in calls.results if called not in failures]
    assert [len(replicas) for replicas in ran] == [1] * len(ran)
    assert not told & runs.keys()


async def test_a_replica_that_is_killed_costs_what_it_was_doing_and_nothing_runs_twice(both: Front, site: Site) -> None:
    """Only HAProxy sends a request that was lost with a replica to another one, where it runs again."""
    name = f"killed-{both.program}"
    async with held(both, site, name) as (holding, killed), load(both, name) as calls:
        killed.kill()
        if both.repeats_lost:
            await asyncio.to_thread(wait_until, lambda: len(site.runs()[name]) == 2, "another replica to hold the call")
            site.open(name)
            assert (await holding).text.startswith("held by ")
        else:
            assert refusal(await holding) == (504, -31004)
        await calls.more()
        noticed = set(calls.results)
        await calls.more()
    runs = site.runs()
    failures = calls.failures()
    assert all(text.startswith("error -31004") for text in failures.values())
    assert failures.keys() <= noticed
    assert calls.cuts <= both.closed_unsent
    if both.repeats_lost:
        assert failures == {}
        assert all(replicas[:-1] in ([], [killed.name]) for replicas in runs.values())
    else:
        assert [called for called, replicas in runs.items() if len(replicas) > 1 and called.startswith(name)] == []
