"""Receives requests of other processes, and answers each with a stream of bodies; see `stream_sender`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from gateway.errors import HopReason
from gateway.observability.metrics import Telemetry
from gateway.sealing.hop import (
    NO_BOOT,
    Head,
    HopContent,
    HopRefused,
    HopSealer,
    Process,
    Role,
    SeenNonces,
    receiver_of,
    stream_request_bytes,
)
from gateway.sealing.hop_frames import FrameWriter, StreamReason, StreamRefused
from gateway.tokens.hop_messages import Neighbours, NoReply
from gateway.tokens.key_holder import KeyHolder
from gateway.tokens.request_ids import ReplicaAddress

ALIVE_SECONDS: Final = 5.0
FIRST_ALIVE_SECONDS: Final = 1.0
"""How often a stream has a frame without content, so that its reader knows that this process is still there. The first
one comes earlier, so that a process that does not work is noticed soon."""

MAX_RUNNING: Final = 4_096
"""How many requests are answered at a time."""

_MAX_BESIDE_BODY: Final = 256 * 1024
"""The rest of a request with a client's request body: its caller, what it declares, and answers to questions."""

Send: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Sends a body before the last one. It waits while the other process does not read."""

StreamHandler: TypeAlias = Callable[[Mapping[str, Any], Send], Awaitable[Mapping[str, Any]]]
"""Takes the body of a request, and returns the last body of the answer. It may send others before.

