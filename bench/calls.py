"""Calls: our server and its peers under the same closed-loop load, in interleaved rounds."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from bench import cases, servers
from bench.cases import Plans, Target
from bench.load import LoadError, Measurement, measure
from bench.options import Options
from bench.report import DISTURBED_SERVER, Goal, Section, goals_document, goals_table, table
from bench.servers import Cores, Server

OURS, MANY, SDK, FASTMCP, RAW, FASTAPI = "ours", "ours, 1,000 tools", "mcp SDK", "fastmcp", "raw ASGI", "FastAPI"
PEERS = (RAW, FASTAPI, SDK, FASTMCP)
ECHO, FIRST, RETRY = BASIC = ("echo", "first leg", "retry leg")
FIXED = "fixed answer"
BUSY_LOAD = 0.97
"""From this share of its core on, the load may have been the limit and not the server."""

CASES: Mapping[str, tuple[Callable[[Target], Plans], Sequence[str]]] = {
    FIXED: (cases.fixed_plans, (RAW, FASTAPI)),
    ECHO: (cases.echo_plans, (SDK, FASTMCP, OURS, MANY)),
    FIRST: (cases.first_leg_plans, (SDK, FASTMCP, OURS)),
    RETRY: (cases.retry_leg_plans, (SDK, FASTMCP, OURS)),
    "four legs of three questions": (cases.rounds_plans, (MANY,)),
    "retry leg, 16 KiB of state": (partial(cases.carrying_plans, kib=16), (SDK, OURS)),
    "retry leg, 64 KiB of state": (partial(cases.carrying_plans, kib=64), (SDK, OURS)),
    "tools/list": (cases.list_plans, (SDK, FASTMCP, OURS)),
    "10 progress events": (cases.progress_plans, (MANY,)),
    "refused: bad token": (cases.refused_plans, (OURS,)),
}
"""How each case is asked for, and of which servers. Peers run what they can do in the same way."""

ECHO_OF_RAW = 0.4
TIMES_SDK = 4.0
P99_TIMES_RAW = 4.0
P999_MS = 10.0
AS_FAST = 0.95
"""With this share of the other's speed a server is as fast: what a round differs from the next."""
MOST_MB = 90.0
STATE_MAX_BYTES = "131072"


def section(options: Options, cores: Cores) -> Section:
    """Measure calls and sum them up.

    Raises:
        ServerError, LoadError: something cannot be measured.
    """
    return Report(run(options, cores), options).section()


