"""Finds out whether the URLs that replicas have for each other lead to replicas of this deployment."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final
from urllib.parse import urlsplit

from gateway.observability.metrics import Telemetry
from gateway.sealing.hop import BOOT_BYTES, NO_BOOT
from gateway.sealing.keyring import KeyRing
from gateway.settings.hosts import is_loopback
from gateway.settings.model import Settings
from gateway.tokens.hop_messages import HOP_PATH, Hops, NoReply
from gateway.tokens.key_holder import KeyHolder
from gateway.tokens.request_ids import ReplicaAddress
from gateway.web.hop import HopClient
from gateway.wires.broadcasts import HINTS

_MAX_BYTES: Final = 1 << 16
_NO_HINTS: Final[Mapping[str, object]] = {}


class _Alone:
    """No other processes on this host: see `gateway.tokens.hop_messages.Neighbours`."""

    def has(self, boot: bytes) -> bool:
        del boot
        return False

    async def post(self, boot: bytes, message: bytes) -> bytes:
        raise NotImplementedError

    def stream(self, boot: bytes, message: bytes) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise NotImplementedError


async def examine_replicas(settings: Settings, ring: KeyRing, audience: str) -> tuple[list[str], list[str]]:
    """Send a message without content to each URL of `GATEWAY_REPLICA_URL`, `GATEWAY_PEERS` and `GATEWAY_HOLDERS`.

    Return a note for each URL where a replica replied, and a warning for each other one. Those may not have started
    yet.
    """
    client = HopClient()
    keys = KeyHolder(ring, audience, clock=time.time, random_bytes=os.urandom)
    own = ReplicaAddress("", os.urandom(BOOT_BYTES))
    hops = Hops(keys, own, post=client.post, neighbours=_Alone(), telemetry=Telemetry(), max_bytes=_MAX_BYTES)

    async def ask_by_name(url: str) -> None:
        await hops.ask(ReplicaAddress(url, NO_BOOT), HINTS, _NO_HINTS)

    async def ask_anyone(url: str) -> None:
        if await client.post(url, hops.seal_for_everyone(HINTS, _NO_HINTS)):  # a replica's reply to this is empty
            raise NoReply("something else answers at the URL")

    asked = [("GATEWAY_PEERS", url, ask_anyone) for url in settings.peers]
    asked += [("GATEWAY_HOLDERS", url, ask_by_name) for url in settings.holders]
    if settings.replica_url is not None:
        asked.insert(0, ("GATEWAY_REPLICA_URL", settings.replica_url, ask_by_name))
    notes, warnings = [], []
    results = await asyncio.gather(*(ask(url) for _, url, ask in asked), return_exceptions=True)
    for (name, url, _), error in zip(asked, results, strict=True):
        if error is None:
            notes.append(f"a replica replies at {url}{HOP_PATH}")
        elif isinstance(error, NoReply):
            details = "".join(f" ({field} {value})" for field, value in error.fields.items() if field != "url")
            warnings.append(f"{name}: no replica of this deployment replies at {url}{HOP_PATH}: {error}{details}")
        else:
            raise error
    return notes, warnings


def unencrypted(settings: Settings) -> list[str]:
    """Warn of URLs at which messages between hosts are not encrypted on the way, though they are sealed."""
    own = () if settings.replica_url is None else (settings.replica_url,)
    named = {"GATEWAY_REPLICA_URL": own, "GATEWAY_PEERS": settings.peers, "GATEWAY_HOLDERS": settings.holders}
    return [
        f"{name}: messages to {url} are sealed, but use plain http; use https, or a network that only the processes of "
        "this deployment can reach"
        for name, urls in named.items()
        for url in urls
        if urlsplit(url).scheme == "http" and not is_loopback(urlsplit(url).hostname or "")
    ]
