"""The part of a process that holds calls, and reaches the calls that other processes hold."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self

from gateway.ensured import ensured
from gateway.errors import Overloaded
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.sealing.hop_frames import StreamReason, StreamRefused
from gateway.tokens.hop_messages import LostPeer
from gateway.tokens.request_ids import ReplicaAddress
from gateway.tokens.stream_receiver import Send as SendBody
from gateway.tokens.stream_receiver import StreamHandler
from gateway.tokens.stream_sender import StreamSender
from gateway.upstreams.failures import HeldFailure, Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.held.calls import HeldCalls
from gateway.upstreams.held.holders import HELLO, WAIT_SECONDS, Holders, say_hello
from gateway.upstreams.held.messages import (
    KIND,
    LISTEN,
    ListenMessage,
    MalformedMessage,
    RequestMessage,
    answer_body,
    body_of,
    notice_body,
    read_answer_message,
    read_listen,
    read_request,
)
from gateway.upstreams.held.place import HeldPlace
from gateway.upstreams.ports import Changes, OnNotice, RequestOptions

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.5
"""The pause before a request is sent once more to a process that did not answer: it joins the first one there."""

SPARE_SECONDS: Final = 30.0
"""How much longer than the upstream the other process may take."""

SPARE_BYTES: Final = 1 << 20
"""How much larger than the upstream's own answer a message with it may be."""

MAX_WAITING_NOTICES_BYTES: Final = 1 << 20
"""How much of the notices of one request may wait until the other process reads them."""
LISTEN_SECONDS: Final = 24 * 3600.0
MAX_CHANGE_BYTES: Final = 1 << 20
"""How long a stream of changes may be open before it is opened again, and how large one change may be."""

_PASSED_ON: Final = {
    StreamReason.DRAINING: "it is about to end",
    StreamReason.OVERLOADED: "it has too much to do",
}
_HELLO: Final[Mapping[str, Any]] = {}


