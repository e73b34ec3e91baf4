"""The interface through which a running call learns that it should be shed."""

from __future__ import annotations

from typing import Protocol


class Shedding(Protocol):
    """Decides which legs should end early, so another replica can continue with what they have learned."""

    def wants_shed(self, began: float) -> bool:
        """Return whether a leg begun at `began` (monotonic) should end at its checkpoint. If so, the caller ends it."""
        ...
