"""The part of a process that holds calls, and reaches the calls that other processes hold."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self

from gateway.errors import Overloaded
from gateway.sealing.hop_frames import StreamReason, StreamRefused
from gateway.tokens.hop_messages import LostPeer
from gateway.tokens.request_ids import ReplicaAddress
from gateway.tokens.stream_receiver import Send as SendBody
from gateway.tokens.stream_sender import StreamSender
from gateway.upstreams.failures import HeldFailure, Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.held.calls import HeldCalls
from gateway.upstreams.held.messages import (
    KIND,
    MalformedMessage,
    RequestMessage,
    answer_body,
    notice_body,
    read_answer_message,
    read_request,
    request_body,
)
from gateway.upstreams.ports import OnNotice, RequestOptions

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.5
"""The pause before a request is sent once more to a process that did not answer: it joins the first one there."""

SPARE_SECONDS: Final = 30.0
"""How much longer than the upstream the other process may take."""

SPARE_BYTES: Final = 1 << 20
"""How much larger than the upstream's own answer a message with it may be."""

MAX_WAITING_NOTICES_BYTES: Final = 1 << 20
"""How much of the notices of one request may wait until the other process reads them."""

_PASSED_ON: Final = {
    StreamReason.DRAINING: "it is about to end",
    StreamReason.OVERLOADED: "it has too much to do",
}


class ServesHeld(Protocol):
    """Serves the requests of other processes to one upstream."""

    async def serve(self, message: RequestMessage, on_notice: OnNotice) -> dict[str, Any]:
        """Send a request as this process does it, and return its result."""
        ...


@dataclass(frozen=True, slots=True)
class Holder:
    """Holds calls in this process if it has an `address`, and sends requests to others if it has a `sender`.

    `upstreams` are those of this process, by name and identity.
    """

    calls: HeldCalls = field(default_factory=lambda: HeldCalls(random_bytes=os.urandom))
    address: ReplicaAddress | None = None
    sender: StreamSender | None = None
    upstreams: dict[tuple[str, bytes], ServesHeld] = field(default_factory=dict)

    @property
    def can_hold(self) -> bool:
        """Whether calls may wait here for their users."""
        return self.address is not None

    async def serve(self, body: Mapping[str, Any], send: SendBody) -> Mapping[str, Any]:
        """Answer a request of another process; see `StreamHandler`."""
        try:
            message = read_request(body)
        except MalformedMessage:
            raise StreamRefused(StreamReason.MALFORMED) from None
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

    async def send(
        self,
        address: ReplicaAddress,
        upstream: tuple[str, bytes],
        request: tuple[str, Mapping[str, Any]],
        call: bytes,
        options: RequestOptions,
    ) -> dict[str, Any]:
        """Have another process send a request to an upstream, and return its result.

        A process that does not answer is asked once more.

        Raises:
            Overloaded: it is silent, or has no place, and the call continues when it is asked later.
            UpstreamFailure: there is no result.
            UpstreamError: the upstream answered with an error.
        """
        try:
            with contextlib.suppress(LostPeer):
                return await self._sent(address, upstream, request, call, options)
            await asyncio.sleep(RETRY_SECONDS)
            return await self._sent(address, upstream, request, call, options)
        except StreamRefused as refused:
            if refused.reason in _PASSED_ON:
                raise Overloaded from None
            raise HeldFailure(upstream[0], Reason.HELD_LOST, call_id=call) from None
        except LostPeer as lost:
            fields = {"upstream": upstream[0], "call": call.hex(), "problem": str(lost), **lost.fields}
            log.warning("the process that holds a call cannot be reached", extra=fields)
            if options.get("continued") is not None and not lost.is_gone:
                raise Overloaded from None
            detail = f"the process that holds it: {lost}"
            sent = lost.may_have_acted or options.get("continued") is not None
            raise HeldFailure(upstream[0], Reason.HELD_LOST, sent=sent, call_id=call, detail=detail) from None

    async def _sent(
        self,
        address: ReplicaAddress,
        upstream: tuple[str, bytes],
        request: tuple[str, Mapping[str, Any]],
        call: bytes,
        options: RequestOptions,
    ) -> dict[str, Any]:
        if self.sender is None:
            raise HeldFailure(upstream[0], Reason.HELD_LOST, call_id=call)
        body, on_notice = request_body(*upstream, request, call, options), options.get("on_notice")
        seconds, max_bytes = options["seconds"] + SPARE_SECONDS, options["max_bytes"] + SPARE_BYTES
        async with self.sender.stream(address, KIND, body, seconds=seconds, max_bytes=max_bytes) as answers:
            async for answer in answers:
                read = read_answer_message(answer, upstream[0])
                if isinstance(read, dict):
                    return read
                if on_notice is not None:
                    on_notice(*read)
        raise LostPeer("the answer has no result")


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
