"""Nothing that an upstream sends stops the event loop of a replica for long.

A stop of 100 ms is the most that is wanted. The tests allow five times as much, since other processes disturb it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.upstreams.servers.plain_http import Exchange, PlainServer
from tests.upstreams.site import META, Site, User, entry

pytestmark = pytest.mark.slow

MAX_STOP_SECONDS = 0.5
ROUNDS = 3
"""How often something is sent that stops the loop for longer. The least counts: machines of tests are busy."""

SIZE = 32 * 2**20
"""How large the answers are: twice as large as they may be by default."""

OPTIONS = {"max_result_bytes": SIZE, "timeout_seconds": 60.0}
OPEN = b'{"type":"object"}'


def filled(unit: bytes, most: int = SIZE, size: int = SIZE - 4096) -> bytes:
    """Return a value again and again, with commas. In it, `#` is a number that is different each time."""
    if b"#" not in unit:
        return b",".join([unit] * min(most, size // (len(unit) + 1)))
    count = min(most, size // (len(unit) + 6))
    return b",".join(unit.replace(b"#", b"%d" % number) for number in range(count))


VALUES: Mapping[str, Callable[[], bytes]] = {
    "empty texts": lambda: b"[" + filled(b'""') + b"]",
    "arrays": lambda: b"[" + filled(b"[]") + b"]",
    "most arrays": lambda: b"[" + filled(b"[]", 49_000) + b"]",
    "most texts": lambda: b"[" + filled(b'"' + 100 * b"a" + b'"', 245_000) + b"]",
    "most names": lambda: b"{" + filled(b'"' + 30 * "\u0101".encode() + b'#":1', 245_000) + b"}",
    "long numbers": lambda: b"[" + filled(60 * b"1", 245_000) + b"]",
    "lone surrogates": lambda: b'"' + (SIZE // 6 - 700) * rb"\ud800" + b'"',
    "pairs of surrogates": lambda: b'"' + (SIZE // 12 - 400) * rb"\ud83d\ude00" + b'"',
    "escaped quotes": lambda: b'"' + (SIZE // 3 - 1400) * rb"\"," + b'"',
    "hidden characters": lambda: b'"' + (SIZE // 3 - 1400) * "\u200b".encode() + b'"',
}
"""Values of about `SIZE` bytes, or as many as a message may have."""

DEAREST = ("empty texts", "most names", "lone surrogates")
"""Those that take longest, each in another step."""

LISTS: Mapping[str, tuple[str, bytes]] = {
    "tools": ("tools/list", b'"name":"a#","inputSchema":' + OPEN),
    "prompts": ("prompts/list", b'"name":"a#","arguments":[{"name":"a"}]'),
    "resources": ("resources/list", b'"uri":"file:///a#","name":"a"'),
    "resourceTemplates": ("resources/templates/list", b'"uriTemplate":"file:///a#/{x}","name":"a"'),
}
ENTRIES: Mapping[str, Callable[[bytes], bytes]] = {
    "too many": lambda start: filled(b"{%b}" % start),
    "described at length": lambda start: filled(b'{%b,"description":"%b"}' % (start, 3_000 * b"x"), 9_900),
    "with hidden orders": lambda start: filled(b'{%b,"description":"%b"}' % (start, 1_000 * "\u200b".encode()), 9_900),
    "as many as may be": lambda start: filled(b"{%b}" % start, 9_900),
    "one that is huge": lambda start: b'{%b,"x":%b}' % (start, VALUES["most names"]()),
    "one with many arrays": lambda start: b'{%b,"_meta":{"a":%b}}' % (start, VALUES["most arrays"]()),
    "one with a title of surrogates": lambda start: b'{%b,"title":%b}' % (start, VALUES["lone surrogates"]()),
}
"""Entries of a list that begin alike."""

RESULTS: Mapping[str, Callable[[bytes], bytes]] = {
    "structured": lambda value: b'"result":{"content":[],"structuredContent":{"a":' + value + b"}}",
    "in a block": lambda value: b'"result":{"content":[{"type":"text","text":' + value + b"}]}",
    "in an error": lambda value: b'"error":{"code":5,"message":"no","data":' + value + b"}",
}


class Sending:
    """An upstream that sends what a test wants."""

    def __init__(self) -> None:
        self.listed: tuple[str, bytes] = "", b""
        self.call = b'"result":{"content":[]}'
        self.notice = b""
        self.introduction = b"1"

    async def answer(self, exchange: Exchange) -> None:
        found, method = re.search(rb'"id":(\d+)', exchange.body[:200]), exchange.header("mcp-method") or ""
        if found is None:
            exchange.reply(202)
            return
        message = b'{"jsonrpc":"2.0","id":' + found[1] + b"," + self._members(method) + b"}"
        if method == "tools/call" and self.notice:
            params = b'"params":{"level":"info","data":' + self.notice + b"}"
            exchange.begin_events()
            exchange.chunk(b'data: {"jsonrpc":"2.0","method":"notifications/message",' + params + b"}\n\n")
            exchange.chunk(b"data: " + message + b"\n\n")
            exchange.end_events()
        else:
            exchange.reply(200, message, [("content-type", "application/json")])

    def _members(self, method: str) -> bytes:
        listed = next((member for member, (lists, _) in LISTS.items() if lists == method), None)
        if method == "tools/call":
            return self.call
        if listed is not None:
            entries = self.listed[1] if self.listed[0] == listed else b""
            result = b'"%b":[%b]' % (listed.encode(), entries)
        else:
            capabilities = b'"tools":{},"prompts":{},"resources":{},"a":' + self.introduction
            result = b'"supportedVersions":["2026-07-28"],"capabilities":{' + capabilities + b"}"
        return b'"result":{"resultType":"complete","ttlMs":60000,"cacheScope":"public",' + result + b"}"


class Watched:
    """A replica with such an upstream."""

    def __init__(self, site: Site, url: str, upstream: Sending) -> None:
        self.site = site
        self.upstream = upstream
        self._url = url
        self._number = 0

    def read_lists(self) -> None:
        """Serve the upstream under another name, so that its lists are read, and wait for that."""
        self._number += 1
        name = f"up{self._number}"
        self.site.configure({name: entry(self._url, **OPTIONS)})
        self.site.wait_listed(name)

    @property
    def tool(self) -> str:
        return f"up{self._number}__a"


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    upstream = Sending()
    settings = {"GATEWAY_TOOLS": "tests.upstreams.heartbeat"}
    with PlainServer(upstream.answer) as server:
        first = {"up0": entry(server.url, **OPTIONS)}
        with Site(tmp_path_factory.mktemp("stops"), first, None, settings, names=["r1"]) as site:
            site.wait_listed("up0")
            yield Watched(site, server.url, upstream)


async def longest_stop(site: Site, work: Callable[[User], Awaitable[Any]]) -> float:
    """Return for how many seconds some work stops the loop: the least of some rounds, if it is too long."""
    stops: list[float] = []
    async with site.user("ada", seconds=60) as ada, site.user("eve", seconds=60) as eve:
        while not stops or (min(stops) > MAX_STOP_SECONDS and len(stops) < ROUNDS):
            await ada.call("longest_stop")
            await work(eve)
            stops.append(float((await ada.call("longest_stop")).text))
    return min(stops)


@pytest.mark.parametrize(
    ("member", "entries"),
    [
        *(("tools", entries) for entries in ENTRIES),
        *((member, entries) for member in LISTS for entries in ("too many", "as many as may be") if member != "tools"),
    ],
)
async def test_no_list_stops_the_loop(watched: Watched, member: str, entries: str) -> None:
    async def read(user: User) -> None:
        await asyncio.to_thread(watched.read_lists)
        await user.send(LISTS[member][0])

    watched.upstream.listed = member, ENTRIES[entries](LISTS[member][1])
    try:
        assert await longest_stop(watched.site, read) < MAX_STOP_SECONDS
    finally:
        watched.upstream.listed = "", b""


@pytest.mark.parametrize(
    ("shape", "value"),
    [
        *(("structured", value) for value in VALUES),
        *((shape, value) for shape in RESULTS for value in DEAREST if shape != "structured"),
    ],
)
async def test_no_answer_to_a_call_stops_the_loop(watched: Watched, shape: str, value: str) -> None:
    async def call(user: User) -> None:
        reply = await user.send("tools/call", {"name": watched.tool, "arguments": {}})
        assert reply.status == 200

    watched.upstream.call = RESULTS[shape](VALUES[value]())
    assert await longest_stop(watched.site, call) < MAX_STOP_SECONDS


@pytest.mark.parametrize("value", DEAREST)
async def test_no_notice_stops_the_loop(watched: Watched, value: str) -> None:
    async def call(user: User) -> None:
        meta = {f"{META}/logLevel": "debug"}
        reply = await user.send("tools/call", {"name": watched.tool, "arguments": {}, "_meta": meta})
        assert reply.status == 200

    watched.upstream.call, watched.upstream.notice = b'"result":{"content":[]}', VALUES[value]()
    try:
        assert await longest_stop(watched.site, call) < MAX_STOP_SECONDS
    finally:
        watched.upstream.notice = b""


@pytest.mark.parametrize("value", DEAREST)
async def test_no_introduction_stops_the_loop(watched: Watched, value: str) -> None:
    async def discover(_user: User) -> None:
        await asyncio.to_thread(watched.read_lists)

    watched.upstream.introduction = VALUES[value]()
    try:
        assert await longest_stop(watched.site, discover) < MAX_STOP_SECONDS
    finally:
        watched.upstream.introduction = b"1"
