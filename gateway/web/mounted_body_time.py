"""A time limit for bodies under a server that has none.

Our own server limits how long a body takes to arrive (`gateway.http.limits`). Another server, in which a gateway is
mounted, waits without end: a client that sends one byte of a body would keep its connection, its task and its memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from typing import Any

from gateway.errors import HttpRefusal
from gateway.http.asgi import RawHeaders, Receive, Send
from gateway.web.errors import to_http


class TimedBody:
    """The ASGI callables of one request, whose body must be complete in time.

    The time begins when the application first waits for the body. A body that is late counts as a client that has gone.
    Then `refuse_late` tells the client why.
    """

    def __init__(self, receive: Receive, send: Send, seconds: float) -> None:
        self._receive = receive
        self._send = send
        self._seconds = seconds
        self._deadline: float | None = None
        self._is_whole = self._is_late = self._is_answered = False

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the next event of the server, or a disconnect if the body is late."""
        if self._is_whole:
            return await self._receive()
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                event = await self._receive()
        except TimeoutError:
            self._is_late = True
            return {"type": "http.disconnect"}
        self._is_whole = event["type"] != "http.request" or not event.get("more_body", False)
        return event

    async def send(self, event: MutableMapping[str, Any]) -> None:
        """Pass on an event of the application."""
        self._is_answered = True
        await self._send(event)

    async def refuse_late(self, readable: Callable[[], RawHeaders]) -> None:
        """Answer 408 if the body was late and nothing has been answered. `readable` returns its CORS headers."""
        if not self._is_late or self._is_answered:
            return
        refusal = HttpRefusal(408, "The body took too long to arrive", [("connection", "close")])
        status, headers, body = to_http(refusal, None)
        headers += [(b"content-length", b"%d" % len(body)), *readable()]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
