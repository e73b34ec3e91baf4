"""The memory of the line that a program is still writing."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from gateway.protocol.upstream.json_lines import JsonLines
from gateway.upstreams.failures import UpstreamFailure
from gateway.upstreams.readings import SMALL_BYTES, Count, Readings


class UnfinishedLine:
    """Counts the memory of the line that has not ended, once it is large. If that is too much, the line is skipped."""

    def __init__(self, upstream: str, readings: Readings, lines: JsonLines) -> None:
        self._upstream = upstream
        self._readings = readings
        self._lines = lines
        self._counted = 0
        self._held: tuple[Count, Callable[[], None]] | None = None

    def count(self, reader: Hashable) -> None:
        """Count what is kept of it now, as something that a reader reads."""
        size = self._lines.unfinished
        if size <= SMALL_BYTES:
            self.release()
            return
        if self._held is None:
            self._held = self._readings.hold(self._upstream, reader, self._give_way)
        more, self._counted = size - self._counted, size
        try:
            self._held[0](more)
        except UpstreamFailure:
            self._give_way()

    def release(self) -> None:
        """Count nothing any more: the line has ended, or it is skipped."""
        if self._held is not None:
            self._held[1]()
        self._held, self._counted = None, 0

    def _give_way(self) -> None:
        self._lines.skip(self._readings.problem)
        self.release()
