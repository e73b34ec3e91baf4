"""How much the benchmark measures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """How much to measure.

    Attributes:
        rounds: interleaved rounds of everything that is compared; reports show medians.
        seconds: measured time of each case and server in a round.
        warmup_seconds: load before each measurement of calls.
        connections: keep-alive connections of the load of calls.
        stored_tasks: how many stored tasks a large store has.
        reports: the folder of reports and pictures.
    """

    rounds: int = 5
    seconds: float = 1.5
    warmup_seconds: float = 0.3
    connections: int = 32
    stored_tasks: int = 100_000
    reports: Path = Path("reports")
