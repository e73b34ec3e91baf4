"""How much the benchmark measures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """How much to measure.

    Attributes:
        rounds: the number of interleaved rounds; reports show medians.
        seconds: measured time of each case and server in a round.
        warmup_seconds: load before each measurement of calls.
        connections: the number of keep-alive connections for calls.
        stored_tasks: the number of tasks in a large store.
        reports: the folder of reports and pictures.
    """

    rounds: int = 5
    seconds: float = 1.5
    warmup_seconds: float = 0.3
    connections: int = 32
    stored_tasks: int = 100_000
    reports: Path = Path("reports")
