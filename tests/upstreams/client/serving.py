"""A stateless server of tests, the client that asks it, and what is counted."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from gateway.http_client.client import HttpClient
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.upstreams.client.connections import ConnectionPool
from gateway.upstreams.client.session import SessionClient
from gateway.upstreams.client.session_http import HttpSession
from gateway.upstreams.client.stateless import StatelessClient
from gateway.upstreams.config.definition import Scope
from gateway.upstreams.credentials import CredentialHeaders, PlainHeaders
from gateway.upstreams.failures import Reason
from gateway.upstreams.ports import NOBODY, UpstreamCaller
from tests.upstreams.servers.plain_http import Exchange, PlainServer, Served

NAME = "shop"
CLIENT_INFO = {"name": "sealed-gateway", "version": "1"}
SECONDS = 20.0
Answer = Callable[[Exchange, Any], Awaitable[None]]


class Counting(UpstreamMetrics):
    """Keeps what a client counts. It counts nothing else."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        super().__init__(self.registry)
        self.ended: list[tuple[str, str]] = []
        self.reasons: list[Reason] = []
        self.things: list[str] = []

    def request_ended(self, upstream: str, method: str, outcome: str, seconds: float) -> None:
        assert upstream == NAME
        assert seconds >= 0
        self.ended.append((method, outcome))

    def failed(self, upstream: str, reason: str) -> None:
        assert upstream == NAME
        self.reasons.append(Reason(reason))

    def dropped(self, upstream: str, what: str, count: int = 1) -> None:
        assert upstream == NAME
        self.things.extend([what] * count)

    def value(self, metric: str, **labels: str) -> float:
        """Return the value of a metric, 0 if it has none."""
        return self.registry.get_sample_value(metric, {"upstream": NAME, **labels}) or 0

    def listed(self, upstream: str, *, succeeded: bool) -> None:
        raise AssertionError

    def serves(self, upstream: str, entries: int) -> None:
        raise AssertionError

    def breaker(self, upstream: str, *, is_open: bool) -> None:
        raise AssertionError

    def in_flight(self, upstream: str, requests: int) -> None:
        raise AssertionError


def sessions_with(
    http: HttpClient, telemetry: UpstreamMetrics, scope: Scope = "caller", **limits: Any
) -> SessionClient:
    """Return a client of an upstream that is called in sessions. It forwards `x-tenant`."""
    pool = ConnectionPool(
        NAME,
        lambda subscribers: HttpSession(
            NAME,
            http,
            PlainHeaders(forwarded=["x-tenant"]),
            telemetry,
            client_info=CLIENT_INFO,
            streams=http,
            answers=http,
            subscribers=subscribers,
            is_of_one_caller=scope != "shared",
        ),
        telemetry,
        **{"max_connections": 10, "idle_seconds": 300.0, **limits},
    )
    return SessionClient(NAME, pool, scope)


def result(request_id: Any, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "result": {"resultType": "complete", **members}}


def notice(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}


async def fine(exchange: Exchange, message: Any) -> None:
    exchange.json(result(message["id"]))


@dataclass
class Shop(Served):
    """A server that answers each request with the next of `answers`, then with the last one again."""

    answers: list[Answer] = field(default_factory=lambda: [fine])
    exchanges: list[Exchange] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server = PlainServer(self._handle)

    async def _handle(self, exchange: Exchange) -> None:
        answer = self.answers[min(len(self.exchanges), len(self.answers) - 1)]
        message = msgspec.json.decode(exchange.body)
        self.exchanges.append(exchange)
        self.messages.append(message)
        await answer(exchange, message)


class Asking:
    def __init__(self, http: HttpClient, credentials: CredentialHeaders, **options: Any) -> None:
        self.counted = Counting()
        self.client = StatelessClient(NAME, http, credentials, self.counted, client_info=CLIENT_INFO, **options)

    async def call(self, tool: str = "echo", *, requester: UpstreamCaller = NOBODY, **options: Any) -> dict[str, Any]:
        given = {"seconds": SECONDS, "max_bytes": 1 << 20, **options}
        return await self.client.request("tools/call", {"name": tool, "arguments": {}}, requester=requester, **given)


@contextlib.asynccontextmanager
async def asking(
    url: str, credentials: CredentialHeaders | None = None, *, connections: int = 100, **options: Any
) -> AsyncIterator[Asking]:
    http = HttpClient(url, max_connections=connections)
    try:
        yield Asking(http, credentials or PlainHeaders(), **options)
    finally:
        await http.aclose()