It is cancelled if the other process disconnects. It may raise `StreamRefused` before it has sent anything. After any
other exception, the stream is cut off.
"""

log = logging.getLogger(__name__)


class StreamOutput(Protocol):
    """The way to the process that reads a stream."""

    async def write(self, data: bytes, *, more: bool) -> None:
        """Send a piece of the stream; wait while the other process does not read."""
        ...


def max_stream_request_bytes(max_body_bytes: int) -> int:
    """Return the largest request for client request bodies of up to `max_body_bytes`."""
    return stream_request_bytes(max_body_bytes + _MAX_BESIDE_BODY)


class StreamReceiver:
    """Answers the requests of other processes to this one. Use it only on the event loop.

    `neighbours` get the requests for processes on this host that share its URL. A request longer than `max_bytes` is
    not opened.
    """

    def __init__(
        self, keys: KeyHolder, replica: ReplicaAddress, *, neighbours: Neighbours, telemetry: Telemetry, max_bytes: int
    ) -> None:
        self._keys = keys
        self._url = replica.url
        self._process = Process(Role.REPLICA, replica.boot)
        self._neighbours = neighbours
        self._telemetry = telemetry
        self._max_bytes = max_bytes
        self._handlers: dict[str, StreamHandler] = {}
        self._seen = SeenNonces()
        self._running = 0

    @property
    def running(self) -> int:
        """How many requests are being answered."""
        return self._running

    def handle(self, kind: str, handler: StreamHandler) -> None:
        """Register the handler for requests of a kind."""
        self._handlers[kind] = handler

    async def receive(self, message: bytes, output: StreamOutput) -> bool:
        """Do what `take` does, or pass a request for another process on this host on to it, and its answer back."""
        boot = receiver_of(message)
        if boot == self._process.boot or not self._neighbours.has(boot) or not self._is_authentic(message):
            return await self.take(message, output)
        begun = False
        try:
            async with self._neighbours.stream(boot, message) as pieces:
                async for piece in pieces:
                    begun = True
                    await output.write(piece, more=True)
        except (NoReply, OSError) as error:
            text = f"request of another process not passed on: {error}"
            log.warning(text, extra=error.fields if isinstance(error, NoReply) else {})
        if begun:
            await output.write(b"", more=False)
        return begun

    async def take(self, message: bytes, output: StreamOutput) -> bool:
        """Open a request, handle it, and write the answer. Return False if there is none, because it does not open.

        Such a request is counted, and logged without any of its content.
        """
        reason: HopReason
        try:
            request, content = self._open(message)
            has_room = self._remember(request.nonce)
        except HopRefused as refused:
            reason = refused.reason
        else:
            await self._answer(request, content, output, has_room=has_room and self._running < MAX_RUNNING)
            return True
        log.warning("request of another process rejected", extra={"reason": reason.value})
        self._telemetry.hop_refused(reason)
        return False

    def _is_authentic(self, message: bytes) -> bool:
        try:
            self._open(message)
        except HopRefused:
            return False
        return True

    def _open(self, message: bytes) -> tuple[Head, HopContent]:
        hops = HopSealer(self._keys.current, self._keys.audience, self._url)
        now = self._keys.clock()
        return hops.open_stream_request(message, Role.REPLICA, now=now, max_bytes=self._max_bytes)

    def _remember(self, nonce: bytes) -> bool:
        """Remember the nonce of a request that has opened, and return whether there was room.

        If the request came before, this raises `HopRefused`.
        """
        try:
            self._seen.add(nonce, self._keys.clock())
        except HopRefused as refused:
            if refused.reason is not HopReason.OVERLOADED:
                raise
            return False
        return True

    async def _answer(self, request: Head, content: HopContent, output: StreamOutput, *, has_room: bool) -> None:
        """Run the handler of a request that has opened, or refuse it with a sealed reason."""
        stream = _OutgoingStream(
            FrameWriter(self._keys.audience, self._url, request, self._process), self._keys, output
        )
        self._running += 1
        try:
            await stream.run(self._handler_for(request, content.kind, has_room=has_room), content.body)
        except StreamRefused as refused:
            if stream.has_sent:
                raise
            if request.receiver.boot != NO_BOOT:  # then it only asks which process this is
                log.warning("request of another process refused", extra={"reason": refused.reason})
                self._telemetry.stream_refused(StreamReason(refused.reason))
            await stream.refuse(refused.reason)
        finally:
            self._running -= 1

    def _handler_for(self, request: Head, kind: str, *, has_room: bool) -> StreamHandler:
        """Return the handler of a request. If it is not to be handled, this raises `StreamRefused`."""
        if request.receiver != self._process:
            raise StreamRefused(StreamReason.OTHER_PROCESS)
        handler = self._handlers.get(kind)
        if handler is None:
            raise StreamRefused(StreamReason.UNKNOWN_KIND)
        if not has_room:
            raise StreamRefused(StreamReason.OVERLOADED)
        return handler


class _OutgoingStream:
    """Writes the answer to one request."""

    def __init__(self, frames: FrameWriter, keys: KeyHolder, output: StreamOutput) -> None:
        self.has_sent = False
        self._frames = frames
        self._keys = keys
        self._output = output
        self._turn = asyncio.Lock()  # frames are written in the order in which they were sealed
        self._timer: asyncio.TimerHandle | None = None
        self._alive: asyncio.Task[None] | None = None

    async def run(self, handler: StreamHandler, body: Mapping[str, Any]) -> None:
        """Run a handler, and write what it sends and returns. While it works, show that this process is there."""
        self._wait(FIRST_ALIVE_SECONDS)
        try:
            await self._write(await handler(body, self._send), is_last=True)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if self._alive is not None:
                self._alive.cancel()

    async def refuse(self, reason: str) -> None:
        """Write a refusal as the only frame."""
        await self._output.write(self._frames.refusal(self._keys.current, reason), more=False)

    async def _send(self, body: Mapping[str, Any]) -> None:
        await self._write(body, is_last=False)

    async def _write(self, body: Mapping[str, Any], *, is_last: bool) -> None:
        async with self._turn:
            self.has_sent = True
            await self._output.write(self._frames.body(self._keys.current, body, is_last=is_last), more=not is_last)

    def _wait(self, seconds: float = ALIVE_SECONDS) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._show)

    def _show(self) -> None:
        """Write a frame without content, unless another one is being written."""
        if not self._turn.locked():
            self._alive = asyncio.create_task(self._write_alive())
        self._wait()

    async def _write_alive(self) -> None:
        async with self._turn:
            with contextlib.suppress(OSError):  # the output cancels the handler when the connection ends
                await self._output.write(self._frames.alive(self._keys.current), more=True)
