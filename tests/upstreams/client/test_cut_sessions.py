"""A server that dies at any byte of an exchange: the call is answered, or its failure says whether it was sent."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from gateway.children.children import Children, Program
from gateway.http_client.client import HttpClient
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.upstreams.client.connections import ConnectionPool, Subscribers
from gateway.upstreams.client.programs import UpstreamProgram
from gateway.upstreams.client.session import SessionClient
from gateway.upstreams.client.stdio import ChildConnection
from gateway.upstreams.failures import Reason, UpstreamFailure
from gateway.upstreams.ports import NOBODY
from tests.upstreams.client.serving import CLIENT_INFO, Counting, sessions_with
from tests.upstreams.servers.plain_http import Exchange, PlainServer

pytestmark = pytest.mark.slow

SECONDS: Final = 10.0
AT_ONCE: Final = 16
INITIALIZED: Final = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "n", "version": "1"}}
TEXT: Final = {"content": [{"type": "text", "text": "ü"}]}
HEAD: Final = b"HTTP/1.1 200 OK\r\nmcp-session-id: s\r\n"


def answer(number: int, result: Any) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": number, "result": result})


LINES: Final = answer(1, INITIALIZED) + b"\n" + answer(2, TEXT) + b"\n"
INTRODUCED: Final = len(answer(1, INITIALIZED)) + 1
PROGRAM: Final = """
import json, os, sys
whole, cut = sys.argv[1].encode(), int(sys.argv[2])
for line in sys.stdin:
    if json.loads(line).get("id") == 1:
        end = whole.index(b"\\n") + 1
        os.write(1, whole[:min(cut, end)])
        if cut < end:
            os._exit(1)
    elif "id" in json.loads(line):
        os.write(1, whole[end:cut])
        os._exit(1)
"""


@dataclass(frozen=True)
class Ended:
    """How a call ended: with a text, or with a failure."""

    text: str = ""
    failure: UpstreamFailure | None = None


async def called(client: SessionClient) -> Ended:
    try:
        async with asyncio.timeout(SECONDS):
            result = await client.request(
                "tools/call", {"name": "t", "arguments": {}}, requester=NOBODY, seconds=SECONDS / 2, max_bytes=1 << 20
            )
        return Ended(result["content"][0]["text"])
    except UpstreamFailure as failure:
        return Ended(failure=failure)


async def all_ended(cuts: Iterable[int], run: Callable[[int], Awaitable[Ended]]) -> dict[int, Ended]:
    """Return how the call ended for each cut; a few run side by side."""
    places, ended = asyncio.Semaphore(AT_ONCE), dict[int, Ended]()

    async def one(cut: int) -> None:
        async with places:
            ended[cut] = await run(cut)

    await asyncio.gather(*(one(cut) for cut in cuts))
    return ended


def check(ended: dict[int, Ended], introduced: int, complete: int, reasons: set[Reason]) -> None:
    """Compare with the bytes of `initialize` and the byte from which on the answer is complete."""
    wrong = {
        cut: end
        for cut, end in ended.items()
        if (end.text != "ü" if end.failure is None else end.failure.reason not in reasons)
        or (end.failure is None and cut < complete)
        or (end.failure is not None and end.failure.sent != (cut >= introduced))
    }
    assert wrong == {}
    assert ended[max(ended)].failure is None


async def test_a_program_that_dies_at_any_byte() -> None:
    children = Children(2 * AT_ONCE)

    async def run(cut: int) -> Ended:
        telemetry = UpstreamMetrics(CollectorRegistry())
        program = Program([sys.executable, "-I", "-S", "-c", PROGRAM, LINES.decode(), str(cut)], {"LC_ALL": "C.UTF-8"})

        def make(subscribers: Subscribers) -> ChildConnection:
            return ChildConnection(
                "shop",
                UpstreamProgram("shop", program, children, telemetry),
                telemetry,
                client_info=CLIENT_INFO,
                subscribers=subscribers,
                max_line_bytes=1 << 20,
            )

        client = SessionClient(
            "shop", ConnectionPool("shop", make, telemetry, max_connections=1, idle_seconds=300), "shared"
        )
        ended = await called(client)
        await client.aclose()
        return ended

    try:
        ended = await all_ended(range(len(LINES) + 1), run)
    finally:
        await children.aclose()
    check(ended, INTRODUCED, len(LINES), {Reason.CUT, Reason.UNREACHABLE})


def as_body(body: bytes) -> bytes:
    return HEAD + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def as_event(body: bytes) -> bytes:
    chunk = b"data: " + body + b"\n\n"
    head = HEAD + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(chunk), chunk)


@pytest.mark.parametrize("written", [as_body, as_event])
async def test_a_session_over_http_that_is_cut_at_any_byte(written: Callable[[bytes], bytes]) -> None:
    first, second = written(answer(1, INITIALIZED)), written(answer(3, TEXT))  # 2 is the stream
    rest = 0 if written is as_body else len(b"\r\n0\r\n\r\n")  # of a stream, which the answer does not need

    async def run(cut: int) -> Ended:
        async def handle(exchange: Exchange) -> None:
            message = json.loads(exchange.body) if exchange.method == "POST" else {}
            if "id" not in message:
                exchange.reply(405 if exchange.method == "GET" else 202)
                return
            start, response = (0, first) if message["method"] == "initialize" else (len(first), second)
            exchange.raw(response[: max(cut - start, 0)])
            if cut < start + len(response):
                exchange.cut()
            else:
                exchange.finished = True

        with PlainServer(handle) as server:
            http = HttpClient(server.url)
            client = sessions_with(http, Counting(), scope="shared")
            ended = await called(client)
            await client.aclose()
            await http.aclose()
        return ended

    ended = await all_ended(range(len(first) + len(second) + 1), run)
    check(ended, len(first) - rest, len(first) + len(second) - rest, {Reason.CUT, Reason.UNREACHABLE, Reason.MALFORMED})
