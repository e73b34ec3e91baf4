"""An upstream cannot fill a replica with lists whose values are small, although each page is within its limits."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from loadtest.cluster import wait_until
from tests.security.crowd import peak_bytes
from tests.upstreams.servers.plain_http import Exchange, PlainServer
from tests.upstreams.servers.recording import Recording
from tests.upstreams.site import Site, entry

pytestmark = pytest.mark.slow

PAGES = 64
TOOLS = 48
PROPERTIES = ",".join(f'"a{number}":{{}}' for number in range(1000))
MAX_GROWTH_BYTES = 250 * 2**20
"""How much a replica may grow. All pages take 400 MiB, and twice that while a changed list replaces another one."""


class SmallValues:
    """Lists tools with a thousand properties each that say nothing, on many pages, and changes them each time."""

    def __init__(self) -> None:
        self.rounds = 0

    async def answer(self, exchange: Exchange) -> None:
        asked = json.loads(exchange.body)
        if asked["method"] != "tools/list":
            self._reply(exchange, asked["id"], '"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}')
            return
        page = int(asked["params"].get("cursor", 0))
        self.rounds += page == 0
        more = f'"nextCursor":"{page + 1}",' if page + 1 < PAGES else ""
        tools = (
            f'{{"name":"t{page}_{number}","description":"{self.rounds}",'
            f'"inputSchema":{{"type":"object","properties":{{{PROPERTIES}}}}}}}'
            for number in range(TOOLS)
        )
        self._reply(exchange, asked["id"], f'{more}"tools":[{",".join(tools)}]')

    @staticmethod
    def _reply(exchange: Exchange, number: int, members: str) -> None:
        result = f'{{"resultType":"complete","ttlMs":1000,"cacheScope":"public",{members}}}'
        body = f'{{"jsonrpc":"2.0","id":{number},"result":{result}}}'
        exchange.reply(200, body.encode(), [("content-type", "application/json")])


async def test_lists_of_many_small_values_do_not_fill_a_replica(tmp_path: Path) -> None:
    bad = SmallValues()
    with (
        Recording() as good,
        PlainServer(bad.answer) as server,
        Site(tmp_path, {"good": entry(good.url)}, None, names=["r1"]) as site,
    ):
        (replica,) = site.replicas
        site.wait_listed("good")
        before = peak_bytes(replica)
        site.configure({"good": entry(good.url), "bad": entry(server.url)})
        await asyncio.to_thread(
            wait_until, lambda: bad.rounds >= 2 or peak_bytes(replica) > before + MAX_GROWTH_BYTES, "two readings"
        )
        assert peak_bytes(replica) < before + MAX_GROWTH_BYTES
        assert replica.metric("gateway_upstream_failures_total", upstream="bad", reason="too_large") >= 1
        async with site.user() as user:
            assert (await user.call("good__echo", {"text": "not affected"})).text == "not affected"
