"""Run every server and case in interleaved rounds and print a report; exit code 1 if an answer was wrong."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import cases, report, servers
from bench.load import Exchange, LoadError, Measurement, measure
from bench.servers import Server

QUESTION_SECONDS = 0.2
"""How long first legs are asked before retry legs, to have states to bring back."""


@dataclass(frozen=True, slots=True)
class Options:
    """How much to measure."""

    rounds: int
    seconds: float
    warmup_seconds: float
    connections: int
    reports: Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark. Exit code 0: measured; 1: an answer was wrong; 2: it could not run."""
    options = _parse(arguments)
    try:
        runs = run(options)
    except (servers.ServerError, LoadError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    table = report.Report(runs, rounds=options.rounds, seconds=options.seconds, connections=options.connections)
    print(table.markdown())
    table.write(options.reports)
    return 1 if table.wrong else 0


def run(options: Options) -> list[report.Run]:
    """Start all servers, measure all cases round by round, stop them.

    The servers run all the time and share one core; those not measured are idle. Interleaving the rounds spreads
    whatever else the machine does over all of them.
    """
    cores = servers.Cores.choose()
    runs: list[report.Run] = []
    with ExitStack() as stack:
        running = [
            stack.enter_context(start(cores, stack.enter_context(tempfile.TemporaryFile())))
            for start in (servers.raw_asgi, servers.sdk, servers.ours)
        ]
        os.sched_setaffinity(0, {cores.load})
        for round_number in range(options.rounds):
            print(f"round {round_number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            for server, case, plans in _work(running, options):
                measured = _measure(server, plans, options.warmup_seconds, options.seconds)
                runs.append(report.Run(server.name, case, round_number, measured, server.resident_mib()))
    return runs


def _work(running: Sequence[Server], options: Options) -> Iterator[tuple[Server, str, list[list[Exchange]]]]:
    """One round: every server for one case before the next case begins."""
    raw, *others = running
    connections = options.connections
    yield raw, "echo", cases.raw_plans(raw.port, connections)
    for server in others:
        yield server, "echo", cases.echo_plans(server.port, connections, server.token)
    for server in others:
        yield server, "first leg", cases.first_leg_plans(server.port, connections, server.token)
    for server in others:
        first = cases.first_leg_plans(server.port, connections, server.token)
        asked = _measure(server, first, 0, QUESTION_SECONDS)
        if asked.wrong:
            raise LoadError(f"{server.name}: no retry leg without first legs: {asked.wrong[0]}")
        yield server, "retry leg", cases.retry_leg_plans(server.port, connections, server.token, asked.last_bodies)


def _measure(server: Server, plans: list[list[Exchange]], warmup_seconds: float, seconds: float) -> Measurement:
    try:
        return measure(
            server.port, plans, warmup_seconds=warmup_seconds, seconds=seconds, server_cpu=server.cpu_seconds
        )
    except (LoadError, OSError) as error:
        raise LoadError(f"{server.name}: {error}\n{server.last_output()}") from error


def _parse(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds; the report shows medians (5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="measured time of each case and server (3)")
    parser.add_argument("--warmup", type=float, default=0.5, help="load before each measurement, in seconds (0.5)")
    parser.add_argument("--connections", type=int, default=32, help="keep-alive connections (32)")
    parser.add_argument("--reports", type=Path, default=Path("reports"), help="folder for bench.md and bench.json")
    given = parser.parse_args(arguments)
    if given.rounds < 1 or given.connections < 1 or given.seconds <= 0 or given.warmup < 0:
        parser.error("rounds, connections and seconds are positive numbers")
    return Options(given.rounds, given.seconds, given.warmup, given.connections, given.reports)


if __name__ == "__main__":
    sys.exit(main())
