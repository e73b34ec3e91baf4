"""`python -m loadtest size`: measure what `gateway size` assumes, or compare its simulation with real replicas."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path
from typing import Final

from loadtest.sizing.check import SECONDS as CHECK_SECONDS
from loadtest.sizing.check import compare_all
from loadtest.sizing.measure import measure_costs

MEASURE_SECONDS: Final = 10.0
EXIT_FITS, EXIT_DIFFERS = 0, 1


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose what to measure, and for how long."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--measure", action="store_true", help="measure the costs of legs and tasks on this machine")
    what.add_argument("--check", action="store_true", help="compare the simulation with real replicas")
    parser.add_argument("--out", type=Path, metavar="FILE", help="with --measure: the file to write the costs to")
    parser.add_argument(
        "--seconds",
        type=_seconds,
        metavar="S",
        help=f"time for each kind of leg (default: {MEASURE_SECONDS:g}) or for each load that is compared"
        f" (default: {CHECK_SECONDS:g})",
    )


def perform(given: argparse.Namespace, reports: Path) -> int:
    """Measure or compare, and return the exit code.

    Args:
        given: the options.
        reports: the parent directory of the replicas' logs.

    Raises:
        ClusterError: replicas do not start, or do not answer as they should.
    """
    directory = reports / f"size-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    if given.check:
        comparisons = compare_all(directory, given.seconds or CHECK_SECONDS, _tell)
        fits = all(comparison.passed for comparison in comparisons)
        print(f"\nThe simulation {'agrees' if fits else 'does not agree'} with the measurement.")
        return EXIT_FITS if fits else EXIT_DIFFERS
    costs = measure_costs(directory, given.seconds or MEASURE_SECONDS, _tell)
    path = given.out or directory / "costs.json"
    costs.save(path)
    print(f"\nTo use these costs: gateway size --costs {path}")
    return EXIT_FITS


def _tell(text: str) -> None:
    print(text, flush=True)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number of seconds")
    return seconds