class ServesHeld(Protocol):
    """Serves the requests of other processes to one upstream."""

    async def serve(self, message: RequestMessage, on_notice: OnNotice) -> dict[str, Any]:
        """Send a request as this process does it, and return its result."""
        ...

    def serve_changes(self, message: ListenMessage) -> AbstractAsyncContextManager[Changes]:
        """Open a stream of changes as this process does it."""
        ...


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request to an upstream that another process sends. `call` is the id of its call."""

    upstream: str
    body: Mapping[str, Any]
    call: bytes
    options: RequestOptions
    telemetry: UpstreamMetrics

    def lost(self, reason: Reason, *, detail: str = "") -> HeldFailure:
        """Return what there is instead of a result, counted."""
        self.telemetry.failed(self.upstream, reason)
        return HeldFailure(self.upstream, reason, call_id=self.call, detail=detail)


@dataclass(frozen=True, slots=True)
class Holder:
    """Holds calls in this process if it has an `address`, and sends requests to others if it has a `sender`.

    `holders` are the processes that have all connections; without them, this process has its own. `upstreams` are those
    of this process, by name and identity. Calls that this process begins elsewhere last for `unattended_seconds` while
    no request waits for them; None leaves it at the usual time. `is_one_of_many` tells whether there are other replicas
    with connections of their own.
    """

    calls: HeldCalls = field(default_factory=lambda: HeldCalls(random_bytes=os.urandom))
    address: ReplicaAddress | None = None
    sender: StreamSender | None = None
    holders: Holders | None = None
    unattended_seconds: float | None = None
    is_one_of_many: bool = False
    upstreams: dict[tuple[str, bytes], ServesHeld] = field(default_factory=dict)
    draining: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def can_hold(self) -> bool:
        """Whether calls may wait here for their users."""
        return self.address is not None

    @property
    def handlers(self) -> Mapping[str, StreamHandler]:
        """What answers the requests of other processes, by their kind."""
        return {HELLO: self.serve_hello, KIND: self.serve, LISTEN: self.serve_changes}

    def drain(self) -> None:
        """Take no new request of another process, and end the streams of changes. Calls that are held continue."""
        self.draining.set()

    async def serve_hello(self, _body: Mapping[str, Any], _send: SendBody) -> Mapping[str, Any]:
        """Show another process that this one takes requests; see `StreamHandler`."""
        if self.draining.is_set():
            raise StreamRefused(StreamReason.DRAINING)
        return _HELLO

    async def serve(self, body: Mapping[str, Any], send: SendBody) -> Mapping[str, Any]:
        """Answer a request of another process; see `StreamHandler`."""
        try:
            message = read_request(body)
        except MalformedMessage:
            raise StreamRefused(StreamReason.MALFORMED) from None
        if self.draining.is_set() and not message.place and not self.calls.knows(message.call):
            raise StreamRefused(StreamReason.DRAINING)
        upstream = self.upstreams.get((message.upstream, message.identity))
        if upstream is None:
            return answer_body(UpstreamFailure(message.upstream, Reason.CHANGED, sent=bool(message.place)))
        outcome: Mapping[str, Any] | Exception
        async with _NoticesOnTheWay(send) as notices:
            try:
                outcome = await upstream.serve(message, notices.add)
            except (UpstreamError, UpstreamFailure, Overloaded) as problem:
                outcome = problem
        return answer_body(outcome)

    async def serve_changes(self, body: Mapping[str, Any], send: SendBody) -> Mapping[str, Any]:
        """Send the changes of an upstream to another process until they end; see `StreamHandler`."""
        try:
            message = read_listen(body)
        except MalformedMessage:
            raise StreamRefused(StreamReason.MALFORMED) from None
        upstream = self.upstreams.get((message.upstream, message.identity))
        if upstream is None or self.draining.is_set():
            raise StreamRefused(StreamReason.DRAINING)
        try:
            async with upstream.serve_changes(message) as changes:
                await send(notice_body(LISTEN, {}))
                await _run_until(self.draining, _pass_on(changes, send))
        except (UpstreamError, UpstreamFailure, Overloaded) as problem:
            return answer_body(problem)
        return answer_body({})

    async def begin(
        self,
        order: Sequence[str],
        prepare: Callable[[], Awaitable[Outgoing]],
        here: Callable[[], Awaitable[dict[str, Any]]],
    ) -> dict[str, Any]:
        """Have the first of some holders that takes it send a new request, and return its result.

        `here` sends it if that is this process. Otherwise, `prepare` returns what to send.

        Raises:
            Overloaded: no holder takes it now. Nothing was sent.
            HeldFailure: the holder was lost, and so may be the call.
        """
        holders = ensured(self.holders, "there is an order of them")
        ends_at, request = asyncio.get_running_loop().time() + WAIT_SECONDS, None
        while True:
            address = await holders.find(order, ends_at)
            if address is None:
                return await here()
            request = request or await prepare()
            try:
                return await self._begun(address, request)
            except StreamRefused:
                holders.doubt(address)
                if asyncio.get_running_loop().time() + RETRY_SECONDS >= ends_at:
                    raise Overloaded from None
                await asyncio.sleep(RETRY_SECONDS)

    async def _begun(self, address: ReplicaAddress, request: Outgoing) -> dict[str, Any]:
        """Have a holder send a new request. A request that is lost on the way is sent once more, and joins.

        Raises:
            StreamRefused: it was not sent.
        """
        keep_place = request.options.get("keep_place")
        if keep_place is not None:
            await keep_place(HeldPlace(address.url, address.boot, request.call, 0).to_text())
        try:
            return await self._sent(address, request)
        except LostPeer as lost:
            if not lost.may_have_acted:
                raise StreamRefused(StreamReason.OTHER_PROCESS) from None
        await asyncio.sleep(RETRY_SECONDS)
        try:
            return await self._sent(address, request)
        except (StreamRefused, LostPeer) as problem:
            raise request.lost(Reason.HOLDER_LOST, detail=f"{address.url}: {problem}") from None

    async def send(self, address: ReplicaAddress, request: Outgoing) -> dict[str, Any]:
        """Have the process that holds a call send a request that continues it, and return its result.

        A process that does not answer is asked once more. Nothing is sent to one that does not even say hello.

        Raises:
            Overloaded: it is silent, or has no place, and the call continues when it is asked later.
            UpstreamFailure: there is no result.
            UpstreamError: the upstream answered with an error.
        """
        try:
            await self._find_alive(address)
            with contextlib.suppress(LostPeer):
                return await self._sent(address, request)
            await asyncio.sleep(RETRY_SECONDS)
            return await self._sent(address, request)
        except StreamRefused as refused:
            if refused.reason in _PASSED_ON:
                raise Overloaded from None
            raise request.lost(Reason.HELD_LOST) from None
        except LostPeer as lost:
            fields = {"upstream": request.upstream, "call": request.call.hex(), "problem": str(lost), **lost.fields}
            log.warning("the process that holds a call cannot be reached", extra=fields)
            if not lost.is_gone:
                raise Overloaded from None
            detail = f"the process that holds it: {lost}"
            raise request.lost(Reason.HELD_LOST, detail=detail) from None

    async def _find_alive(self, address: ReplicaAddress) -> None:
        """Raise `LostPeer` soon if a process is silent, which else takes long to notice."""
        if self.sender is None:
            return
        with contextlib.suppress(StreamRefused):  # it says so itself
            with contextlib.suppress(LostPeer):
                await say_hello(self.sender, address)
                return
            await asyncio.sleep(RETRY_SECONDS)
            await say_hello(self.sender, address)

    async def _sent(self, address: ReplicaAddress, request: Outgoing) -> dict[str, Any]:
        if self.sender is None:
            raise request.lost(Reason.HELD_LOST)
        on_notice = request.options.get("on_notice")
        seconds, max_bytes = request.options["seconds"] + SPARE_SECONDS, request.options["max_bytes"] + SPARE_BYTES
        async with self.sender.stream(address, KIND, request.body, seconds=seconds, max_bytes=max_bytes) as answers:
            async for answer in answers:
                if self.holders is not None:
                    self.holders.heard(address)
                read = read_answer_message(answer, request.upstream)
                if isinstance(read, dict):
                    return read
                if on_notice is not None:
                    on_notice(*read)
        raise LostPeer("the answer has no result")

    @contextlib.asynccontextmanager
    async def listen(self, address: ReplicaAddress, message: ListenMessage) -> AsyncIterator[Changes]:
        """Hear the changes of an upstream from a holder.

        Raises:
            UpstreamError: the upstream refuses the stream.
            UpstreamFailure: there is no stream.
        """
        sender = ensured(self.sender, "there are holders")
        body = body_of(message)
        try:
            async with (
                sender.stream(address, LISTEN, body, seconds=LISTEN_SECONDS, max_bytes=MAX_CHANGE_BYTES) as answers,
                contextlib.aclosing(_changes(answers, message.upstream)) as changes,
            ):
                await anext(changes, None)  # it listens, or this raises why it does not
                yield changes
        except (StreamRefused, LostPeer) as problem:
            detail = f"its holder: {problem}"
            raise UpstreamFailure(message.upstream, Reason.BUSY, sent=False, detail=detail) from None


class _NoticesOnTheWay:
    """Sends notices in their order while a request runs; a context that ends when all are sent.

    If the other process reads slowly, the newest ones are dropped, as for clients that read slowly.
    """

    def __init__(self, send: SendBody) -> None:
        self._send = send
        self._waiting: deque[dict[str, Any]] = deque()
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._task is not None and kind is not None:
            self._task.cancel()
        elif self._task is not None:
            await self._task

    def add(self, method: str, told: dict[str, Any]) -> None:
        """Send a notice soon."""
        body = notice_body(method, told)
        size = len(body["told_json"])
        if self._bytes + size > MAX_WAITING_NOTICES_BYTES:
            return
        self._bytes += size
        self._waiting.append(body)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._waiting:
            body = self._waiting.popleft()
            await self._send(body)
            self._bytes -= len(body["told_json"])


async def _pass_on(changes: Changes, send: SendBody) -> None:
    async for method, told in changes:
        await send(notice_body(method, told))


async def _changes(
    answers: AsyncIterator[Mapping[str, Any]], upstream: str
) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
    """Yield the notices of a stream until it ends. The first one says that it has begun."""
    async for answer in answers:
        read = read_answer_message(answer, upstream)
        if isinstance(read, dict):
            return
        yield read


async def _run_until(event: asyncio.Event, running: Coroutine[Any, Any, None]) -> None:
    """Run something until it ends, or an event is set."""
    task, waiting = asyncio.create_task(running), asyncio.create_task(event.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        has_ended = task.done()
        task.cancel()
        waiting.cancel()
        await asyncio.wait({task, waiting})
    if has_ended:
        task.result()
