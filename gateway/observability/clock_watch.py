"""Compares this process's clock with those of the servers that it talks to, and reports if it is off.

This sends no requests: every comparison uses an answer that is needed for something else.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

log = logging.getLogger(__name__)

OFF_SECONDS: Final = 5.0
"""A clock that differs by more is reported. An answer that took longer proves nothing and is ignored."""

RIGHT_SECONDS: Final = 30.0
"""The clock counts as right again if no answer has shown it off for this long, since one of several servers may be
off."""


class ClockSource(StrEnum):
    """The servers that this process compares its clock with."""

    REDIS = "redis"
    IDENTITY_PROVIDER = "identity_provider"


@dataclass(frozen=True, slots=True)
class Reading:
    """The time that a server reported.

    Attributes:
        told: seconds since the epoch. The server's clock showed this time, or a fraction of `step` more.
        step: the unit that the server rounds its time down to, in seconds.
        heard_at: the time on our clock when the answer arrived.
        took: how many seconds the answer took.
    """

    told: float
    step: float
    heard_at: float
    took: float

    @property
    def offset(self) -> float:
        """The seconds that our clock is certainly ahead, or behind if negative; 0 if both clocks may agree."""
        at_most = self.heard_at - self.told
        at_least = at_most - self.took - self.step
        return at_least if at_least > 0 else min(at_most, 0.0)


@dataclass
class _Compared:
    offset: float = 0.0
    off: bool = False
    off_at: float = 0.0


class ClockWatch(Collector):
    """Compares this process's clock with others. Any thread may report a reading."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._compared: dict[ClockSource, _Compared] = {}
        self._lock = threading.Lock()

    def compare(self, source: ClockSource, reading: Reading) -> None:
        """Compare a reading with our clock. Log when the clock turns out to be off, and when it is right again."""
        if reading.took > OFF_SECONDS:
            return
        with self._lock:
            compared = self._compared.setdefault(source, _Compared())
            was_off, now = compared.off, self._clock()
            if abs(reading.offset) > OFF_SECONDS:
                compared.off, compared.off_at = True, now
            elif was_off and now - compared.off_at < RIGHT_SECONDS:
                return
            else:
                compared.off = False
            compared.offset = reading.offset
        if compared.off != was_off:
            message = "clock is off" if compared.off else "clock is right again"
            log.warning(message, extra={"source": source.value, "seconds": round(reading.offset, 1)})

    def offsets(self) -> dict[str, float]:
        """Return for each source by how many seconds our clock is ahead of it, or behind if negative."""
        with self._lock:
            return {source.value: round(compared.offset, 3) for source, compared in self._compared.items()}

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the last comparisons; called by the thread that serves metrics."""
        (family,) = self.describe()
        for source, offset in self.offsets().items():
            family.add_metric([source], offset)
        yield family

    def describe(self) -> list[GaugeMetricFamily]:
        """Return the metric without its values."""
        return [
            GaugeMetricFamily(
                "gateway_clock_offset_seconds",
                "How far this process's clock is ahead of another one, or behind it if negative.",
                labels=["source"],
            )
        ]
