"""The server under applications that are not ours: limits hold, answers are right, and it drains."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse

from gateway.http.asgi import AsgiApp
from gateway.http.callbacks import Cause
from gateway.http.draining_server import DrainingServer
from tests.http.serving import LIMITS, read_all, serving, wait_until

LARGE = b"x" * 30_000_000
GET = b"GET %b HTTP/1.1\r\nHost: here\r\n\r\n"
POST = b"POST /echo HTTP/1.1\r\nHost: here\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


class Gate:
    """The event that `/held` waits for."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened = asyncio.Event()

    @property
    def reached(self) -> bool:
        return self._loop is not None

    async def passed(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._opened.wait()

    def open(self) -> None:
        """Let all pass; may be called from any thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._opened.set)


async def _parts(gate: Gate) -> AsyncIterator[bytes]:
    yield b"one "
    await gate.passed()
    yield b"two"


def bare(gate: Gate) -> AsgiApp:
    """An application without a framework."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        match scope["path"]:
            case "/echo":
                body = b""
                while (event := await receive())["type"] == "http.request":
                    body += event["body"]
                    if not event["more_body"]:
                        break
                await whole(send, body)
            case "/large":
                await whole(send, LARGE)
            case "/broken":
                raise ValueError
            case "/held":
                await gate.passed()
                await whole(send, b"held")
            case "/stream":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                async for part in _parts(gate):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                await send({"type": "http.response.body"})

    async def whole(send: Any, body: bytes) -> None:
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def fastapi(gate: Gate) -> AsgiApp:
    app = FastAPI()

    @app.post("/echo")
    async def echo(request: Request) -> Response:
        return Response(await request.body())

    @app.get("/large")
    async def large() -> Response:
        return Response(LARGE)

    @app.get("/broken")
    async def broken() -> Response:
        raise ValueError

    @app.get("/held")
    async def held() -> Response:
        await gate.passed()
        return Response(b"held")

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        return StreamingResponse(_parts(gate))

    return app


MakeApp = Callable[[Gate], AsgiApp]
applications = pytest.mark.parametrize("make_app", [bare, fastapi])


@pytest.fixture
def gate() -> Gate:
    return Gate()


@applications
def test_answers_are_those_of_the_application(make_app: MakeApp, gate: Gate) -> None:
    with serving(make_app(gate)) as running, running.client() as client:
        for body in (b"", b"hello", b"x" * 90_000):
            client.request("POST", "/echo", body)
            answer = client.getresponse()
            assert (answer.status, answer.read()) == (200, body)
            assert answer.headers["date"]
        client.request("POST", "/echo", iter([b"hel", b"lo"]), encode_chunked=True)
        assert client.getresponse().read() == b"hello"
        client.request("GET", "/large")
        assert client.getresponse().read() == LARGE
        client.request("GET", "/stream")
        stream = client.getresponse()
        assert stream.read(4) == b"one "
        gate.open()
        assert stream.read() == b"two"
        assert len(running.reports.arrived) == 6, "all on one connection"
        assert running.reports.causes == []


@applications
def test_an_application_that_fails_fails_one_request(make_app: MakeApp, gate: Gate) -> None:
    with serving(make_app(gate)) as running:
        for _ in range(2):
            with running.client() as client:
                client.request("GET", "/broken")
                assert client.getresponse().status == 500
        with running.client() as client:
            client.request("POST", "/echo", b"hello")
            assert client.getresponse().read() == b"hello"


REFUSED: dict[str, tuple[bytes, int, Cause]] = {
    "a large head": (GET % (b"/?" + b"x" * 2000), 431, Cause.HEADERS_TOO_LARGE),
    "many headers": (POST + b"X: y\r\n" * 20 + b"\r\n", 431, Cause.HEADERS_TOO_LARGE),
    "a large body": (CHUNKED + b"5;" + b"x" * 110_000, 413, Cause.BODY_TOO_LARGE),
    "two lengths": (POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx", 400, Cause.BAD_HTTP),
    "another host": (GET % b"http://elsewhere/large", 400, Cause.BAD_HTTP),
    "another version": (GET.replace(b"HTTP/1.1", b"HTTP/2.0") % b"/large", 505, Cause.BAD_HTTP),
}


@applications
@pytest.mark.parametrize(("sent", "status", "cause"), REFUSED.values(), ids=REFUSED)
def test_what_breaks_a_limit_or_the_protocol_is_refused_in_plain_text_and_reported(
    make_app: MakeApp, gate: Gate, sent: bytes, status: int, cause: Cause
) -> None:
    with serving(make_app(gate)) as running:
        head, _, body = running.send(sent).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status)
        assert b"\r\ncontent-type: text/plain" in head
        assert body
        assert running.reports.causes == [cause]


@applications
def test_clients_that_are_slow_to_send_or_send_nothing_are_cut_off(make_app: MakeApp, gate: Gate) -> None:
    limits = replace(LIMITS, head_seconds=1, body_seconds=1, idle_seconds=1)
    slow = {Cause.SLOW_HEAD: POST, Cause.SLOW_BODY: POST + b"Content-Length: 5\r\n\r\nhel"}
    with serving(make_app(gate), limits) as running, contextlib.ExitStack() as stack:
        clients = {cause: stack.enter_context(running.connect()) for cause in slow}
        idle = stack.enter_context(running.connect())
        for cause, client in clients.items():
            client.sendall(slow[cause])
        idle.sendall(POST + b"Content-Length: 0\r\n\r\n")
        for client in clients.values():
            assert read_all(client).startswith(b"HTTP/1.1 408 ")
        assert read_all(idle).count(b"HTTP/1.1 ") == 1
        assert sorted(running.reports.causes, key=str) == sorted(slow, key=str)
        assert running.reports.late == ["/echo"]


@applications
def test_a_client_that_does_not_read_its_answer_is_cut_off(make_app: MakeApp, gate: Gate) -> None:
    limits = replace(LIMITS, unread_seconds=1)
    with serving(make_app(gate), limits) as running, running.connect(receive_buffer=4096) as client:
        client.sendall(GET % b"/large")
        wait_until(lambda: running.reports.causes == [Cause.SLOW_READER])
        assert len(read_all(client)) < len(LARGE)


@applications
def test_of_clients_that_do_not_read_the_one_that_has_waited_longest_makes_room(make_app: MakeApp, gate: Gate) -> None:
    limits = replace(LIMITS, max_unread_bytes=len(LARGE) * 3 // 2)
    with serving(make_app(gate), limits) as running, running.connect(receive_buffer=4096) as first:
        first.sendall(GET % b"/large")
        wait_until(lambda: any(client._flow.write_paused for client in running.connections))
        with running.connect() as second:
            second.sendall((GET % b"/large").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            assert read_all(second).endswith(b"\r\n\r\n" + LARGE)
        assert running.reports.causes == [Cause.SLOW_READER]
        assert len(read_all(first)) < len(LARGE)


@applications
def test_connections_over_the_limit_are_closed_at_once(make_app: MakeApp, gate: Gate) -> None:
    with serving(make_app(gate), replace(LIMITS, max_connections=1)) as running:
        with running.client() as client:
            client.request("POST", "/echo", b"hello")
            assert client.getresponse().read() == b"hello"
            with running.connect() as other:
                assert read_all(other) == b""
            assert running.reports.rejected == 1
        wait_until(lambda: running.send(POST + b"Connection: close\r\nContent-Length: 0\r\n\r\n") != b"")


@applications
def test_it_gives_notice_finishes_what_is_in_flight_and_ends_cleanly(make_app: MakeApp, gate: Gate) -> None:
    events: list[str] = []
    with (
        serving(
            make_app(gate),
            notice_seconds=0.2,
            on_notice=lambda: events.append("notice"),
            on_leaving=lambda: events.append("leaving"),
        ) as running,
        running.client() as held,
        running.client() as idle,
    ):
        idle.request("POST", "/echo", b"hello")
        assert idle.getresponse().read() == b"hello"
        held.request("GET", "/held")
        wait_until(lambda: gate.reached)
        running.stop()
        wait_until(lambda: events == ["notice", "leaving"])
        assert read_all(idle.sock) == b""
        gate.open()
        answer = held.getresponse()
        assert (answer.read(), answer.headers["connection"]) == (b"held", "close")
        assert running.join()


@applications
def test_a_stream_that_the_application_ends_at_shutdown_is_complete(make_app: MakeApp, gate: Gate) -> None:
    with serving(make_app(gate), on_leaving=gate.open) as running, running.client() as client:
        client.request("GET", "/stream")
        answer = client.getresponse()
        assert answer.read(4) == b"one "
        running.stop()
        assert answer.read() == b"two"
        assert running.join()


@pytest.mark.setting("drain_seconds")
@applications
def test_what_is_in_flight_is_cut_off_when_the_drain_time_is_over(make_app: MakeApp, gate: Gate) -> None:
    with serving(make_app(gate), drain_seconds=0.1) as running, running.connect() as client:
        client.sendall(GET % b"/held")
        wait_until(lambda: gate.reached)
        began = time.monotonic()
        running.stop()
        assert not running.join()
        assert time.monotonic() - began < 10
        assert b"held" not in read_all(client)


@applications
def test_a_second_signal_ends_it_at_once(make_app: MakeApp, gate: Gate) -> None:
    with serving(make_app(gate), drain_seconds=3600) as running, running.connect() as client:
        client.sendall(GET % b"/held")
        wait_until(lambda: gate.reached)
        running.stop()
        signal_again(running.server)
        assert not running.join()
        assert b"held" not in read_all(client)


def signal_again(server: DrainingServer) -> None:
    """Signal until that counts as a second time, and not as an echo of the first."""

    def ended() -> bool:
        server.handle_exit(signal.SIGTERM, None)
        return server.force_exit

    wait_until(ended)
