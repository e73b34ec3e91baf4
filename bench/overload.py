"""Overload: a replica that computes gets three times as many calls as it can do.

The replica has one core, the load another. Calls arrive at random times, whether or not others are done.
"""

from __future__ import annotations

import os
import platform
import random
import socket
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from bench import cases, servers
from bench.arrivals import PATIENCE_SECONDS, UNIT_MS, Call, Observed, making, observe, poisson
from bench.clients import Client, as_they_come
from bench.goals import Goal, Verdict
from bench.load import Exchange, measure
from bench.options import Options
from bench.report import DISTURBED_SERVER, Section
from bench.servers import Cores, Server
from bench.tables import table

SATURATING_CLIENTS = 8
"""The number of calls in flight that keeps the replica busy without any refusal."""
SETTLE_SECONDS = 3.0
"""Load before each measurement, as the adaptive limit needs a moment to settle."""
COMFORTABLE, OVERLOADED = 0.8, 3.0
"""Arrivals, as a multiple of the peak."""

TOOLS = {"GATEWAY_TOOLS": "gateway.demo"}
WITHOUT_ADMISSION = {"GATEWAY_MAX_INFLIGHT": "100000", "GATEWAY_QUEUE_TARGET_MS": "3600000"}
ONE_PLACE = {"GATEWAY_MAX_INFLIGHT": "1"}
REFUSED = b"HTTP/1.1 503 "

PEAK = f"{SATURATING_CLIENTS} clients that wait for their answers: the peak"
EASY = f"{COMFORTABLE:.0%} of the peak"
HARD = f"{OVERLOADED:g} × the peak"
HARD_WITHOUT = f"{OVERLOADED:g} × the peak, without admission control"
LOADS = (PEAK, EASY, HARD, HARD_WITHOUT)

GOODPUT_STAYS = Goal(f"calls done at {HARD}, share of the peak", 90, " %", at_least=True)
LATENCY_MAY_GROW = Goal(f"99th percentile of accepted calls at {HARD}, compared with {EASY}", 3)
REFUSAL_MAY_COST = Goal("CPU time of a refusal, compared with a raw ASGI reply", 1.3)


class Run(NamedTuple):
    """One load in one round."""

    load: str
    round: int
    observed: Observed
    server_busy: float


class Refusals(NamedTuple):
    """CPU time in microseconds of a refusal and of a raw ASGI reply, in one round."""

    round: int
    refusal_us: float
    raw_us: float


def section(options: Options, cores: Cores) -> Section:
    """Measure overload and sum it up.

    Raises:
        ServerError, LoadError, WrongAnswer: something cannot be measured.
    """
    os.sched_setaffinity(0, {cores.load})
    return summary(options, overload(options, cores), refusals(options, cores))


def overload(options: Options, cores: Cores) -> list[Run]:
    """Measure all loads round by round; each round finds its own peak."""
    runs: list[Run] = []
    environment = servers.production(**TOOLS)
    with servers.ours(cores, environment) as server:
        for round_number in range(options.rounds):
            _tell(f"round {round_number + 1} of {options.rounds}")
            run = partial(_run, server, round_number, options.seconds)
            peak = run(PEAK, None)
            runs += [peak, run(EASY, COMFORTABLE * peak.observed.goodput)]
            runs += [run(HARD, OVERLOADED * peak.observed.goodput)]
            with servers.ours(cores, environment | WITHOUT_ADMISSION) as defenceless:
                rate = OVERLOADED * peak.observed.goodput
                runs += [_run(defenceless, round_number, options.seconds, HARD_WITHOUT, rate)]
    return runs


def _run(server: Server, round_number: int, seconds: float, load: str, rate: float | None) -> Run:
    """Put one load on a server: `rate` arrivals per second, or for None clients that wait for their answers."""
    calls: list[Call] = []
    start = time.perf_counter()
    begin = start + SETTLE_SECONDS
    end = begin + seconds
    until = end + PATIENCE_SECONDS
    if rate is None:
        arrivals = ((start, _calling_on_end(server, calls, until)) for _ in range(SATURATING_CLIENTS))
    else:
        times = poisson(rate, start, until, random.Random(round_number))
        arrivals = ((when, _calling(server, calls, when)) for when in times)
    before = server.cpu_seconds()
    as_they_come(server.port, arrivals, until=until)
    busy = (server.cpu_seconds() - before) / (time.perf_counter() - start)
    return Run(load, round_number, observe(calls, begin, end), busy)


def _calling(server: Server, calls: list[Call], arrived: float) -> Client:
    calls.append(Call(arrived))
    yield from making(server, len(calls), calls[-1])


def _calling_on_end(server: Server, calls: list[Call], until: float) -> Client:
    """Make one call after the other."""
    while (now := time.perf_counter()) < until:
        yield from _calling(server, calls, now)


def refusals(options: Options, cores: Cores) -> list[Refusals]:
    """Measure a replica whose only place is taken, compared with the raw ASGI echo."""
    costs: list[Refusals] = []
    connections = options.connections
    with servers.raw_asgi(cores) as raw, servers.ours(cores, servers.production(**ONE_PLACE)) as server:
        for round_number in range(options.rounds):
            _tell(f"refusals, round {round_number + 1} of {options.rounds}")
            with _occupied(server):
                refusing = _refused_plans(server, connections)
                refusal_us = _cpu_us(server, refusing, options)
            costs.append(
                Refusals(
                    round_number,
                    refusal_us,
                    _cpu_us(raw, cases.fixed_plans(cases.Target(raw.port, [None] * connections)), options),
                )
            )
    return costs


