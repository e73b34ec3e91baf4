"""`POST /_gateway/hop` as a bare ASGI application: receives sealed messages of other processes of the deployment.

It needs no token, because a message that can be opened was sealed with the key ring. All other requests get the same
answer, which reveals nothing. A message that arrives together with its head is handled immediately. Only a few messages
that are still arriving are read at a time, and each only for a short time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from gateway.errors import GatewayError, HopReason
from gateway.http.asgi import Receive, Scope, Send
from gateway.http.shortcut import SHORTCUT
from gateway.observability.metrics import Telemetry
from gateway.protocol.headers import Headers
from gateway.runtime.turns import Turns
from gateway.web.exchange import BodyTooLarge, ClientGone, Exchange
from gateway.web.hop import HOP_TYPE
from gateway.web.origins import OriginPolicy

MAX_ARRIVING: Final = 32
"""How many messages are held at a time that are large or still arriving. Nobody knows yet who has sent them."""

QUICK_BYTES: Final = 65536
"""Larger messages are opened in turns. One may hold a client's answer, which takes long to decode."""

ARRIVAL_SECONDS: Final = 2.0
"""How long the body of a message may take to arrive. Its sender waits no longer for the reply."""

_CLOSE: Final = (b"connection", b"close")


class _NotTaken(Exception):
    """The request gets no reply."""

    def __init__(self, reason: HopReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass(slots=True)
class HopEndpoint:
    """Receives messages.

    `take` opens a message and returns the reply. If it refuses the message, it counts that and returns None. The
    telemetry counts messages that are refused before they are opened, such as those over `max_bytes`.
    """

    take: Callable[[bytes], Awaitable[bytes | None]]
    origins: OriginPolicy
    telemetry: Telemetry
    _: KW_ONLY
    max_bytes: int
    _arriving: int = field(default=0, init=False)
    _turns: Turns = field(default_factory=Turns, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        exchange = Exchange(receive, send, [_CLOSE], None, scope.pop(SHORTCUT, None))
        try:
            reply = await self._reply(scope, exchange)
            if reply is None:
                await exchange.answer(404, [], b"")
            else:
                await exchange.answer(200, [(b"content-type", HOP_TYPE)], reply)
        except ClientGone:
            pass
        finally:
            exchange.close()

    async def _reply(self, scope: Scope, exchange: Exchange) -> bytes | None:
        try:
            self._check(scope)
            message = exchange.whole_body()
            if message is None or len(message) > QUICK_BYTES:
                return await self._take_slowly(exchange, message)
            return await self.take(message)
        except _NotTaken as not_taken:
            self.telemetry.hop_refused(not_taken.reason)
            return None

    def _check(self, scope: Scope) -> None:
        try:
            headers = Headers(scope["headers"])
            self.origins.check(headers)
        except GatewayError:
            raise _NotTaken(HopReason.MALFORMED) from None
        if scope["method"] != "POST" or headers.get_bytes(b"content-type") != HOP_TYPE:
            raise _NotTaken(HopReason.MALFORMED)

    async def _take_slowly(self, exchange: Exchange, message: bytes | None) -> bytes | None:
        """Take a message that still arrives or is large. Few are held at a time, until they have been opened."""
        if self._arriving >= MAX_ARRIVING:
            raise _NotTaken(HopReason.OVERLOADED)
        self._arriving += 1
        try:
            if message is None:
                message = await self._body(exchange)
            if len(message) > QUICK_BYTES:
                await self._turns.begin(None, None)
            return await self.take(message)
        finally:
            self._arriving -= 1

    async def _body(self, exchange: Exchange) -> bytes:
        try:
            async with asyncio.timeout(ARRIVAL_SECONDS):
                return await exchange.read_body(self.max_bytes)
        except BodyTooLarge:
            raise _NotTaken(HopReason.TOO_LARGE) from None
        except TimeoutError:
            raise _NotTaken(HopReason.MALFORMED) from None
