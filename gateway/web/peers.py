"""A `gateway.wires.ports.Carrier` that posts each message to all addresses of `GATEWAY_PEERS`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from gateway.observability.metrics import Telemetry
from gateway.runtime.background import in_thread
from gateway.tokens.hop_messages import NoReply
from gateway.web.hop import HopClient

MAX_PEERS: Final = 128
"""The most addresses that a message is sent to. A larger fleet needs a task store, which sends it in one command."""

LOOKUP_SECONDS: Final = 2.0
FRESH_SECONDS: Final = 5.0
"""How long the addresses of a name are reused, because replicas come and go."""

Lookup = Callable[[str, int], list[str]]

log = logging.getLogger(__name__)


class _ReplicaPlace(NamedTuple):
    """The place of a replica: a URL from the setting, and one address of its host."""

    url: str
    address: str


def look_up(host: str, port: int) -> list[str]:
    """Return all addresses of a host, or raise `OSError`. This call blocks."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Peers:
    """Posts messages to all other replicas. A host can have several addresses.

    `own_url` gets no messages. If its messages reach this replica by another URL, it ignores them. The clock is
    monotonic.
    """

    def __init__(
        self,
        urls: Sequence[str],
        own_url: str | None,
        client: HopClient,
        telemetry: Telemetry,
        *,
        clock: Callable[[], float],
        look_up: Lookup = look_up,
    ) -> None:
        self._urls = tuple(url for url in dict.fromkeys(urls) if url != own_url)
        self._client = client
        self._telemetry = telemetry
        self._clock = clock
        self._look_up = look_up
        self._places: dict[str, list[str]] = {}
        self._fresh_until = 0.0
        self._looking: asyncio.Task[None] | None = None

    async def send(self, seal: Callable[[], bytes]) -> bool:
        """See `gateway.wires.ports.Carrier.send`. It returns True only if every name has an address, and all got it."""
        places = await self._find()
        taken = await asyncio.gather(*(self._post(place, seal()) for place in places[:MAX_PEERS]))
        return all(taken) and len(places) <= MAX_PEERS and all(self._places.get(url) for url in self._urls)

    @contextlib.asynccontextmanager
    async def listening(self, _take: Callable[[bytes], object]) -> AsyncIterator[None]:
        """See `Carrier.listening`. Messages arrive at the HTTP endpoint, so nothing listens here."""
        try:
            yield
        finally:
            if self._looking is not None:
                self._looking.cancel()

    async def _post(self, place: _ReplicaPlace, message: bytes) -> bool:
        taken = True
        try:
            await self._client.post(place.url, message, address=place.address)
        except NoReply as error:
            taken = False
            failure = f"message not delivered: {error}; if its replica runs, correct GATEWAY_PEERS"
            log.warning(failure, extra=error.fields)
        self._telemetry.hop_sent(answered=taken)
        return taken

    async def _find(self) -> list[_ReplicaPlace]:
        """Return the places of the replicas. Known addresses are used while they are fresh, or if a lookup fails."""
        if self._clock() >= self._fresh_until:
            if self._looking is None:  # do not start another lookup while one hangs
                self._looking = asyncio.create_task(self._look())
            await asyncio.wait({self._looking}, timeout=LOOKUP_SECONDS)
        return [_ReplicaPlace(url, address) for url in self._urls for address in self._places.get(url, ())]

    async def _look(self) -> None:
        try:
            await asyncio.gather(*(self._look_for(url) for url in self._urls))
            found = sum(map(len, self._places.values()))
            if found > MAX_PEERS:
                log.warning("GATEWAY_PEERS has too many addresses", extra={"addresses": found, "most": MAX_PEERS})
            self._fresh_until = self._clock() + FRESH_SECONDS
        finally:
            self._looking = None

    async def _look_for(self, url: str) -> None:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        try:
            self._places[url] = await in_thread("lookup", lambda: self._look_up(host, port))
        except (OSError, ValueError) as error:
            log.warning("replica not found", extra={"url": url, "reason": type(error).__name__})
