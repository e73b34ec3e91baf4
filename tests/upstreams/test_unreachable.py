"""An upstream that nobody can reach costs the others nothing, is refused quickly, and comes back by itself."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from loadtest.cluster import wait_until
from tests.upstreams.servers.plain_http import HOST
from tests.upstreams.servers.recording import Recording
from tests.upstreams.site import Site, User, entry

pytestmark = pytest.mark.slow

TIMEOUT_SECONDS = 4.0
LIST_SECONDS = 2.0
SLACK_SECONDS = 1.0
"""A busy machine may add as much to a promised time."""
QUICK_SECONDS = 1.0


@contextlib.contextmanager
def black_hole(port: int) -> Iterator[None]:
    """Take a port so that connections to it are never made: their packets are lost, as those to a dead host are."""
    with contextlib.ExitStack() as stack:
        hole = stack.enter_context(socket.socket())
        hole.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        hole.bind((HOST, port))
        hole.listen(0)
        for _ in range(8):  # these fill the backlog
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex((HOST, port))
        yield


def is_open(site: Site) -> bool:
    return site.metric("gateway_upstream_breaker_open", upstream="hole") == 1


async def check_others(user: User) -> None:
    """Check that another upstream is called and listed as if there was no hole."""
    began = time.monotonic()
    assert (await user.call("good__echo", {"text": "hi"})).text == "hi"
    assert time.monotonic() - began < QUICK_SECONDS
    assert "good__echo" in await user.names()
    assert time.monotonic() - began < LIST_SECONDS + SLACK_SECONDS


async def call_until(opened: partial[bool], user: User) -> None:
    """Call what cannot be reached until nothing is sent there any more. Check the other upstream all the time."""
    async with asyncio.timeout(60):
        while not opened():
            calls = [asyncio.create_task(user.call("hole__echo", {"text": "lost"})) for _ in range(6)]
            while not all(call.done() for call in calls):
                await check_others(user)
                await asyncio.wait(calls, timeout=0.1)
            for call in calls:
                assert call.result().result["isError"]
                assert "may have" not in call.result().text


async def check_refused(user: User) -> None:
    began = time.monotonic()
    refused = [await user.call("hole__echo", {"text": "lost"}) for _ in range(5)]
    assert time.monotonic() - began < QUICK_SECONDS
    assert all(reply.result["isError"] for reply in refused)


@pytest.mark.parametrize("was_listed", [True, False], ids=["listed before", "never listed"])
async def test_a_black_hole_is_noticed_and_refused_quickly_and_left_again(tmp_path: Path, was_listed: bool) -> None:
    with contextlib.ExitStack() as stack:
        good, lost = stack.enter_context(Recording(["echo"])), stack.enter_context(Recording(["echo"]))
        upstreams = {"good": entry(good.url), "hole": entry(lost.url, timeout_seconds=TIMEOUT_SECONDS)}
        if was_listed:
            site = stack.enter_context(Site(tmp_path, upstreams, names=["r1"]))
            site.wait_listed("hole")
        lost.server.run(lost.server.stop())
        with black_hole(lost.server.port):
            if not was_listed:
                site = stack.enter_context(Site(tmp_path, upstreams, names=["r1"]))
                site.wait_listed("good")
            async with site.user() as user:
                await call_until(partial(is_open, site), user)
                await check_refused(user)
                await check_others(user)
                assert ("hole__echo" in await user.names()) == was_listed
        lost.server.run(lost.server.listen())
        await asyncio.to_thread(wait_until, lambda: not is_open(site), "the end of the refusals", 60)
        async with site.user() as user:
            assert (await user.call("hole__echo", {"text": "back"})).text == "back"
