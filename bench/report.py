"""The report of a benchmark: medians of rounds as a Markdown table, ratios and a verdict; all numbers as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

    def ratios(self, case: str) -> dict[str, float]:
        """How many times faster than the peers we are, from the medians; the last is of CPU time a request."""
        ours, sdk, raw = self.medians[OURS, case], self.medians[SDK, case], self.medians[RAW, "echo"]
        return {
            f"× {SDK}": ours["requests_per_second"] / sdk["requests_per_second"],
            f"× {RAW}": ours["requests_per_second"] / raw["requests_per_second"],
            f"× {SDK}, by CPU": sdk["cpu_us_per_request"] / ours["cpu_us_per_request"],
        }

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
            f"| ours | {' | '.join(self.ratios(CASES[0]))} |",
            "|---|---:|---:|---:|",
            *[f"| {case} | {' | '.join(f'{ratio:.2f}' for ratio in self.ratios(case).values())} |" for case in CASES],
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
            "ratios": {case: self.ratios(case) for case in CASES},
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
        slow = [case for case in CASES if self.ratios(case)[f"× {SDK}"] < MUST_BE_TIMES_SDK]
        verdict = f"BELOW the goal in: {', '.join(slow)}" if slow else "PASSED"
        goal = f"at least {MUST_BE_TIMES_SDK:g} × the {SDK} in every case"
        lines = [f"{verdict}. Goal: {goal}. {answers:,} answers checked."]
        limited = self._servers(lambda numbers: numbers["load_busy"] >= BUSY_LOAD)
        if limited:
            lines += ["", f"The load had no time to spare against {limited}: a faster load might show more."]
        disturbed = self._servers(lambda numbers: numbers["server_busy"] < DISTURBED_SERVER)
        if disturbed:
            lines += [
                "",
                f"Disturbed: less than {DISTURBED_SERVER:.0%} of a core for {disturbed}. Trust the CPU times.",
            ]
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