def _cpu_us(server: Server, plans: Sequence[Sequence[Exchange]], options: Options) -> float:
    measured = measure(
        server.port,
        plans,
        warmup_seconds=options.warmup_seconds,
        seconds=options.seconds,
        server_cpu=server.cpu_seconds,
    )
    if measured.wrong:
        raise servers.ServerError(f"{server.name}: {measured.wrong[0]}")
    return measured.cpu_us_per_request


@contextmanager
def _occupied(server: Server) -> Iterator[None]:
    """Occupy the only place of a replica."""
    with socket.create_connection(("127.0.0.1", server.port)) as link:
        link.sendall(cases.call(server.port, 1, "hold", {}, token=server.token))
        deadline = time.monotonic() + servers.START_SECONDS
        while not _refuses(server):
            if time.monotonic() > deadline:
                raise servers.ServerError(f"{server.name} refuses nothing: {server.last_output()}")
        yield


def _refuses(server: Server) -> bool:
    with socket.create_connection(("127.0.0.1", server.port)) as probe:
        probe.sendall(cases.call(server.port, 1, "echo", {"text": "hello"}, token=server.token))
        return probe.recv(len(REFUSED)) == REFUSED


def _refused_plans(server: Server, connections: int) -> list[list[Exchange]]:
    return [
        [Exchange(exchange.request, _check_refused, head=REFUSED) for exchange in plan]
        for plan in cases.echo_plans(cases.Target(server.port, [server.token] * connections))
    ]


def _check_refused(body: bytes) -> str | None:
    return None if b'"code":-31001' in body else f"expected a refusal, got {body[:300]!r}"


def summary(options: Options, runs: Sequence[Run], costs: Sequence[Refusals]) -> Section:
    """Sum up the measurements."""
    medians = {load: _medians([run for run in runs if run.load == load]) for load in LOADS}
    refusal, raw = (statistics.median(column) for column in ([c.refusal_us for c in costs], [c.raw_us for c in costs]))
    verdicts = [_goodput(runs), _latency(medians), REFUSAL_MAY_COST.judge(refusal / raw)]
    lines = [
        "## Overload",
        "",
        f"Medians of {options.rounds} rounds of {options.seconds:g} s each, after {SETTLE_SECONDS:g} s of the same "
        f"load. Calls of a tool that computes for {UNIT_MS} ms arrive at random times (Poisson) at one replica, which "
        "has one core; the load has another. Latencies are those of calls that were not refused, from the time each "
        f"was meant to arrive. A call counts as done if its answer is right and arrives within {PATIENCE_SECONDS:g} s. "
        f"Python {platform.python_version()}.",
        "",
        *table(
            ("load", "arrivals/s", "done/s", "refused", "handed on a call", "p50 / p99 ms", "share of the core"),
            (_row(load, median) for load, median in medians.items()),
        ),
        "",
        *table(
            ("reply", "CPU µs"),
            (("a refusal of ours", f"{refusal:.1f}"), ("raw ASGI, also reads the body", f"{raw:.1f}")),
        ),
    ]
    if medians[PEAK]["server_busy"] < DISTURBED_SERVER:
        lines += ["", f"Disturbed: the peak was found with less than {DISTURBED_SERVER:.0%} of a core. Run it again."]
    document = {
        "rounds": options.rounds,
        "seconds": options.seconds,
        "medians": medians,
        "refusal_cpu_us": refusal,
        "raw_cpu_us": raw,
        "runs": [{"load": run.load, "round": run.round, **_numbers(run)} for run in runs],
        "refusals": [cost._asdict() for cost in costs],
    }
    return Section("overload", "replicas, `gateway serve`", "\n".join(lines) + "\n", document, verdicts)


def _numbers(run: Run) -> dict[str, float]:
    return {**run.observed._asdict(), "server_busy": run.server_busy}


def _medians(runs: Sequence[Run]) -> dict[str, float]:
    numbers = [_numbers(run) for run in runs]
    return {name: statistics.median(each[name] for each in numbers) for name in numbers[0]}


def _goodput(runs: Sequence[Run]) -> Verdict:
    """Judge each round by its own peak."""
    peaks = {run.round: run.observed.goodput for run in runs if run.load == PEAK}

    def kept(load: str) -> float:
        return statistics.median(run.observed.goodput / peaks[run.round] for run in runs if run.load == load)

    measured = f"{kept(HARD):.0%}; without admission control {kept(HARD_WITHOUT):.0%}"
    return GOODPUT_STAYS.judge(100 * kept(HARD), measured)


def _latency(medians: Mapping[str, Mapping[str, float]]) -> Verdict:
    easy, hard, without = (medians[load]["p99_ms"] for load in (EASY, HARD, HARD_WITHOUT))
    measured = f"{hard / easy:.1f} ×; without admission control {_at_least(without)}{without / easy:.1f} ×"
    return LATENCY_MAY_GROW.judge(hard / easy, measured)


def _row(load: str, median: Mapping[str, float]) -> list[str]:
    p50, p99 = (f"{_at_least(value)}{value:,.0f}" for value in (median["p50_ms"], median["p99_ms"]))
    rates = [f"{median['arrivals_per_second']:,.0f}", f"{median['goodput']:,.0f}"]
    shares = [f"{median['refused']:.0%}", f"{median['handed_on']:.2f}"]
    return [load, *rates, *shares, f"{p50} / {p99}", f"{median['server_busy']:.0%}"]


def _at_least(milliseconds: float) -> str:
    """Return the mark before a latency that may be longer."""
    return "≥ " if milliseconds >= PATIENCE_SECONDS * 1e3 else ""


def _tell(what: str) -> None:
    print(f"overload: {what}", file=sys.stderr, flush=True)
