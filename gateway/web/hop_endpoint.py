"""`POST /_gateway/hop` as a bare ASGI application: receives sealed messages of other processes of the deployment.

A message gets one reply. A request for a stream gets a body that ends with the stream.

It needs no token, because a message that can be opened was sealed with the key ring. All other requests get the same
answer, which reveals nothing. A message that arrives together with its head is handled immediately. Only a few messages
that are still arriving are read at a time, and each only for a short time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from gateway.errors import GatewayError, HopReason
from gateway.http.asgi import Receive, Scope, Send
from gateway.http.shortcut import SHORTCUT, Shortcut
from gateway.observability.metrics import Telemetry
from gateway.protocol.headers import Headers
from gateway.runtime.turns import Turns
from gateway.tokens.stream_receiver import StreamOutput
from gateway.tokens.stream_sender import STREAM_TYPE
from gateway.web.exchange import BodyTooLarge, ClientGone, Exchange, Patience
from gateway.web.hop import HOP_TYPE
from gateway.web.origins import OriginPolicy

MAX_ARRIVING: Final = 32
"""How many messages are held at a time that are large or still arriving. Nobody knows yet who has sent them."""

QUICK_BYTES: Final = 65536
"""Larger messages are opened in turns. One may hold a client's answer, which takes long to decode."""

ARRIVAL_SECONDS: Final = 2.0
"""How long the body of a message may take to arrive. Its sender waits no longer for the reply."""

log = logging.getLogger(__name__)

_STREAM: Final = (b"content-type", STREAM_TYPE)
_CLOSE: Final = (b"connection", b"close")


class _NotTaken(Exception):
    """The request gets no reply."""

    def __init__(self, reason: HopReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass(slots=True)
class HopEndpoint:
    """Receives messages.

    `take` opens a message and returns the reply. If it refuses the message, it counts that and returns None. `answer`
    opens a request for a stream and writes the stream; it returns False if it refuses the request. The telemetry counts
    messages that are refused before they are opened, such as those over `max_bytes` or `max_stream_bytes`.
    """

    take: Callable[[bytes], Awaitable[bytes | None]]
    answer: Callable[[bytes, StreamOutput], Awaitable[bool]]
    origins: OriginPolicy
    telemetry: Telemetry
    _: KW_ONLY
    max_bytes: int
    max_stream_bytes: int
    _patience: Patience | None = field(default=None, init=False)
    _arriving: int = field(default=0, init=False)
    _turns: Turns = field(default_factory=Turns, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        if self._patience is None or self._patience.loop.is_closed():  # the first request on this event loop
            self._patience = Patience()
        shortcut: Shortcut | None = scope.pop(SHORTCUT, None)
        exchange = Exchange(receive, send, [], self._patience, shortcut)
        try:
            if not await self._serve(scope, exchange, _StreamedResponse(exchange, send, shortcut)):
                await exchange.answer(404, [_CLOSE], b"")
        except ClientGone:
            pass
        except asyncio.CancelledError:  # the server cuts off the answer, if anybody still reads it
            log.debug("the other process has disconnected, or this one is forced to stop")
        finally:
            exchange.close()

    async def _serve(self, scope: Scope, exchange: Exchange, output: _StreamedResponse) -> bool:
        """Serve a message. Return False if it gets no reply."""
        try:
            is_stream = self._check(scope) == STREAM_TYPE
            max_bytes = self.max_stream_bytes if is_stream else self.max_bytes
            message = await self._message(exchange, max_bytes, may_be_anybody=not output.is_to_known_process)
        except _NotTaken as not_taken:
            self.telemetry.hop_refused(not_taken.reason)
            return False
        if is_stream:
            exchange.begin(may_stream=False)
            return await self.answer(message, output)
        reply = await self.take(message)
        if reply is not None:
            await exchange.answer(200, [(b"content-type", HOP_TYPE), _CLOSE], reply)
        return reply is not None

    def _check(self, scope: Scope) -> bytes:
        """Return the content type of a request that may be a message."""
        try:
            headers = Headers(scope["headers"])
            self.origins.check(headers)
        except GatewayError:
            raise _NotTaken(HopReason.MALFORMED) from None
        kind = headers.get_bytes(b"content-type")
        if scope["method"] != "POST" or kind not in {HOP_TYPE, STREAM_TYPE}:
            raise _NotTaken(HopReason.MALFORMED)
        return kind

    async def _message(self, exchange: Exchange, max_bytes: int, *, may_be_anybody: bool) -> bytes:
        """Return a message, which must be opened at once.

        Few are held at a time that are large or still arrive, except on connections of processes that have the keys.
        """
        message = exchange.whole_body()
        if message is not None and len(message) <= QUICK_BYTES:
            return message
        if may_be_anybody and self._arriving >= MAX_ARRIVING:
            raise _NotTaken(HopReason.OVERLOADED)
        self._arriving += 1
        try:
            if message is None:
                message = await self._body(exchange, max_bytes)
            if len(message) > QUICK_BYTES:
                await self._turns.begin(None, None)
            return message
        finally:
            self._arriving -= 1

    async def _body(self, exchange: Exchange, max_bytes: int) -> bytes:
        try:
            async with asyncio.timeout(ARRIVAL_SECONDS):
                return await exchange.read_body(max_bytes)
        except BodyTooLarge:
            raise _NotTaken(HopReason.TOO_LARGE) from None
        except TimeoutError:
            raise _NotTaken(HopReason.MALFORMED) from None


class _StreamedResponse:
    """Implements `gateway.tokens.stream_receiver.StreamOutput`.

    The connection stays open for the next request, and does not count among those of clients.
    """

    def __init__(self, exchange: Exchange, send: Send, shortcut: Shortcut | None) -> None:
        self._exchange = exchange
        self._send = send
        self._shortcut = shortcut
        self._is_begun = False

    @property
    def is_to_known_process(self) -> bool:
        """Whether a sealed request has opened before on this connection."""
        return self._shortcut is not None and self._shortcut.is_exempt

    async def write(self, data: bytes, *, more: bool) -> None:
        if not self._is_begun:
            self._is_begun = True
            if self._shortcut is not None:
                self._shortcut.exempt()
            if not more:
                await self._exchange.answer(200, [_STREAM], data)
                return
            await self._send({"type": "http.response.start", "status": 200, "headers": [_STREAM]})
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
