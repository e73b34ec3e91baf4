"""`python -m loadtest SCENARIO`: run a scenario and print its result. Also `report DIRECTORY`, and `size`."""

# ruff: noqa: PLC0415 - importing the charts takes a second, and only the end of a run needs them

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from loadtest.cluster import ClusterError
from loadtest.ledger import ledger
from loadtest.peers import PEERS
from loadtest.rates import parts
from loadtest.rawdata import RawDataError, RawRun, read
from loadtest.run import Options, perform
from loadtest.scenario import Scenario
from loadtest.scenarios import SCENARIOS
from loadtest.sizing.command import add_options
from loadtest.sizing.command import perform as perform_size
from loadtest.tokens import TokenError, Tokens
from loadtest.verdict import Verdict

REPORTS = Path("reports") / "loadtest"
SHORT_VARIABLE = "LOADTEST_SHORT"
REASONS_SHOWN = 10
NO_REASON = "no reason given"
EXIT_PASSED, EXIT_FAILED, EXIT_NOT_RUN = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Exit code 0: within all bounds; 1: out of bounds; 2: the run could not take place."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parsed = _parser().parse_args(given)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return int(parsed.command(parsed))
    except (ClusterError, RawDataError, TokenError) as error:
        print(f"loadtest: {error}", file=sys.stderr)
        return EXIT_NOT_RUN
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest",
        description="Run a scenario against a cluster on this machine, or against your own deployment with --target.",
        epilog="The users' bearer token comes from LOADTEST_TOKEN, LOADTEST_TOKEN_FILE or LOADTEST_TOKEN_COMMAND. "
        "See docs/run/loadtest.md.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for scenario in SCENARIOS.values():
        _add_scenario(commands.add_parser(scenario.name, help=scenario.summary, description=scenario.summary), scenario)
    report = commands.add_parser("report", help="rewrite the report of a run from its raw data")
    report.add_argument("directory", type=Path, help="where the raw data is")
    report.set_defaults(command=_report)
    sizing = commands.add_parser(
        "size",
        help="measure what `gateway size` assumes of a replica",
        description="Measure what `gateway size` assumes of one replica. To size a deployment, run `gateway size`.",
    )
    add_options(sizing)
    sizing.set_defaults(command=lambda given: perform_size(given, REPORTS))
    return parser


def _add_scenario(parser: argparse.ArgumentParser, scenario: Scenario) -> None:
    users, replicas = sum(scenario.users.values()), scenario.replicas
    parser.add_argument(
        "--seconds", type=_positive, metavar="S", help=f"how long to run (default: {scenario.seconds:g})"
    )
    parser.add_argument(
        "--short",
        action="store_true",
        help=f"run for {scenario.short_seconds:g} seconds, as in CI; some scenarios use fewer users",
    )
    parser.add_argument("--users", type=_count, metavar="N", help=f"total number of users (default: {users})")
    parser.add_argument(
        "--replicas", type=_count, metavar="N", help=f"number of replicas to start with (default: {replicas})"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIRECTORY",
        help=f"where to write the raw data and the report (default: in {REPORTS})",
    )
    whom = parser.add_mutually_exclusive_group()
    whom.add_argument("--target", metavar="URL", help="the MCP endpoint of a running deployment")
    if not scenario.needs_cluster:
        whom.add_argument(
            "--peer", choices=PEERS, help="run this server instead of the gateway, with ephemeral users only"
        )
    parser.add_argument(
        "--metrics",
        type=_assignment,
        action="append",
        default=[],
        metavar="NAME=URL",
        help="the metrics of one process of that deployment; repeatable",
    )
    parser.add_argument(
        "--set",
        type=_assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting for all processes of the cluster; repeatable",
    )
    parser.add_argument(
        "--module",
        default="gateway",
        metavar="NAME",
        help="the module that `python -m` starts replicas and workers from (default: %(default)s)",
    )
    parser.set_defaults(command=_perform, scenario=scenario)


def _perform(given: argparse.Namespace) -> int:
    scenario: Scenario = given.scenario
    if given.short or os.environ.get(SHORT_VARIABLE, "") not in ("", "0"):
        scenario = scenario.shortened()
    directory = given.out or REPORTS / f"{scenario.name}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    options = Options(
        directory,
        seconds=given.seconds,
        users=given.users,
        replicas=given.replicas,
        target=given.target,
        metrics=dict(given.metrics),
        environ=dict(given.set),
        module=given.module,
        peer=getattr(given, "peer", None),
    )
    Tokens.from_environment(os.environ).current()  # a missing token fails here, once, and not for every user
    print(f"{scenario.name}: {scenario.summary}", flush=True)
    verdict = perform(scenario, options)
    _tell(read(directory), verdict)
    from loadtest.report import write_report

    print(f"\nReport: {write_report(directory)}")
    return EXIT_PASSED if verdict.passed else EXIT_FAILED


def _report(given: argparse.Namespace) -> int:
    from loadtest.report import write_report

    print(write_report(given.directory))
    return EXIT_PASSED


def _tell(run: RawRun, verdict: Verdict) -> None:
    print()
    sums = ledger(run)
    for what, count in sums.rows():
        print(f"{count:10d}  {what}")
    for why, count in sorted(sums.why.items(), key=lambda item: -item[1])[:REASONS_SHOWN]:
        print(f"{count:10d}  not finished: {why or NO_REASON}")
    print("\nPer second:")
    print(f"{'finished':>10}{'legs':>8}{'shed':>8}{'refused':>9}")
    for part in parts(run):
        print(
            f"{part.finished:10.1f}{part.legs:8.1f}{part.shed:8.1f}{part.refused:9.1f}"
            f"  for {part.seconds:.1f} s from: {part.began}"
        )
    print()
    for reason in verdict.reasons:
        print(f"{'  ok' if reason.passed else 'FAIL'}  {reason.what}: {reason.measured} ({reason.bound})")
    print(f"\n{'PASSED' if verdict.passed else 'FAILED'}")


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} must have the form NAME=VALUE")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
