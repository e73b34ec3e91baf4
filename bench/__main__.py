"""Measure the chosen subjects and print a report; exit code 1 if an answer was wrong."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import calls, growth, overload, parts, report, tasks
from bench.clients import WrongAnswer
from bench.load import LoadError
from bench.options import Options
from bench.servers import Cores, ServerError

SUBJECTS: dict[str, Callable[[Options, Cores], report.Section]] = {
    "calls": calls.section,
    "parts": parts.section,
    "growth": growth.section,
    "tasks": tasks.section,
    "overload": overload.section,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark. Exit code 0: measured; 1: an answer was wrong; 2: it could not run."""
    given = _parse(arguments)
    options = Options(given.rounds, given.seconds, given.warmup, given.connections, given.stored, given.reports)
    try:
        cores = Cores.choose()
        sections = [SUBJECTS[name](options, cores) for name in given.only or SUBJECTS]
    except WrongAnswer as wrong:
        print(f"bench: WRONG: {wrong}", file=sys.stderr)
        return 1
    except (ServerError, LoadError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print(report.markdown(sections))
    report.write(given.reports, sections)
    return 1 if any(section.wrong for section in sections) else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    normal = Options()
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=SUBJECTS, help="a subject; may be repeated; all if unset")
    parser.add_argument("--rounds", type=int, default=normal.rounds, help="interleaved rounds; medians are shown")
    parser.add_argument("--seconds", type=float, default=normal.seconds, help="measured time of a case and server")
    parser.add_argument("--warmup", type=float, default=normal.warmup_seconds, help="load before calls are measured")
    parser.add_argument("--connections", type=int, default=normal.connections, help="keep-alive connections of calls")
    parser.add_argument("--stored", type=int, default=normal.stored_tasks, help="tasks in the large store")
    parser.add_argument("--reports", type=Path, default=normal.reports, help="folder of what is written")
    given = parser.parse_args(arguments)
    if min(given.rounds, given.connections, given.stored) < 1 or given.seconds <= 0 or given.warmup < 0:
        parser.error("rounds, connections, stored tasks and seconds are positive numbers")
    return given


if __name__ == "__main__":
    sys.exit(main())
