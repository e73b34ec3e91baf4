"""An ASGI application driven without a server: any bytes in, all events out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.types import ASGIApp

from gateway.process.app import GatewayApp
from gateway.process.replica import build
from gateway.settings.model import Settings
from loadtest.cluster import new_key
from tests.integration.raw import Answer, headers_of

RawHeaders = Sequence[tuple[bytes, bytes]]

HOST = (b"host", b"127.0.0.1:8080")


def make_app(tools: str = "tests.integration.tools", **settings: Any) -> GatewayApp:
    """Make the application of one replica, by default without identity.

    It passes for one that runs, although there is no server that would open its lifespan.
    """
    given = {"seal_keys": new_key(), "audience": "tests", "auth": "none", "replica_id": "r1", **settings}
    app = GatewayApp(build(Settings.load({}, tools=(tools,), **given)))
    app.is_running = True
    return app


def raw_headers(message: Mapping[str, Any], **more: str) -> list[tuple[bytes, bytes]]:
    """Return the headers that match a message, in ASGI's form."""
    headers = {**headers_of(message), **more}
    return [HOST, *((name.encode(), value.encode()) for name, value in headers.items())]


@dataclass
class Client:
    """One connection.

    Attributes:
        app: what it is connected to.
        leaves: whether it is gone after its last chunk, instead of waiting for the answer.
        server: the address that it is connected to.
        root_path: the path that the server says it serves the application at.
        raw_path: the path as it was sent, where that is another one.
        asked_for: how many chunks the application has asked for.
        sent: the events that the application has sent.
    """

    app: ASGIApp
    leaves: bool = False
    server: tuple[str, int | None] | None = ("127.0.0.1", 8080)
    root_path: str = ""
    raw_path: bytes = b""
    asked_for: int = 0
    sent: list[MutableMapping[str, Any]] = field(default_factory=list)

    async def post(self, message: Mapping[str, Any], **headers: str) -> Answer:
        """Send a message with the headers that match it."""
        return await self.send([msgspec.json.encode(message)], raw_headers(message, **headers))

    async def send(
        self, chunks: Iterable[bytes], headers: RawHeaders, *, method: str = "POST", path: str = "/mcp"
    ) -> Answer:
        """Send a request in chunks, `more_body` with each but the last, and return the answer."""
        await self.run(chunks, headers, method=method, path=path)
        start, *bodies = self.sent
        assert start["type"] == "http.response.start"
        assert bodies
        assert [body.get("more_body", False) for body in bodies] == [True] * (len(bodies) - 1) + [False]
        given = {name.decode("latin-1"): value.decode("latin-1") for name, value in start["headers"]}
        return Answer(start["status"], given, b"".join(body.get("body", b"") for body in bodies))

    async def run(
        self, chunks: Iterable[bytes], headers: RawHeaders, *, method: str = "POST", path: str = "/mcp"
    ) -> None:
        """Send a request and wait until the application is done with it."""
        remaining = iter(chunks)
        upcoming = next(remaining, None)

        async def receive() -> MutableMapping[str, Any]:
            nonlocal upcoming
            self.asked_for += 1
            if upcoming is not None:
                chunk, upcoming = upcoming, next(remaining, None)
                return {"type": "http.request", "body": chunk, "more_body": upcoming is not None or self.leaves}
            if not self.leaves:
                await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(event: MutableMapping[str, Any]) -> None:
            self.sent.append(event)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": self.raw_path or path.encode(),
            "query_string": b"",
            "root_path": self.root_path,
            "headers": list(headers),
            "client": ("127.0.0.1", 50000),
            "server": self.server,
            "state": {},
        }
        await self.app(scope, receive, send)