def run(options: Options, cores: Cores) -> list[Run]:
    """Start all servers, measure all cases round by round, stop them.

    The servers run all the time and share one core; those not measured are idle. Interleaving the rounds spreads
    whatever else the machine does over all of them.
    """
    runs: list[Run] = []
    with ExitStack() as stack:
        running = {name: stack.enter_context(start(cores)) for name, start in _STARTS.items()}
        os.sched_setaffinity(0, {cores.load})
        targets = {name: Target(server.port, server.tokens(options.connections)) for name, server in running.items()}
        for round_number in range(options.rounds):
            print(f"calls: round {round_number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            for case, (make_plans, names) in CASES.items():
                for name in names:
                    measured = _measure(running[name], make_plans(targets[name]), options)
                    runs.append(Run(name, case, round_number, measured, running[name].resident_mib()))
    return runs


def _ours(cores: Cores, tools: str) -> AbstractContextManager[Server]:
    settings = {"GATEWAY_TOOLS": tools, "GATEWAY_STATE_MAX_BYTES": STATE_MAX_BYTES}
    return servers.ours(cores, servers.production(**servers.NEVER_OVERLOADED, **settings))


_STARTS: Mapping[str, Callable[[Cores], AbstractContextManager[Server]]] = {
    RAW: servers.raw_asgi,
    FASTAPI: servers.fastapi,
    SDK: servers.sdk,
    FASTMCP: servers.fastmcp_calls,
    OURS: partial(_ours, tools="bench.race_tools"),
    MANY: partial(_ours, tools="bench.many_tools,bench.tools"),
}


def _measure(server: Server, plans: Plans, options: Options) -> Measurement:
    try:
        return measure(
            server.port,
            plans,
            warmup_seconds=options.warmup_seconds,
            seconds=options.seconds,
            server_cpu=server.cpu_seconds,
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


class Ratio(NamedTuple):
    """How many times faster one server is than another: by requests a second, and by CPU time a request."""

    by_clock: float
    by_cpu: float


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
        self.disturbed = self._servers(lambda numbers: numbers["server_busy"] < DISTURBED_SERVER)

    def ratio(self, case: str, peer: str, *, server: str = OURS, peer_case: str | None = None) -> Ratio:
        """How many times faster than a peer a server of ours is, from the medians."""
        ours, theirs = self.medians[server, case], self.medians[peer, peer_case or case]
        return Ratio(
            by_clock=ours["requests_per_second"] / theirs["requests_per_second"],
            by_cpu=theirs["cpu_us_per_request"] / ours["cpu_us_per_request"],
        )

    def goals(self) -> list[Goal]:
        """What was to be reached. On a disturbed machine speeds are judged by CPU time."""
        return [
            self._speed(
                f"{ECHO} at least {ECHO_OF_RAW:.2f} × {RAW}", ECHO_OF_RAW, self.ratio(ECHO, RAW, peer_case=FIXED)
            ),
            *(
                self._speed(f"{case} at least {TIMES_SDK:g} × the {SDK}", TIMES_SDK, self.ratio(case, SDK))
                for case in BASIC
            ),
            self._speed(
                f"{ECHO} with 1,000 tools at least {AS_FAST:g} × that with few",
                AS_FAST,
                self.ratio(ECHO, OURS, server=MANY),
            ),
            self._tail_beside_raw(),
            self._tail(),
            self._memory(),
        ]

    def _speed(self, what: str, least: float, ratio: Ratio) -> Goal:
        measured = f"{ratio.by_clock:.2f} × by the clock, {ratio.by_cpu:.2f} × by CPU time"
        return Goal(what, measured, (ratio.by_cpu if self.disturbed else ratio.by_clock) >= least)

    def _tail_beside_raw(self) -> Goal:
        raw = self.medians[RAW, FIXED]["p99_ms"]
        ratios = {case: self.medians[OURS, case]["p99_ms"] / raw for case in BASIC}
        measured = ", ".join(f"{case} {ratio:.1f} ×" for case, ratio in ratios.items())
        what = f"99th percentile at most {P99_TIMES_RAW:g} × that of {RAW}, {raw:.2f} ms"
        return Goal(what, measured, max(ratios.values()) <= P99_TIMES_RAW)

    def _tail(self) -> Goal:
        tails = {case: self.medians[OURS, case]["p999_ms"] for case in BASIC}
        measured = ", ".join(f"{case} {tail:.1f} ms" for case, tail in tails.items())
        return Goal(f"99.9th percentile at most {P999_MS:g} ms", measured, max(tails.values()) <= P999_MS)

    def _memory(self) -> Goal:
        most = max(run.resident_mib for run, _ in self.runs if run.server == OURS) * 2**20 / 1e6
        return Goal(f"at most {MOST_MB:g} MB of memory a replica", f"{most:.0f} MB", most <= MOST_MB)

    def section(self) -> Section:
        """The report."""
        document = {
            "rounds": self.options.rounds,
            "seconds": self.options.seconds,
            "connections": self.options.connections,
            "goals": goals_document(self.goals()),
            "medians": [
                {"server": server, "case": case, **numbers} for (server, case), numbers in self.medians.items()
            ],
            "ratios": {
                case: {peer: self.ratio(case, peer)._asdict() for peer in self._peers(case)} for case in self._raced()
            },
            "runs": [
                {"server": run.server, "case": run.case, "round": run.round, **numbers} for run, numbers in self.runs
            ],
        }
        return Section("calls", self.markdown(), document, self.wrong)

    def _raced(self) -> list[str]:
        return [case for case in CASES if (OURS, case) in self.medians and self._peers(case)]

    def _peers(self, case: str) -> list[str]:
        return [peer for peer in PEERS if (peer, case) in self.medians]

    def markdown(self) -> str:
        """The report for people."""
        lines = [
            "## Calls",
            "",
            f"Medians of {self.options.rounds} interleaved rounds of {self.options.seconds:g} s each, "
            f"{self.options.connections} keep-alive connections, server on one core and load on another. "
            "Ours checks a token for each connection's user, limits their rates, counts metrics and writes an audit "
            f"log to a file; the others do nothing of that. Python {platform.python_version()}.",
            "",
            *table(
                ("server", "case", "req/s", "CPU µs a request", "p50 / p99 / p99.9 ms", "memory MiB"),
                (_row(server, case, numbers) for (server, case), numbers in self.medians.items()),
                texts=2,
            ),
            "",
            *table(
                ("ours", *(f"× {peer}, by clock / CPU" for peer in (SDK, FASTMCP))),
                (self._ratio_row(case) for case in self._raced()),
            ),
            "",
            *self._verdict(),
        ]
        return "\n".join(lines) + "\n"

    def _ratio_row(self, case: str) -> list[str]:
        peers = self._peers(case)
        ratios = [self.ratio(case, peer) if peer in peers else None for peer in (SDK, FASTMCP)]
        return [case, *(f"{ratio.by_clock:.2f} / {ratio.by_cpu:.2f}" if ratio else "" for ratio in ratios)]

    def _verdict(self) -> list[str]:
        answers = sum(int(numbers["requests"]) for _, numbers in self.runs)
        if self.wrong:
            return [f"WRONG: {len(self.wrong)} of {answers:,} answers. The first: {self.wrong[0]}"]
        lines = [*goals_table(self.goals()), "", f"{answers:,} answers checked."]
        if self.disturbed:
            share = f"less than {DISTURBED_SERVER:.0%} of a core for {self.disturbed}"
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
