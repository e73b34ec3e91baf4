"""Open streams per caller."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Final

from gateway.errors import TooManyStreams

RETRY_AFTER_SECONDS: Final = 10
"""When to try again: nobody knows when one of the caller's own streams will end."""


class StreamLimiter:
    """Limits the open streams of each caller. Its memory is bounded by the number of open streams."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._open: dict[Hashable, int] = {}

    def __len__(self) -> int:
        """Return how many callers have a stream open."""
        return len(self._open)

    @contextmanager
    def stream(self, caller: Hashable) -> Iterator[None]:
        """Count one stream of a caller as open while the context lasts.

        Raises:
            TooManyStreams: the caller has as many open as allowed.
        """
        count = self._open.get(caller, 0)
        if count >= self.limit:
            raise TooManyStreams(self.limit, RETRY_AFTER_SECONDS)
        self._open[caller] = count + 1
        try:
            yield
        finally:
            if self._open[caller] > 1:
                self._open[caller] -= 1
            else:
                del self._open[caller]
