"""Measure the chosen subjects and print a report; exit code 1 if an answer was wrong."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import calls, growth, memory, ours, overload, parts, streams, tasks, upstreams
from bench.clients import WrongAnswer
from bench.load import LoadError
from bench.options import Options
from bench.report import Report, Section
from bench.servers import TOP, Cores, ServerError

SUBJECTS: dict[str, Callable[[Options, Cores], Section]] = {
    "calls": calls.section,
    "parts": parts.section,
    "growth": growth.section,
    "streams": streams.section,
    "tasks": tasks.section,
    "overload": overload.section,
    "upstreams": upstreams.section,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark. Exit code 0: measured; 1: an answer was wrong; 2: it could not run."""
    arguments = sys.argv[1:] if arguments is None else arguments
    given = _parse(arguments)
    options = Options(given.rounds, given.seconds, given.warmup, given.connections, given.stored, given.reports)
    problem = ours.problem(TOP, interpreted=given.interpreted)
    if problem is not None:
        print(f"bench: {problem}", file=sys.stderr)
        return 2
    allowed = os.sched_getaffinity(0)
    try:
        cores = Cores.choose()
        sections = [SUBJECTS[name](options, cores) for name in given.only or SUBJECTS]
    except WrongAnswer as wrong:
        print(f"bench: WRONG: {wrong}", file=sys.stderr)
        return 1
    except (ServerError, LoadError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    finally:
        os.sched_setaffinity(0, allowed)
    report = Report(ours.kind(), command(arguments), sections, memory.earlier(given.reports))
    print(report.markdown())
    report.write(given.reports)
    return 1 if any(section.wrong for section in sections) else 0


def command(arguments: Sequence[str]) -> str:
    """Return the command line that runs the benchmark with these arguments."""
    return f'make bench BENCH="{shlex.join(arguments)}"' if arguments else "make bench"


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    normal = Options()
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=SUBJECTS, help="measure this subject only; repeatable")
    parser.add_argument("--interpreted", action="store_true", help="measure the source tree, not compiled code")
    parser.add_argument(
        "--rounds", type=int, default=normal.rounds, help="number of interleaved rounds; reports show medians"
    )
    parser.add_argument(
        "--seconds", type=float, default=normal.seconds, help="time to measure each case and server for"
    )
    parser.add_argument(
        "--warmup", type=float, default=normal.warmup_seconds, help="seconds of load before each measurement of calls"
    )
    parser.add_argument(
        "--connections", type=int, default=normal.connections, help="number of keep-alive connections for calls"
    )
    parser.add_argument("--stored", type=int, default=normal.stored_tasks, help="number of tasks in the large store")
    parser.add_argument("--reports", type=Path, default=normal.reports, help="folder to write reports to")
    given = parser.parse_args(arguments)
    if min(given.rounds, given.connections, given.stored) < 1 or given.seconds <= 0 or given.warmup < 0:
        parser.error("rounds, connections, stored tasks and seconds must be positive numbers")
    return given


if __name__ == "__main__":
    sys.exit(main())
