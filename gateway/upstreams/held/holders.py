"""Finds the process that has a connection, where `GATEWAY_HOLDERS` names the processes that have all of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.errors import Overloaded
from gateway.sealing.hop import NO_BOOT
from gateway.sealing.hop_frames import StreamReason, StreamRefused
from gateway.tokens.hop_messages import LostPeer
from gateway.tokens.request_ids import ReplicaAddress
from gateway.tokens.stream_sender import StreamSender
from gateway.upstreams.held.rendezvous import ranked

HELLO: Final = "holder"
"""The kind of a message that asks a process whether it takes new requests."""

WAIT_SECONDS: Final = 5.0
"""How long a new request waits for its holder."""
RETRY_SECONDS: Final = 0.5
"""The pause before a holder is asked again."""
HELLO_SECONDS: Final = 2.0
"""How long a holder may take to say that it is there."""
FRESH_SECONDS: Final = 1.0
"""How long a holder that has answered counts as one that is there."""
MAX_HELLO_BYTES: Final = 1024

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _KnownHolder:
    """The state of one holder. `boot` is None while it takes no new requests."""

    boot: bytes | None = None
    until: float = 0.0
    asking: asyncio.Task[bytes | None] | None = None
    problem: str = ""


class Holders:
    """The processes that have all connections of upstreams in sessions.

    A request is sent only to a process that has answered a moment ago. So nothing was sent of a request that waits for
    a holder. No request that is sent again can begin in a process that took the place of the first.

    Args:
        urls: where they are. This process has the connections that belong to `own_url`.
    """

    def __init__(self, urls: Iterable[str], sender: StreamSender, own_url: str = "") -> None:
        self.urls = tuple(dict.fromkeys(urls))
        self._sender = sender
        self._own_url = own_url
        self._known = {url: _KnownHolder() for url in self.urls}

    def order(self, key: bytes) -> list[str]:
        """Return the URLs of the holders in the order in which they should have the connection with a key."""
        return ranked(key, self.urls)

    async def find(self, order: Sequence[str], ends_at: float) -> ReplicaAddress | None:
        """Return the first of some holders that takes a new request; None if that is this process.

        Raises:
            Overloaded: none does until then, in the time of the event loop.
        """
        loop = asyncio.get_running_loop()
        while True:
            for url in order:
                if url == self._own_url:
                    return None
                boot = await self._boot(url, ends_at)
                if boot is not None:
                    return ReplicaAddress(url, boot)
            if loop.time() + RETRY_SECONDS >= ends_at:
                raise Overloaded
            await asyncio.sleep(RETRY_SECONDS)

    def heard(self, address: ReplicaAddress) -> None:
        """Note that a holder has answered a moment ago."""
        known = self._known.get(address.url)
        if known is not None and known.boot == address.boot:
            known.until = asyncio.get_running_loop().time() + FRESH_SECONDS

    def doubt(self, address: ReplicaAddress) -> None:
        """Note that a holder did not take a request, so it is asked before the next one is sent."""
        known = self._known.get(address.url)
        if known is not None and known.boot == address.boot:
            known.until = 0.0

    async def _boot(self, url: str, ends_at: float) -> bytes | None:
        """Return the boot id of the process at a URL if it takes new requests. It is asked once for all who wait."""
        loop, known = asyncio.get_running_loop(), self._known[url]
        if known.boot is not None and loop.time() < known.until:
            return known.boot
        if known.asking is None:
            known.asking = asyncio.create_task(self._asked(url, known))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(ends_at):
                return await asyncio.shield(known.asking)
        return None

    async def _asked(self, url: str, known: _KnownHolder) -> bytes | None:
        known.boot, problem = None, "it does not answer"
        try:
            known.boot = await say_hello(self._sender, ReplicaAddress(url, NO_BOOT))
        except LostPeer as lost:
            problem = str(lost)
        except StreamRefused as refused:
            problem = _REFUSED.get(refused.reason, refused.reason)
        finally:
            known.asking = None
        self._report(url, known, "" if known.boot is not None else problem)
        known.until = asyncio.get_running_loop().time() + FRESH_SECONDS
        return known.boot

    def _report(self, url: str, known: _KnownHolder, problem: str) -> None:
        """Log that a holder takes no requests, or takes them again, once."""
        if problem and problem != known.problem:
            log.warning("a holder takes no requests", extra={"url": url, "reason": problem})
        elif known.problem and not problem:
            log.info("a holder takes requests again", extra={"url": url})
        known.problem = problem


async def say_hello(sender: StreamSender, address: ReplicaAddress) -> bytes | None:
    """Return the boot id of a process that takes new requests.

    Raises:
        StreamRefused: it takes none, but it is there.
        LostPeer: it does not answer.
    """
    hello = sender.stream(address, HELLO, {}, seconds=HELLO_SECONDS, max_bytes=MAX_HELLO_BYTES)
    async with hello as answers:
        async for _ in answers:
            return answers.boot
    return None


_REFUSED: Final[Mapping[str, str]] = {
    StreamReason.DRAINING: "it is about to end",
    StreamReason.OVERLOADED: "it has too much to do",
    StreamReason.UNKNOWN_KIND: "it serves no upstreams; give it the same GATEWAY_UPSTREAMS as this process",
}
