"""Calls: our server, the SDK's and a raw ASGI echo under the same closed-loop load, in interleaved rounds."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from bench import cases, servers
from bench.load import Exchange, LoadError, Measurement, measure
from bench.options import Options
from bench.report import DISTURBED_SERVER, Section, table
from bench.servers import Server

QUESTION_SECONDS = 0.2
"""How long first legs are asked before retry legs, to have states to bring back."""

OURS, SDK, RAW = "ours", "mcp SDK", "raw ASGI"
CASES = ("echo", "first leg", "retry leg")
MUST_BE_TIMES_SDK = 2.0
BUSY_LOAD = 0.97
"""From this share of its core on, the load may have been the limit and not the server."""


def section(options: Options, cores: servers.Cores) -> Section:
    """Measure calls and sum them up.

    Raises:
        ServerError, LoadError: something cannot be measured.
    """
    return Report(run(options, cores), options).section()


def run(options: Options, cores: servers.Cores) -> list[Run]:
    """Start all servers, measure all cases round by round, stop them.

    The servers run all the time and share one core; those not measured are idle. Interleaving the rounds spreads
    whatever else the machine does over all of them.
    """
    runs: list[Run] = []
    with ExitStack() as stack:
        running = [stack.enter_context(start(cores)) for start in (servers.raw_asgi, servers.sdk, servers.ours)]
        os.sched_setaffinity(0, {cores.load})
        for round_number in range(options.rounds):
            print(f"calls: round {round_number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            for server, case, plans in _work(running, options):
                measured = _measure(server, plans, options.warmup_seconds, options.seconds)
                runs.append(Run(server.name, case, round_number, measured, server.resident_mib()))
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


@dataclass(frozen=True, slots=True)
class Run:
    """One server measured with one case in one round."""

    server: str
    case: str
    round: int
    measured: Measurement
    resident_mib: float

    def numbers(self) -> dict[str, float]:
        """What the report keeps of the measurement."""
        measured = self.measured
        return {
            "requests": len(measured.latencies_ns),
            "requests_per_second": measured.requests_per_second,
            "cpu_us_per_request": measured.cpu_us_per_request,
            "p50_ms": measured.latency_ms(0.5),
            "p99_ms": measured.latency_ms(0.99),
            "p999_ms": measured.latency_ms(0.999),
            "server_busy": measured.server_busy,
            "load_busy": measured.load_busy,
            "resident_mib": self.resident_mib,
            "wrong": len(measured.wrong),
        }


class Ratios(NamedTuple):
    """How many times faster than the SDK and the raw ASGI echo: by requests a second, and by CPU time a request."""

    raw: float
    sdk: float
    sdk_by_cpu: float


class Report:
    """All runs of one benchmark, summed up."""

    def __init__(self, runs: list[Run], options: Options) -> None:
        self.options = options
        self.runs = [(run, run.numbers()) for run in runs]
        self.wrong = [f"{run.server}, {run.case}: {problem}" for run in runs for problem in run.measured.wrong]
        self.medians: dict[tuple[str, str], dict[str, float]] = {}
        for run in runs:
            same = [numbers for other, numbers in self.runs if (other.server, other.case) == (run.server, run.case)]
            self.medians[run.server, run.case] = {
                name: statistics.median(numbers[name] for numbers in same) for name in same[0]
            }

    def ratios(self, case: str) -> Ratios:
        """How many times faster than the peers we are, from the medians."""
        ours, sdk, raw = self.medians[OURS, case], self.medians[SDK, case], self.medians[RAW, "echo"]
        return Ratios(
            sdk=ours["requests_per_second"] / sdk["requests_per_second"],
            raw=ours["requests_per_second"] / raw["requests_per_second"],
            sdk_by_cpu=sdk["cpu_us_per_request"] / ours["cpu_us_per_request"],
        )

    def section(self) -> Section:
        """The report."""
        document = {
            "rounds": self.options.rounds,
            "seconds": self.options.seconds,
            "connections": self.options.connections,
            "medians": [
                {"server": server, "case": case, **numbers} for (server, case), numbers in self.medians.items()
            ],
            "ratios": {case: self.ratios(case)._asdict() for case in CASES},
            "runs": [
                {"server": run.server, "case": run.case, "round": run.round, **numbers} for run, numbers in self.runs
            ],
        }
        return Section("calls", self.markdown(), document, self.wrong)

    def markdown(self) -> str:
        """The report for people."""
        lines = [
            "## Calls",
            "",
            f"Medians of {self.options.rounds} interleaved rounds of {self.options.seconds:g} s each, "
            f"{self.options.connections} keep-alive connections, server on one core and load on another. "
            f"Python {platform.python_version()}.",
            "",
            *table(
                ("server", "case", "req/s", "CPU µs a request", "p50 / p99 / p99.9 ms", "memory MiB"),
                (_row(server, case, numbers) for (server, case), numbers in self.medians.items()),
                texts=2,
            ),
            "",
            *table(
                ("ours", f"× {RAW}", f"× {SDK}", f"× {SDK}, by CPU"),
                (_ratio_row(case, self.ratios(case)) for case in CASES),
            ),
            "",
            *self._verdict(),
        ]
        return "\n".join(lines) + "\n"

    def _verdict(self) -> list[str]:
        answers = sum(int(numbers["requests"]) for _, numbers in self.runs)
        if self.wrong:
            return [f"WRONG: {len(self.wrong)} of {answers:,} answers. The first: {self.wrong[0]}"]
        disturbed = self._servers(lambda numbers: numbers["server_busy"] < DISTURBED_SERVER)
        slow = [
            case
            for case in CASES
            if (self.ratios(case).sdk_by_cpu if disturbed else self.ratios(case).sdk) < MUST_BE_TIMES_SDK
        ]
        verdict = f"BELOW the goal in: {', '.join(slow)}" if slow else "PASSED"
        unit = "CPU time" if disturbed else "req/s"
        goal = f"at least {MUST_BE_TIMES_SDK:g} × the {SDK} in every case, by {unit}"
        lines = [f"{verdict}. Goal: {goal}. {answers:,} answers checked."]
        if disturbed:
            share = f"less than {DISTURBED_SERVER:.0%} of a core for {disturbed}"
            lines += ["", f"Disturbed: {share}, so CPU times decide. Run it again when nothing else runs here."]
        limited = self._servers(lambda numbers: numbers["load_busy"] >= BUSY_LOAD)
        if limited:
            lines += ["", f"The load had no time to spare against {limited}: a faster load might show more."]
        return lines

    def _servers(self, condition: Callable[[dict[str, float]], bool]) -> str:
        """The servers with a case whose medians fulfil `condition`, as text."""
        return ", ".join(dict.fromkeys(server for (server, _), numbers in self.medians.items() if condition(numbers)))


def _row(server: str, case: str, numbers: dict[str, float]) -> list[str]:
    latency = f"{numbers['p50_ms']:.2f} / {numbers['p99_ms']:.2f} / {numbers['p999_ms']:.2f}"
    rate, cpu = f"{numbers['requests_per_second']:,.0f}", f"{numbers['cpu_us_per_request']:.0f}"
    return [server, case, rate, cpu, latency, f"{numbers['resident_mib']:.0f}"]


def _ratio_row(case: str, ratios: Ratios) -> list[str]:
    return [case, f"{ratios.raw:.2f}", f"{ratios.sdk:.2f}", f"{ratios.sdk_by_cpu:.2f}"]
