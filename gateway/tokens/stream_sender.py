"""Sends requests to other processes, which answer each with a stream of bodies.

Replicas and workers send, and only replicas answer: see `gateway.tokens.stream_receiver`. Each running request has its
own connection, which is kept for a moment for the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, Final

from gateway.http_client.client import HttpClient
from gateway.http_client.failures import HttpFailure
from gateway.observability.process_metrics import ProcessTelemetry, StreamEnd
from gateway.sealing.hop import NO_BOOT, NONCE_BYTES, Head, HopContent, HopRefused, HopSealer, Process, Role
from gateway.sealing.hop_frames import FrameReader, StreamReason, StreamRefused
from gateway.tokens.hop_messages import HOP_PATH, LostPeer, Neighbours
from gateway.tokens.key_holder import KeyHolder
from gateway.tokens.request_ids import ReplicaAddress

STREAM_TYPE: Final = b"application/vnd.sealed-gateway.hop-stream"
"""The content type of requests for a stream, and of streams."""

SILENT_SECONDS: Final = 15.0
FIRST_SECONDS: Final = 5.0
"""After so long without a frame, the other process counts as lost. It sends one after a second, then every 5."""

MAX_STREAMS: Final = 1_000
"""How many requests may run between two processes. More wait for one of them to end."""

IDLE_SECONDS: Final = 4.0
"""How long an unused connection is kept: shorter than in any common server, so that this side closes it first."""

MAX_CLIENTS: Final = 256
"""How many URLs have kept connections. A fleet has fewer, but over time its processes may have any number."""

MAX_TRIES: Final = 3
"""How often a request is sent until the process that it names is the one at the URL."""

_HEADERS: Final = ((b"Content-Type", STREAM_TYPE),)


class StreamSender:
    """Sends requests as one process of the deployment. Use it only on the event loop.

    `own_url` is where other processes reach this one, "" if they cannot. A worker has no neighbours, because it gets no
    messages.
    """

    def __init__(
        self,
        keys: KeyHolder,
        process: Process,
        telemetry: ProcessTelemetry,
        *,
        own_url: str = "",
        neighbours: Neighbours | None = None,
    ) -> None:
        self.keys = keys
        self.telemetry = telemetry
        self._process = process
        self._own_url = own_url
        self._neighbours = neighbours
        self._clients: dict[str, HttpClient] = {}  # least recently used first
        self._boots: dict[str, bytes] = {}

    def stream(
        self, replica: ReplicaAddress, kind: str, body: Mapping[str, Any], *, seconds: float, max_bytes: int
    ) -> AnswerStream:
        """Return the answer of another replica to a request, which is sent on entering the answer as a context.

        The URL must come from one of our own tokens or settings. If the boot id is `NO_BOOT`, the process there
        answers, whichever it is. The body is a map of JSON values and `bytes`. Everything must end within so many
        seconds, and no body of the answer may have more than `max_bytes`.
        """
        return AnswerStream(self, replica, HopContent(kind, body), seconds=seconds, max_bytes=max_bytes)

    def head(self, boot: bytes) -> Head:
        """Return the head of a new request for a process."""
        keys = self.keys
        receiver = Process(Role.REPLICA, boot)
        return Head(self._process, receiver, keys.random_bytes(NONCE_BYTES), int(keys.clock() * 1000))

    def boot_at(self, url: str) -> bytes:
        """Return the boot id of the process that was last at a URL; `NO_BOOT` if it is not known."""
        return self._boots.get(url, NO_BOOT)

    def learn_boot(self, url: str, boot: bytes) -> None:
        """Remember which process is at a URL."""
        self._boots[url] = boot
        if len(self._boots) > MAX_CLIENTS:
            del self._boots[next(iter(self._boots))]

    async def aclose(self) -> None:
        """Close the connections that are kept, and each other one as soon as its answer ends."""
        for client in self._clients.values():
            await client.aclose()

    def open(self, url: str, boot: bytes, message: bytes, deadline: float) -> _Pieces:
        """Return a context that sends a sealed request; it has the pieces of the stream. It raises `LostPeer`."""
        if boot != NO_BOOT and self._neighbours is not None and self._neighbours.has(boot):
            return self._neighbours.stream(boot, message)
        if not url:
            raise LostPeer(
                "the process is not on this host, or has ended, and has no GATEWAY_REPLICA_URL; set it on each replica",
                may_have_acted=False,
                is_gone=True,
            )
        if url == self._own_url and boot != NO_BOOT:
            raise LostPeer(
                "the process is not on this host, or has ended, and has the same GATEWAY_REPLICA_URL; give each host "
                "its own",
                may_have_acted=False,
                is_gone=True,
                url=url,
            )
        return self._post(url, message, deadline)

    @contextlib.asynccontextmanager
    async def _post(self, url: str, message: bytes, deadline: float) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self._client(url).post(_HEADERS, message, deadline=deadline) as response:
            kind = response.headers.get("content-type", "").encode()
            if response.status != 200 or kind != STREAM_TYPE:
                raise LostPeer("something else answers at the URL", url=url, status=response.status)
            yield response.chunks()

    def _client(self, url: str) -> HttpClient:
        client = self._clients.pop(url, None)
        if client is None:
            client = HttpClient(url.rstrip("/") + HOP_PATH, max_connections=MAX_STREAMS, idle_seconds=IDLE_SECONDS)
        self._clients[url] = client
        if len(self._clients) > MAX_CLIENTS:
            del self._clients[next(iter(self._clients))]  # its connections close once they are unused
        return client


_Pieces = AbstractAsyncContextManager[AsyncIterator[bytes]]


class AnswerStream:
    """The bodies with which another process answers one request, as they come.

    Entering the context sends the request. Leaving it before the end cancels the request at the other process. That
    process waits while nothing is read, but it cuts the stream off after its `GATEWAY_UNREAD_SECONDS`. Entering the
    context, and each step, may raise:

    - `StreamRefused`: the other process refused the request, and did nothing with it.
    - `LostPeer`: it did not answer, or its answer ended early.

    """

    def __init__(
        self,
        sender: StreamSender,
        replica: ReplicaAddress,
        content: HopContent,
        *,
        seconds: float,
        max_bytes: int,
    ) -> None:
        self._sender = sender
        self._replica = replica
        self._content = content
        self._seconds = seconds
        self._max_bytes = max_bytes
        self._deadline = 0.0
        self._tries = 0
        self._end = StreamEnd.LEFT
        self._stack = AsyncExitStack()

    _frames: FrameReader
    _pieces: AsyncIterator[bytes]

    @property
    def boot(self) -> bytes | None:
        """The boot id of the process that answers; None until its first frame was read."""
        return self._frames.boot

    async def __aenter__(self) -> AnswerStream:
        replica = self._replica
        self._deadline = asyncio.get_running_loop().time() + self._seconds
        is_open = False
        try:
            await self._ask(self._sender.boot_at(replica.url) if replica.boot == NO_BOOT else replica.boot)
            is_open = True
        finally:
            if not is_open:
                self._sender.telemetry.stream_sent(self._end)
        return self

    async def _ask(self, boot: bytes) -> None:
        """Send the request to one process, and wait for the beginning of its answer."""
        keys, url = self._sender.keys, self._replica.url
        head = self._sender.head(boot)
        message = HopSealer(keys.current, keys.audience, url).seal_stream_request(head, self._content)
        self._frames = FrameReader(keys.audience, url, head, max_bytes=self._max_bytes)
        self._tries += 1
        try:
            async with self._patience():
                pieces = self._sender.open(url, boot, message, self._deadline)
                self._pieces = await self._stack.enter_async_context(pieces)
        except _BROKEN as error:
            raise self._lost(error) from None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._sender.telemetry.stream_sent(self._end)
        await self._stack.aclose()

    def __aiter__(self) -> AnswerStream:
        return self

    async def __anext__(self) -> Mapping[str, Any]:
        """Return the next body."""
        if self._end is not StreamEnd.LEFT:
            raise StopAsyncIteration
        try:
            while (body := self._frames.next_body(self._sender.keys.current)) is None:
                self._frames.feed(await self._piece())
        except StreamRefused as refused:
            if not self._learns_from(refused):
                self._end = StreamEnd.REFUSED
                raise
            boot = refused.boot
        except _BROKEN as error:
            raise self._lost(error) from None
        else:
            if self._frames.is_complete:
                self._end = StreamEnd.ANSWERED
            return body
        await self._stack.aclose()
        await self._ask(boot)
        return await anext(self)

    def _learns_from(self, refused: StreamRefused) -> bool:
        """Return whether to ask again, because any process at the URL may answer, and now its boot id is known.

        A request is only handled by the process that it names. Otherwise somebody who listens could repeat it to the
        next process at this URL, which has not seen it.
        """
        if self._replica.boot != NO_BOOT or refused.reason != StreamReason.OTHER_PROCESS or self._tries >= MAX_TRIES:
            return False
        self._sender.learn_boot(self._replica.url, refused.boot)
        return True

    async def _piece(self) -> bytes:
        async with self._patience():
            piece = await anext(self._pieces, b"")
        if not piece:
            raise LostPeer("the answer was cut off", url=self._replica.url)
        return piece

    def _patience(self) -> asyncio.Timeout:
        seconds = FIRST_SECONDS if self._frames.boot is None else SILENT_SECONDS
        return asyncio.timeout_at(min(asyncio.get_running_loop().time() + seconds, self._deadline))

    def _lost(self, error: Exception) -> LostPeer:
        """Return what to raise because of an error on the way."""
        self._end = StreamEnd.LOST
        url = self._replica.url
        match error:
            case LostPeer():
                return error
            case HttpFailure():
                return LostPeer(
                    "no process answers at the URL",
                    may_have_acted=error.sent,
                    is_gone=error.nobody_listens,
                    url=url,
                    reason=str(error),
                )
            case HopRefused():
                return LostPeer("the answer does not open", url=url, reason=error.reason.value)
            case ValueError():
                return LostPeer("the URL cannot be used", may_have_acted=False, url=url, reason=str(error))
        reason = "silent" if isinstance(error, TimeoutError) else type(error).__name__
        return LostPeer("the process does not answer any more", url=url, reason=reason)


_BROKEN: Final = (LostPeer, HttpFailure, HopRefused, OSError, ValueError)
