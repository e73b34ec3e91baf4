"""A cancelled request ends on whichever replica runs it, and nobody else can end it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import redis as redis_client

from gateway.wires.broadcasts import PAUSE_SECONDS
from loadtest.cluster import Replica, wait_until
from tests.storage.servers import Server, own_redis
from tests.wires.draft.client import DraftClient
from tests.wires.draft.deployment import Deployment
from tests.wires.draft.messages import VERSION
from tests.wires.draft.under_way import UnderWay, under_way
from tests.wires.legacy.speaking import BEFORE_TASKS, LEGACY, asked, calling, speak, text_of

pytestmark = pytest.mark.slow

TOOLS: Final = "tests.wires.draft.tools,tests.wires.legacy.working_tools"
CARRIERS: Final = ("store", "peers")
FLOOD: Final = 200
AT_ONCE: Final = 25
ANY_TIMES: Final = 3
"""How often more than expected a message may come: the machine may be slow."""


class Peers(Deployment):
    """Replicas that know each other's addresses."""

    def __init__(self, directory: Path, server: Server | None = None) -> None:
        super().__init__(directory, server, {"GATEWAY_TOOLS": TOOLS})
        urls = ",".join(replica.url.removesuffix("/mcp") for replica in self.replicas)
        for replica in self.replicas:
            replica.environ["GATEWAY_PEERS"] = urls


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Two replicas without a store."""
    with Peers(tmp_path_factory.mktemp("peers")) as peers:
        yield peers


@pytest.fixture
def mortal_redis() -> Iterator[Server]:
    """A store that a test may kill."""
    with own_redis() as server:
        yield server


@pytest.fixture(params=CARRIERS)
def pair(request: pytest.FixtureRequest) -> Deployment:
    """Two replicas that notify each other of cancelled requests, through a store or without one."""
    fleet: Deployment = request.getfixturevalue("fleet" if request.param == "store" else "peers")
    return fleet


@contextlib.asynccontextmanager
async def session(pair: Deployment, name: str, version: str = LEGACY) -> AsyncIterator[DraftClient]:
    """Begin a session whose requests go to the first replica."""
    async with pair.client(name, urls=pair.urls[:1]) as user:
        yield await speak(user, version)


async def cancel(user: DraftClient, replica: Replica, request_id: object) -> None:
    user.transport.urls = [replica.url]
    await user.notify("notifications/cancelled", {"requestId": request_id})


@contextlib.asynccontextmanager
async def working(pair: Deployment, user: DraftClient, gate: str) -> AsyncIterator[UnderWay]:
    """Call a tool that works until its gate opens, at the first replica."""
    user.transport.urls = pair.urls[:1]
    async with calling(user, "outlive", gate=gate) as call:
        await asyncio.to_thread(pair.wait_for_lines, f"started-{gate}")
        call.request_id = user.sent("tools/call")[-1]["id"]  # nothing has been answered yet
        yield call


def cancelled(replica: Replica) -> float:
    return replica.metric("gateway_legs_total", outcome="cancelled")


async def ended(replica: Replica, before: float) -> None:
    """Wait until one more leg of a replica is cancelled."""
    await asyncio.to_thread(wait_until, lambda: cancelled(replica) == before + 1, "a leg to be cancelled")


@pytest.mark.parametrize("version", [LEGACY, BEFORE_TASKS, VERSION])
async def test_a_call_that_works_on_another_replica_is_cancelled(pair: Deployment, name: str, version: str) -> None:
    first, second = pair.replicas
    before = cancelled(first)
    async with session(pair, name, version) as user, working(pair, user, name) as call:
        await cancel(user, second, call.request_id)
        await ended(first, before)
        assert await call.end() == []
    assert pair.lines(f"ended-{name}") == []


async def test_a_call_that_waits_for_its_client_on_another_replica_is_cancelled(pair: Deployment, name: str) -> None:
    first, second = pair.replicas
    async with session(pair, name) as user, calling(user, "ask", call=name, kinds=["form"]) as call:
        await asked(call)
        await cancel(user, second, call.request_id)
        assert len(await call.end()) == 1
        await asyncio.to_thread(
            wait_until, lambda: first.metric("gateway_calls_waiting") == 0, "the call to wait no more"
        )


async def test_a_prompt_that_asks_on_another_replica_is_cancelled(pair: Deployment, name: str) -> None:
    params = {"name": "greeting", "arguments": {"tone": "warmly"}}
    async with session(pair, name) as user, under_way(user, "prompts/get", params) as call:
        await asked(call)
        await cancel(user, pair.replicas[1], call.request_id)
        assert len(await call.end()) == 1


async def test_another_user_and_another_session_cancel_nothing(pair: Deployment, name: str) -> None:
    """These messages come before a valid cancellation, so they have had their effect when that one has."""
    first, second = pair.replicas
    before = cancelled(first)
    async with contextlib.AsyncExitStack() as stack:
        user = await stack.enter_async_context(session(pair, name))
        others = [await stack.enter_async_context(session(pair, other)) for other in (name, f"{name}-other")]
        thief = await stack.enter_async_context(session(pair, f"{name}-other"))
        thief.transport.headers["Mcp-Session-Id"] = str(user.session_id)
        call = await stack.enter_async_context(working(pair, user, name))
        witness = await stack.enter_async_context(working(pair, user, f"{name}-witness"))
        assert type(call.request_id) is int
        for other in others:
            await cancel(other, second, call.request_id)
        await cancel(user, second, str(call.request_id))
        with pytest.raises(Exception, match="404"):
            await cancel(thief, second, call.request_id)
        await cancel(user, second, witness.request_id)
        await ended(first, before)
        pair.open(name)
        assert text_of((await call.response())["result"]) == "ended"
    assert cancelled(first) == before + 1


def broadcasts(replica: Replica) -> float:
    return replica.metric("gateway_broadcasts_total")


async def test_a_flood_of_cancellations_of_nothing_costs_few_messages_and_holds_up_nobody(
    pair: Deployment, name: str
) -> None:
    first, second = pair.replicas
    before, sent = cancelled(first), broadcasts(second)
    async with (
        session(pair, name) as user,
        session(pair, f"{name}-flood") as flooder,
        working(pair, user, name) as call,
        httpx.AsyncClient(trust_env=False, verify=False, timeout=60) as client,
    ):
        numbers = itertools.count(1_000_000)

        async def flood() -> None:
            for _ in range(FLOOD // AT_ONCE):
                params = {"requestId": next(numbers)}
                message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
                answer = await client.post(second.url, json=message, headers=flooder.transport.headers)
                assert answer.status_code == 202

        began = time.monotonic()
        floods = [asyncio.create_task(flood()) for _ in range(AT_ONCE)]
        await asyncio.wait(floods, return_when=asyncio.FIRST_COMPLETED)
        await cancel(user, second, call.request_id)
        await ended(first, before)
        await asyncio.gather(*floods)
    seconds = time.monotonic() - began
    assert broadcasts(second) - sent <= seconds / PAUSE_SECONDS + ANY_TIMES
    assert first.metric("gateway_hop_messages_refused_total") == 0


async def test_what_is_published_tells_nothing_of_the_client(fleet: Deployment, redis: Server, name: str) -> None:
    first, second = fleet.replicas
    before = cancelled(first)
    with redis_client.Redis.from_url(redis.url) as store, store.pubsub() as listener:
        listener.psubscribe("*")
        async with session(fleet, name) as user, working(fleet, user, name) as call:
            await cancel(user, second, call.request_id)
            await ended(first, before)
            secrets = [user.session_id, user.transport.headers["Authorization"], name, '"requestId"', "cancelled"]
        heard = b"".join(_published(listener))
    assert heard
    assert not any(str(secret).encode() in heard for secret in secrets)
    assert not any(":replicas" in str(key) for key in _keys(redis)), "what is published is kept nowhere"


def _published(listener: Any) -> Iterator[bytes]:
    while (message := listener.get_message(timeout=0.5)) is not None:
        if message["type"] == "pmessage":
            yield message["channel"] + b" " + message["data"] + b"\n"


def _keys(server: Server) -> list[bytes]:
    with redis_client.Redis.from_url(server.url) as store:
        return list(store.scan_iter("*"))


async def test_during_an_outage_of_the_store_the_peers_are_notified(
    mortal_redis: Server, tmp_path: Path, name: str
) -> None:
    with Peers(tmp_path / "both", mortal_redis) as both:
        first, second = both.replicas
        for number in range(2):
            if number == 1:
                mortal_redis.kill()
            before = cancelled(first)
            async with session(both, name) as user, working(both, user, f"{name}-{number}") as call:
                await cancel(user, second, call.request_id)
                await ended(first, before)
        assert second.metric("gateway_broadcasts_total", result="delivered") == 2
        assert first.metric("gateway_hop_messages_refused_total") == 0


async def test_without_store_and_peers_a_cancellation_ends_nothing_elsewhere(tmp_path: Path, name: str) -> None:
    with Deployment(tmp_path, None, {"GATEWAY_TOOLS": TOOLS}) as alone:
        first, second = alone.replicas
        async with session(alone, name) as user, working(alone, user, name) as call:
            await cancel(user, second, call.request_id)
            alone.open(name)
            assert text_of((await call.response())["result"]) == "ended"
        assert broadcasts(second) == 0
        async with session(alone, name) as user, working(alone, user, f"{name}-here") as call:
            await cancel(user, first, call.request_id)
            await ended(first, 0)
