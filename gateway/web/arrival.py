"""What the endpoint knows of a request once its headers are complete."""

from __future__ import annotations

from typing import Final

from gateway.admission.inflight import InFlightVisit

ARRIVAL: Final = "gateway.arrival"
"""Where the scope of a request holds its `Arrival`, if it is for `/mcp`."""


class Arrival:
    """A request whose headers are complete.

    Args:
        last_values: the last value of each header, by its name in lower case.
        method: what its headers say is asked for. The body is compared with it later.
        visit: its place among those that are worked on, None if it has none.
        refused: whether it has none because there are too many.

    Attributes:
        forwarded_id: what a trusted proxy calls it, or "".
    """

    __slots__ = ("forwarded_id", "last_values", "method", "refused", "visit")

    def __init__(
        self, last_values: dict[bytes, bytes], method: bytes, visit: InFlightVisit | None, *, refused: bool
    ) -> None:
        self.last_values = last_values
        self.method = method
        self.visit = visit
        self.refused = refused
        self.forwarded_id = ""

    def step_aside(self) -> None:
        """Let it take nobody's place for now."""
        if self.visit is not None:
            self.visit.step_aside()
