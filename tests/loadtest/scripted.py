"""A client against a replica that answers by a script, and the reports of that client."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gevent
import pytest
from locust.contrib.fasthttp import FastHttpSession
from locust.event import EventHook

from loadtest.client import McpClient, call_listeners, leg_listeners
from loadtest.rawdata import Call, Leg
from loadtest.tokens import Tokens
from tests.loadtest.stubs import Exchange, StubReplica


class Seen:
    """The client's reports to its listeners and to Locust."""

    def __init__(self) -> None:
        self.legs: list[Leg] = []
        self.calls: list[Call] = []
        self.requests: list[dict[str, Any]] = []
        self.slept: list[float] = []

    @property
    def call(self) -> Call:
        (call,) = self.calls
        return call

    @property
    def outcomes(self) -> list[str]:
        return [leg.outcome for leg in self.legs]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    seen = Seen()
    leg_listeners.append(seen.legs.append)
    call_listeners.append(seen.calls.append)
    monkeypatch.setattr(gevent, "sleep", seen.slept.append)
    yield seen
    leg_listeners.remove(seen.legs.append)
    call_listeners.remove(seen.calls.append)


@pytest.fixture
def replica() -> Iterator[StubReplica]:
    with StubReplica("r1") as replica:
        yield replica


@pytest.fixture
def client(replica: StubReplica, seen: Seen) -> Iterator[McpClient]:
    host, port = replica.address
    requests = EventHook()
    requests.add_listener(lambda **told: seen.requests.append(told))
    session = FastHttpSession(f"http://{host}:{port}", requests, None, concurrency=2, network_timeout=20)
    ticks = itertools.count()
    yield McpClient(
        session, f"http://{host}:{port}/mcp", "ephemeral", clock=lambda: float(next(ticks)), tokens=Tokens(), refusals=2
    )
    session.client.close()


Message = Mapping[str, Any]
Reply = Callable[[Exchange, dict[str, Any]], object]


def script(replica: StubReplica, *replies: Reply) -> list[dict[str, Any]]:
    """Let the replica answer with these replies in order; return the requests that it gets."""
    got: list[dict[str, Any]] = []
    left = iter(replies)

    def behave(exchange: Exchange) -> None:
        request = json.loads(exchange.content)
        got.append(request)
        next(left)(exchange, request)

    replica.behave = behave
    return got


def result(by: str = "r1", **fields: Any) -> Reply:
    def reply(exchange: Exchange, request: Message) -> None:
        message = {"jsonrpc": "2.0", "id": request["id"], "result": {"resultType": "complete", **fields}}
        exchange.reply(200, json.dumps(message).encode(), content_type="application/json", x_gateway_replica=by)

    return reply


def text(told: str = "done", **fields: Any) -> Reply:
    return result(content=[{"type": "text", "text": told}], **fields)


def error(status: int, error: Message, **headers: str) -> Reply:
    def reply(exchange: Exchange, request: Message) -> None:
        message = {"jsonrpc": "2.0", "id": request["id"], "error": error}
        body = json.dumps(message, separators=(",", ":")).encode()
        exchange.reply(status, body, content_type="application/json", **headers)

    return reply


def lost(exchange: Exchange, _request: Message) -> None:
    exchange.hang_up()


def stream(*messages: Message, ends: bool = True) -> Reply:
    """Answer with a stream; without `ends`, the connection breaks after the last message."""

    def reply(exchange: Exchange, request: Message) -> None:
        exchange.begin_stream()
        for message in messages:
            exchange.chunk(b": a comment\n\n")
            exchange.chunk(f"data: {json.dumps(message)}\n\n".replace('"ID"', str(request["id"])).encode())
        if ends:
            exchange.chunk(b"")
        else:
            exchange.hang_up()

    return reply
