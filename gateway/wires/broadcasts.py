"""Hints from one replica to all others: a request was cancelled, a list has changed.

A lost hint does little harm: a call runs to its end, or a client reads a list later. So nobody waits for hints. All of
these are bounded: the hints that wait, the hints of one caller, how often they are sent, and the messages in flight.
Hints that come in quick succession share a message.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from typing import Any, Final

from gateway.observability.metrics import Telemetry
from gateway.runtime.background import task_running
from gateway.tokens.hop_messages import Hops
from gateway.wires.ports import Carrier

CANCELLED_REQUEST: Final = "cancelled"
"""The hint that a request was cancelled. Its text is the name of the request, see `session_ids.request_digest`."""

CHANGED_TOPIC: Final = "changed"
"""The hint that a list or a resource has changed. Its text is the name of the list, or the URI."""

PAUSE_SECONDS: Final = 0.25
"""The shortest time between two messages."""

MAX_WAITING: Final = 400
"""How many hints may wait for the next message."""

MAX_OF_ONE: Final = 100
"""How many of them may have the same kind and caller."""

MAX_WAITING_BYTES: Final = 28_000
"""The size of all waiting hints. A message with them fits the receiver's `GATEWAY_MAX_BODY_BYTES`, whatever it is."""

MAX_BYTES: Final = 2048
"""The largest size of one hint."""

MAX_UNDER_WAY: Final = 4
"""How many messages may be in delivery. If a replica does not answer, each takes its whole time limit."""

HINTS: Final = "hints"
"""The kind of message that carries hints. Without any, it asks only for a reply."""


class _WaitingHints:
    """Hints that wait for the next message, within the limits."""

    def __init__(self) -> None:
        self._hints: dict[tuple[str, str], None] = {}
        self._of: Counter[tuple[str, Hashable]] = Counter()
        self._bytes = 0

    def add(self, kind: str, text: str, caller: Hashable) -> bool:
        """Add a hint unless it already waits, and return whether there was room."""
        if (kind, text) in self._hints:
            return True
        if len(self._hints) >= MAX_WAITING or self._of[kind, caller] >= MAX_OF_ONE:
            return False
        size = _size(text)
        if size > MAX_BYTES or self._bytes + size > MAX_WAITING_BYTES:
            return False
        self._hints[kind, text] = None
        self._of[kind, caller] += 1
        self._bytes += size
        return True

    def body(self) -> dict[str, list[str]]:
        """Return the hints by their kind."""
        body: dict[str, list[str]] = {}
        for kind, text in self._hints:
            body.setdefault(kind, []).append(text)
        return body


def _size(text: str) -> int:
    """Return the size of a hint in a message. A hint that cannot be encoded exceeds every limit."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return MAX_BYTES + 1


class Broadcasts:
    """Sends hints to all other replicas, and receives theirs. The carriers are tried in turn until one succeeds."""

    def __init__(self, hops: Hops, carriers: Sequence[Carrier], telemetry: Telemetry) -> None:
        self._hops = hops
        self._carriers = carriers
        self._telemetry = telemetry
        self._takers: dict[str, Callable[[str], object]] = {}
        self._waiting = _WaitingHints()
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        hops.handle(HINTS, self._take)

    def forward_to(self, kind: str, taker: Callable[[str], object]) -> None:
        """Pass hints of this kind from other replicas to `taker`."""
        self._takers[kind] = taker

    def send(self, kind: str, text: str, caller: Hashable = None) -> None:
        """Send a hint to all other replicas soon. You can call this from any thread.

        No caller of requests that cause hints can use all the room.
        """
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._add, kind, text, caller)

    def _add(self, kind: str, text: str, caller: Hashable) -> None:
        if self._waiting.add(kind, text, caller):
            self._wake.set()
        else:
            self._telemetry.hint_dropped()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send hints, and receive those of other replicas, while the context is open."""
        if not self._carriers:
            yield
            return
        async with contextlib.AsyncExitStack() as stack:
            self._wake = asyncio.Event()
            for carrier in self._carriers:
                await stack.enter_async_context(carrier.listening(self._hops.take))
            await stack.enter_async_context(task_running(self._send_for_ever()))
            self._loop = asyncio.get_running_loop()
            try:
                yield
            finally:
                self._loop = None
                for sending in self._under_way:
                    sending.cancel()

    async def _send_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            waiting, self._waiting = self._waiting, _WaitingHints()
            sending = asyncio.create_task(self._send(waiting.body()))
            self._under_way.add(sending)
            sending.add_done_callback(self._under_way.discard)
            await asyncio.sleep(PAUSE_SECONDS)
            if len(self._under_way) >= MAX_UNDER_WAY:
                await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)

    async def _send(self, body: Mapping[str, Any]) -> None:
        """Send a message with the first carrier that delivers it."""
        delivered = False
        for carrier in self._carriers:
            delivered = await carrier.send(lambda: self._hops.seal_for_everyone(HINTS, body))
            if delivered:
                break
        self._telemetry.broadcast(failed=not delivered)

    def _take(self, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Pass on the hints of another replica. Kinds that only a later release has are ignored."""
        for kind, taker in self._takers.items():
            texts = body.get(kind, ())
            if not isinstance(texts, (list, tuple)) or any(type(text) is not str for text in texts):
                return None
            for text in texts:
                taker(text)
        return {}
