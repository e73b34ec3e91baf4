"""The load of replicas as the playground shows it, read from their metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

from gateway.auth.fetch import FetchFailed, fetch
from gateway.cli.round_robin import Address

FRESH_SECONDS: Final = 1.0
"""How long a reading is reused, however many pages ask."""

_SECONDS: Final = 1.0
_MAX_BYTES: Final = 1 << 20
_LEGS: Final = b"gateway_legs_total{"
_IN_FLIGHT: Final = b"gateway_requests_in_flight "
_HELD: Final = b"gateway_upstream_held_calls{"
_SHED: Final = b'outcome="shed"'


class FleetMetrics:
    """Reads the metrics of replicas, only when asked, and at most once a second."""

    def __init__(self) -> None:
        self._read_at = 0.0
        self._loads: dict[str, dict[str, Any]] = {}

    async def read(self, places: Mapping[str, Address]) -> Mapping[str, dict[str, Any]]:
        """Return `inFlight`, `legs`, `shed` and `held` of each replica that answers, by its name."""
        now = time.monotonic()
        if now - self._read_at >= FRESH_SECONDS:
            self._read_at = now
            texts = await asyncio.gather(*(_fetch(place) for place in places.values()))
            self._loads = {name: _load(text) for name, text in zip(places, texts, strict=True) if text}
        return self._loads


async def _fetch(place: Address) -> bytes:
    """Return the metrics of a process, or b"" if it does not answer in time."""
    host, port = place
    try:
        return (await fetch(f"http://{host}:{port}/metrics", seconds=_SECONDS, max_bytes=_MAX_BYTES)).body
    except FetchFailed:
        return b""


def _load(text: bytes) -> dict[str, Any]:
    load = {"inFlight": 0, "legs": 0, "shed": 0, "held": 0}
    for line in text.splitlines():
        if line.startswith(_LEGS):
            count = round(float(line.rpartition(b" ")[2]))
            load["legs"] += count
            if _SHED in line:
                load["shed"] += count
        elif line.startswith(_HELD):
            load["held"] += round(float(line.rpartition(b" ")[2]))
        elif line.startswith(_IN_FLIGHT):
            load["inFlight"] = round(float(line.rpartition(b" ")[2]))
    return load
