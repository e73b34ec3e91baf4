"""The report of a benchmark: medians of rounds as a Markdown table, ratios and a verdict; all numbers as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench.load import Measurement

OURS, SDK, RAW = "ours", "mcp SDK", "raw ASGI"
CASES = ("echo", "first leg", "retry leg")
MUST_BE_TIMES_SDK = 2.0
BUSY_LOAD = 0.97
"""From this share of its core on, the load may have been the limit and not the server."""
DISTURBED_SERVER = 0.9
"""Below this share of its core, a server was not the limit: something else ran on this machine, or the load was it."""


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

    def __init__(self, runs: list[Run], *, rounds: int, seconds: float, connections: int) -> None:
        self.rounds, self.seconds, self.connections = rounds, seconds, connections
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

    def markdown(self) -> str:
        """The report for people."""
        lines = [
            "# Benchmark",
            "",
            f"Medians of {self.rounds} interleaved rounds of {self.seconds:g} s each, {self.connections} keep-alive "
            f"connections, server on one core and load on another. Python {platform.python_version()}.",
            "",
            "| server | case | req/s | CPU µs a request | p50 / p99 / p99.9 ms | memory MiB |",
            "|---|---|---:|---:|---:|---:|",
            *[_row(server, case, numbers) for (server, case), numbers in self.medians.items()],
            "",
            f"| ours | × {RAW} | × {SDK} | × {SDK}, by CPU |",
            "|---|---:|---:|---:|",
            *[_ratio_row(case, self.ratios(case)) for case in CASES],
            "",
            *self._verdict(),
        ]
        return "\n".join(lines) + "\n"

    def write(self, folder: Path) -> None:
        """Write `bench.md` and `bench.json` into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "bench.md").write_text(self.markdown())
        document: dict[str, Any] = {
            "rounds": self.rounds,
            "seconds": self.seconds,
            "connections": self.connections,
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "medians": [
                {"server": server, "case": case, **numbers} for (server, case), numbers in self.medians.items()
            ],
            "ratios": {case: self.ratios(case)._asdict() for case in CASES},
            "runs": [
                {"server": run.server, "case": run.case, "round": run.round, **numbers} for run, numbers in self.runs
            ],
            "wrong": self.wrong[:100],
        }
        (folder / "bench.json").write_text(json.dumps(document, indent=2) + "\n")

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


def _row(server: str, case: str, numbers: dict[str, float]) -> str:
    latency = f"{numbers['p50_ms']:.2f} / {numbers['p99_ms']:.2f} / {numbers['p999_ms']:.2f}"
    return (
        f"| {server} | {case} | {numbers['requests_per_second']:,.0f} | {numbers['cpu_us_per_request']:.0f} "
        f"| {latency} | {numbers['resident_mib']:.0f} |"
    )


def _ratio_row(case: str, ratios: Ratios) -> str:
    return f"| {case} | {ratios.raw:.2f} | {ratios.sdk:.2f} | {ratios.sdk_by_cpu:.2f} |"
