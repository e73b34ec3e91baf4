"""Calls: our server and its peers under the same closed-loop load, in interleaved rounds."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from bench import cases, goals, servers
from bench.cases import Plans, Target
from bench.goals import Goal, Verdict
from bench.load import LoadError, Measurement, measure
from bench.options import Options
from bench.report import DISTURBED_SERVER, Section
from bench.servers import Cores, Server
from bench.tables import table

OURS, SDK, FASTMCP, RAW, FASTAPI = "ours", "mcp SDK", "fastmcp", "raw ASGI", "FastAPI"
MANY, SECOND = "ours, 1,000 tools", "ours, a second replica"
SDK_MANY, SDK_STREAMS = "mcp SDK, 1,000 tools", "mcp SDK, streams"
COMPARED = {OURS: (SDK, FASTMCP), MANY: (SDK, SDK_MANY, SDK_STREAMS)}
"""Server of ours → the servers that it is compared with, where they run the same case."""
ECHO, FIRST, RETRY = BASIC = ("echo", "first leg", "retry leg")
FIXED = "fixed answer"
FIRST_BY_SCHEMA = "first leg, form by a JSON Schema"
BUSY_LOAD = 0.97
"""From this share of its core, the load may have been the limit and not the server."""
REPEATS = 2
"""How often to repeat a measurement in which the server got less of its core than `DISTURBED_SERVER`."""

CASES: Mapping[str, tuple[Callable[[Target], Plans], Sequence[str]]] = {
    FIXED: (cases.fixed_plans, (RAW, FASTAPI)),
    ECHO: (cases.echo_plans, (SDK, OURS, MANY, SDK_MANY, FASTMCP)),
    FIRST: (cases.first_leg_plans, (FASTMCP, SDK, OURS, MANY)),
    FIRST_BY_SCHEMA: (partial(cases.first_leg_plans, tool="ask_by_schema"), (MANY,)),
    RETRY: (cases.retry_leg_plans, (SDK, OURS, SECOND, FASTMCP)),
    "four legs of three questions": (cases.rounds_plans, (SDK, MANY)),
    "retry leg, 16 KiB of state": (partial(cases.carrying_plans, kib=16), (SDK, OURS)),
    "retry leg, 64 KiB of state": (partial(cases.carrying_plans, kib=64), (SDK, OURS)),
    "tools/list": (cases.list_plans, (SDK, FASTMCP, OURS)),
    "10 progress events": (cases.progress_plans, (SDK_STREAMS, MANY)),
    "refused: bad token": (cases.refused_plans, (OURS,)),
}
"""The plans and the servers of each case. Servers that are compared follow each other directly, as the speed of a
machine changes. Peers run the cases that they can do in the same way."""

STATE_MAX_BYTES = "131072"
MANY_TOOLS = 1000
TWO_REPLICAS = Goal(
    "1 → 2 replicas: retry legs/s of both, begun at one of them, compared with one replica", 1.9, at_least=True
)


def section(options: Options, cores: Cores) -> Section:
    """Measure calls and sum them up.

    Raises:
        ServerError, LoadError: something cannot be measured.
    """
    return Report(run(options, cores), options).section()


def run(options: Options, cores: Cores) -> list[Run]:
    """Start all servers, measure all cases round by round, stop them.

    The servers run all the time and share one core; those not measured are idle. Interleaved rounds spread other work
    of the machine over all servers.
    """
    runs: list[Run] = []
    with ExitStack() as stack:
        running = {name: stack.enter_context(start(cores)) for name, start in _starts().items()}
        os.sched_setaffinity(0, {cores.load})
        targets = {name: Target(server.port, server.tokens(options.connections)) for name, server in running.items()}
        targets[SECOND] = targets[SECOND]._replace(first_port=running[OURS].port)
        for round_number in range(options.rounds):
            print(f"calls: round {round_number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            for case, (make_plans, names) in CASES.items():
                for name in names:
                    measured = _measure(running[name], targets[name], make_plans, options)
                    runs.append(Run(name, case, round_number, measured, running[name].resident_mib()))
    return runs


def _starts() -> Mapping[str, Callable[[Cores], AbstractContextManager[Server]]]:
    """Return how to start each server. Ours share keys and secrets, as replicas do."""
    few = servers.production(
        **servers.NEVER_OVERLOADED, GATEWAY_TOOLS="bench.race_tools", GATEWAY_STATE_MAX_BYTES=STATE_MAX_BYTES
    )
    many = few | {"GATEWAY_TOOLS": "bench.many_tools,bench.tools"}
    return {
        RAW: servers.raw_asgi,
        FASTAPI: servers.fastapi,
        SDK: servers.sdk,
        SDK_MANY: partial(servers.sdk, more_tools=MANY_TOOLS),
        SDK_STREAMS: partial(servers.sdk, answers="sse"),
        FASTMCP: servers.fastmcp_calls,
        OURS: partial(servers.ours, environment=few),
        SECOND: partial(servers.ours, environment=few),
        MANY: partial(servers.ours, environment=many),
    }


def _measure(server: Server, target: Target, make_plans: Callable[[Target], Plans], options: Options) -> Measurement:
    """Measure a server; repeat it up to `REPEATS` times if the machine was busy. No wrong answer is dropped."""
    measured = _measure_once(server, make_plans(target), options)
    for _ in range(REPEATS):
        if measured.server_busy >= DISTURBED_SERVER or measured.load_busy >= BUSY_LOAD or measured.wrong:
            break
        measured = _measure_once(server, make_plans(target), options)
    return measured


def _measure_once(server: Server, plans: Plans, options: Options) -> Measurement:
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
        """Return the numbers of the measurement for the report."""
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
    """How many times faster one server is than another, by requests per second and by CPU time per request."""

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
        """Return how many times faster than a peer our server is, from the medians."""
        ours, theirs = self.medians[server, case], self.medians[peer, peer_case or case]
        return Ratio(
            by_clock=ours["requests_per_second"] / theirs["requests_per_second"],
            by_cpu=theirs["cpu_us_per_request"] / ours["cpu_us_per_request"],
        )

    def verdicts(self) -> list[Verdict]:
        """Return the verdicts on the goals. On a disturbed machine, CPU time decides about speed."""
        return [
            self._speed(goals.ECHO_BESIDE_RAW, self.ratio(ECHO, RAW, peer_case=FIXED)),
            self._speed(goals.ECHO_BESIDE_SDK, self.ratio(ECHO, SDK)),
            self._speed(goals.FIRST_BESIDE_SDK, self.ratio(FIRST, SDK)),
            self._speed(goals.SCHEMA_BESIDE_MODEL, self.ratio(FIRST_BY_SCHEMA, MANY, server=MANY, peer_case=FIRST)),
            self._speed(goals.RETRY_BESIDE_SDK, self.ratio(RETRY, SDK)),
            self._tail_beside_raw(),
            self._tail(),
            self._speed(goals.MANY_TOOLS, self.ratio(ECHO, OURS, server=MANY)),
            self._speed(TWO_REPLICAS, self.two_replicas()),
            self._memory(),
        ]

    def two_replicas(self) -> Ratio:
        """Return how many times more legs two replicas serve than one, for calls that one of them began."""
        second = self.ratio(RETRY, OURS, server=SECOND)
        return Ratio(1 + second.by_clock, 1 + second.by_cpu)

    def _speed(self, goal: Goal, ratio: Ratio) -> Verdict:
        measured = f"{ratio.by_clock:.2f} × by the clock, {ratio.by_cpu:.2f} × by CPU time"
        if self.disturbed:
            measured += f"; a server got less than {DISTURBED_SERVER:.0%} of its core, so CPU time decides"
        return goal.judge(ratio.by_cpu if self.disturbed else ratio.by_clock, measured)

    def _tail_beside_raw(self) -> Verdict:
        raw = self.medians[RAW, FIXED]["p99_ms"]
        ratios = {case: self.medians[OURS, case]["p99_ms"] / raw for case in BASIC}
        measured = ", ".join(f"{case} {ratio:.1f} ×" for case, ratio in ratios.items())
        return goals.P99_BESIDE_RAW.judge(max(ratios.values()), f"{measured}; raw ASGI {raw:.2f} ms")

    def _tail(self) -> Verdict:
        tails = {case: self.medians[OURS, case]["p999_ms"] for case in BASIC}
        measured = ", ".join(f"{case} {tail:.1f} ms" for case, tail in tails.items())
        return goals.P999.judge(max(tails.values()), measured)

    def _memory(self) -> Verdict:
        most = max(run.resident_mib for run, _ in self.runs if run.server == OURS) * 2**20 / 1e6
        return goals.RESIDENT.judge(most, f"{most:.0f} MB")

    def section(self) -> Section:
        """Return the section of the report."""
        document = {
            "rounds": self.options.rounds,
            "seconds": self.options.seconds,
            "connections": self.options.connections,
            "medians": [
                {"server": server, "case": case, **numbers} for (server, case), numbers in self.medians.items()
            ],
            "ratios": [
                {"case": case, "server": server, "peer": peer, **self.ratio(case, peer, server=server)._asdict()}
                for case, server, peer in self._compared()
            ],
            "runs": [
                {"server": run.server, "case": run.case, "round": run.round, **numbers} for run, numbers in self.runs
            ],
        }
        verdicts = [] if self.wrong else self.verdicts()
        return Section("calls", "replicas, `gateway serve`", self.markdown(), document, verdicts, self.wrong)

    def _compared(self) -> Iterator[tuple[str, str, str]]:
        """Yield each case with a server of ours and a peer that it is compared with."""
        for case in CASES:
            for server, peers in COMPARED.items():
                for peer in peers:
                    if (server, case) in self.medians and (peer, case) in self.medians:
                        yield case, server, peer

    def markdown(self) -> str:
        """Return the report for people."""
        lines = [
            "## Calls",
            "",
            f"Medians of {self.options.rounds} interleaved rounds of {self.options.seconds:g} s each, "
            f"{self.options.connections} keep-alive connections, server on one core and load on another. "
            "Ours checks a token for each connection's user, limits their rates, counts metrics and writes an audit "
            f"log to a file; the others do none of this. A server that got less than {DISTURBED_SERVER:.0%} of its "
            f"core was measured again, up to {REPEATS} times. Python {platform.python_version()}.",
            "",
            *table(
                ("server", "case", "req/s", "CPU µs a request", "p50 / p99 / p99.9 ms", "memory MiB"),
                (_row(server, case, numbers) for (server, case), numbers in self.medians.items()),
                texts=2,
            ),
            "",
            *table(
                ("case", "server", "compared with", "× by the clock", "× by CPU time"),
                (
                    (case, server, peer, *(f"{ratio:.2f}" for ratio in self.ratio(case, peer, server=server)))
                    for case, server, peer in self._compared()
                ),
                texts=3,
            ),
            "",
            *self._remarks(),
        ]
        return "\n".join(lines) + "\n"

    def _remarks(self) -> list[str]:
        answers = sum(int(numbers["requests"]) for _, numbers in self.runs)
        if self.wrong:
            return [f"WRONG: {len(self.wrong)} of {answers:,} answers. The first: {self.wrong[0]}"]
        lines = [f"{answers:,} answers checked."]
        if self.disturbed:
            share = f"less than {DISTURBED_SERVER:.0%} of a core for {self.disturbed}"
            lines += ["", f"Disturbed: {share}, so CPU times decide. Run it again on an idle machine."]
        limited = self._servers(lambda numbers: numbers["load_busy"] >= BUSY_LOAD)
        if limited:
            lines += ["", f"The load had no time to spare against {limited}: a faster load might show more."]
        return lines

    def _servers(self, condition: Callable[[dict[str, float]], bool]) -> str:
        """Name the servers with a case whose medians fulfil `condition`."""
        return ", ".join(dict.fromkeys(server for (server, _), numbers in self.medians.items() if condition(numbers)))


def _row(server: str, case: str, numbers: dict[str, float]) -> list[str]:
    latency = f"{numbers['p50_ms']:.2f} / {numbers['p99_ms']:.2f} / {numbers['p999_ms']:.2f}"
    rate, cpu = f"{numbers['requests_per_second']:,.0f}", f"{numbers['cpu_us_per_request']:.0f}"
    return [server, case, rate, cpu, latency, f"{numbers['resident_mib']:.0f}"]
