"""Pure: the CPU time of legs, tasks and requests, derived from measurements."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from gateway.errors import ConfigurationError

KIB = 1024


@dataclass(frozen=True)
class GatewayCosts:
    """The CPU time that the gateway itself needs, in addition to the tools.

    Attributes:
        first_leg_seconds: CPU time of a leg that starts a call and asks a question.
        middle_leg_seconds: CPU time of a leg that receives a small state and an answer, and asks again.
        last_leg_seconds: CPU time of a leg that receives a small state and an answer, and finishes.
        state_kib_seconds: CPU time for each KiB of state that is received or sent.
        state_bytes: the smallest state, in characters on the wire.
        task_seconds: CPU time of a worker for a task that does almost nothing.
        redis_seconds: CPU time of Redis for one request.
        measured_on: the machine of the measurement, for people.
    """

    first_leg_seconds: float
    middle_leg_seconds: float
    last_leg_seconds: float
    state_kib_seconds: float
    state_bytes: int
    task_seconds: float
    redis_seconds: float
    measured_on: str = ""

    def call_seconds(self, rounds: float, state_bytes: float) -> float:
        """Return the CPU time of a call, over all its legs.

        Each round adds a leg, and a state that is sent and received. `state_bytes` is the average size of these states.
        """
        more_kib = max(0.0, state_bytes - self.state_bytes) / KIB
        return (
            self.first_leg_seconds
            + max(0.0, rounds - 1) * self.middle_leg_seconds
            + min(1.0, rounds) * self.last_leg_seconds
            + 2 * rounds * more_kib * self.state_kib_seconds
        )

    def save(self, path: Path) -> None:
        """Write the costs to a file that `load` can read."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> GatewayCosts:
        """Read costs that `save` has written.

        Raises:
            ConfigurationError: the file cannot be read, or does not have this form.
        """
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            costs = cls(**found)
        except (OSError, ValueError, TypeError) as error:
            raise ConfigurationError(f"cannot read costs from {path}: {error}") from None
        for each in fields(cls):
            value = getattr(costs, each.name)
            if each.name != "measured_on" and not (isinstance(value, (int, float)) and value > 0):
                raise ConfigurationError(f"{path}: {each.name} is {value!r}, not a positive number")
        return costs


MEASURED = Path(__file__).parent / "measured.json"
"""The measurement that the documentation uses. Other machines differ, mostly by one factor for all values."""


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of y over x, by least squares; raise `ValueError` without two different x."""
    middle_x = sum(x for x, _ in points) / len(points)
    middle_y = sum(y for _, y in points) / len(points)
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    if not spread:
        raise ValueError("a slope needs two different x")
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread


def state_kib_seconds(legs: Mapping[int, float]) -> float:
    """Return the CPU time for each KiB of state.

    `legs` maps the size of a state in bytes to the CPU time of legs that receive or send one such state.
    """
    return slope([(size / KIB, seconds) for size, seconds in legs.items()])
