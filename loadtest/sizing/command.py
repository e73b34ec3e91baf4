"""`python -m loadtest size`: measure what `gateway size` assumes of one replica."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path
from typing import Final

from loadtest.sizing.measure import measure_costs

MEASURE_SECONDS: Final = 10.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose where the result goes, and how long to measure."""
    parser.add_argument("--measure", action="store_true", required=True, help="measure legs and tasks on this machine")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the file to write the costs to")
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=MEASURE_SECONDS,
        metavar="S",
        help=f"time for each kind of leg (default: {MEASURE_SECONDS:g})",
    )


def perform(given: argparse.Namespace, reports: Path) -> int:
    """Measure, and return the exit code.

    Args:
        given: the options.
        reports: the parent directory of the replicas' logs.

    Raises:
        ClusterError: replicas do not start, or do not answer as they should.
    """
    directory = reports / f"size-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    costs = measure_costs(directory, given.seconds, lambda text: print(text, flush=True))
    path = given.out or directory / "costs.json"
    costs.save(path)
    print(f"\nTo use these costs: gateway size --costs {path}")
    return 0


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number of seconds")
    return seconds
