"""A body must be complete in time, under a server that has no limit of its own."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from gateway.web.mounted_body_time import TimedBody

Event = MutableMapping[str, Any]


def part(body: bytes, *, more: bool = True) -> Event:
    return {"type": "http.request", "body": body, "more_body": more}


class Server:
    """Gives these events, then waits; and keeps what is sent."""

    def __init__(self, *events: Event) -> None:
        self.events = list(events)
        self.sent: list[Event] = []

    async def receive(self) -> Event:
        if not self.events:
            await asyncio.Event().wait()
        return self.events.pop(0)

    async def send(self, event: Event) -> None:
        self.sent.append(event)


def readable() -> list[tuple[bytes, bytes]]:
    return [(b"access-control-allow-origin", b"https://app.example.com")]


async def test_a_late_body_is_a_client_that_has_gone_and_is_told_why() -> None:
    server = Server(part(b"{"))
    request = TimedBody(server.receive, server.send, 0.05)
    assert await request.receive() == part(b"{")
    assert await request.receive() == {"type": "http.disconnect"}
    await request.refuse_late(readable)
    assert (server.sent[0]["status"], len(server.sent)) == (408, 2)
    assert readable()[0] in server.sent[0]["headers"]


async def test_the_parts_of_a_body_share_one_limit() -> None:
    server = Server()

    async def drip() -> Event:
        await asyncio.sleep(0.02)
        return part(b" ")

    request = TimedBody(drip, server.send, 0.1)
    async with asyncio.timeout(30):
        while (await request.receive())["type"] != "http.disconnect":
            pass


async def test_after_a_whole_body_nothing_is_limited() -> None:
    server = Server(part(b"{}", more=False))
    request = TimedBody(server.receive, server.send, 0.05)
    assert await request.receive() == part(b"{}", more=False)
    gone = asyncio.create_task(request.receive())
    _, pending = await asyncio.wait({gone}, timeout=0.3)
    assert pending == {gone}, "it waits for the client to go, as long as the answer takes"
    gone.cancel()
    await request.refuse_late(readable)
    assert server.sent == []


async def test_a_late_body_that_was_answered_is_not_answered_twice() -> None:
    server = Server()
    request = TimedBody(server.receive, server.send, 0.01)
    await request.receive()
    await request.send({"type": "http.response.start", "status": 413, "headers": []})
    await request.refuse_late(readable)
    assert len(server.sent) == 1
