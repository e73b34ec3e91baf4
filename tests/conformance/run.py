"""`make conformance`: the official suite against real replicas behind the round-robin front of `gateway dev`.

Every scenario of the 2026-07-28 wire runs against two replicas that answer in turn. What one process alone can do,
telling its own list changes to its own listeners, runs once more against one replica. The suite calls a scenario good
that has looked at nothing, and forgives warnings; here every check of `CHECKS` has to be there and to pass, and the
gateway's log may hold no traceback.

Exit codes: 0 all passed, 1 something did not, 2 the suite or the gateway could not be started.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

TOP: Final = Path(__file__).resolve().parents[2]
PEERS: Final = TOP / ".venvs" / "node"
RESULTS: Final = TOP / "reports" / "conformance"
FIXTURES: Final = "tests.conformance.fixtures"
VERSION: Final = "2026-07-28"

START_SECONDS: Final = 40.0
STOP_SECONDS: Final = 15.0
SUITE_SECONDS: Final = 300.0
POLL_SECONDS: Final = 0.05

CHECKS: Final = {
    "server-stateless": 30,
    "completion-complete": 2,
    "tools-list": 4,
    "tools-call-simple-text": 2,
    "tools-call-image": 2,
    "tools-call-audio": 2,
    "tools-call-embedded-resource": 2,
    "tools-call-mixed-content": 2,
    "tools-call-error": 2,
    "tools-call-with-progress": 2,
    "json-schema-2020-12": 8,
    "server-sse-multiple-streams": 1,
    "resources-list": 2,
    "resources-read-text": 2,
    "resources-read-binary": 2,
    "resources-templates-read": 2,
    "sep-2164-resource-not-found": 4,
    "prompts-list": 2,
    "prompts-get-simple": 2,
    "prompts-get-with-args": 2,
    "prompts-get-embedded-resource": 2,
    "prompts-get-with-image": 2,
    "dns-rebinding-protection": 2,
    "caching": 8,
    "http-header-validation": 14,
    "http-custom-header-server-validation": 10,
    "input-required-result-basic-elicitation": 3,
    "input-required-result-basic-sampling": 3,
    "input-required-result-basic-list-roots": 3,
    "input-required-result-request-state": 3,
    "input-required-result-multiple-input-requests": 3,
    "input-required-result-multi-round": 4,
    "input-required-result-missing-input-response": 2,
    "input-required-result-non-tool-request": 3,
    "input-required-result-result-type": 2,
    "input-required-result-unsupported-methods": 2,
    "input-required-result-tampered-state": 2,
    "input-required-result-capability-check": 2,
    "input-required-result-ignore-extra-params": 2,
    "input-required-result-validate-input": 3,
}
"""Scenario → how many checks it reports when it finds all that it looks for. All scenarios of the version, the pending
ones included; extensions are not on its timeline."""

ONE_PROCESS: Final = ("server-stateless",)
"""The scenarios that also run against one replica."""

ACROSS_PROCESSES: Final = {
    "sep-2575-server-sends-prompts-list-changed-on-subscription": "no notifications/prompts/list_changed arrived",
    "sep-2575-server-sends-tools-list-changed-on-subscription": "no notifications/tools/list_changed arrived",
}
"""Checks that one process alone passes, and how the suite words its warning: the listener is on one replica, and what
changes the list on the other. They may warn like this against two replicas, and must pass against one."""


class CannotRunError(Exception):
    """The suite or the gateway does not start. The message says which, and what to do."""


@dataclass
class Verdict:
    """What a scenario came to.

    Attributes:
        scenario: its name.
        replicas: how many replicas it ran against.
        passed: checks that passed.
        excused: warnings that `ACROSS_PROCESSES` allows.
        problems: everything else, a line each.
    """

    scenario: str
    replicas: int
    passed: int = 0
    excused: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def counts(self) -> Counter[str]:
        """The problems by kind."""
        return Counter(problem.split(" ", 1)[0] for problem in self.problems)


def judge(scenario: str, replicas: int, checks: Sequence[dict[str, Any]]) -> Verdict:
    """Judge the checks that the suite wrote down for a scenario; INFO rows say nothing about the server."""
    verdict = Verdict(scenario, replicas)
    for check in checks:
        status, name = check["status"], check["id"]
        if status == "SUCCESS":
            verdict.passed += 1
            continue
        reason = " ".join(str(check.get("errorMessage") or check.get("description", "")).split())
        if status == "WARNING" and replicas > 1 and ACROSS_PROCESSES.get(name, reason + "?") in reason:
            verdict.excused += 1
        elif status != "INFO":
            verdict.problems.append(f"{status} {name}: {reason}")
    looked_at = verdict.passed + verdict.excused + len(verdict.problems)
    if looked_at < CHECKS[scenario]:
        verdict.problems.append(f"MISSING {CHECKS[scenario] - looked_at} of its {CHECKS[scenario]} checks did not run")
    return verdict


def judge_log(replicas: int, text: str) -> list[Verdict]:
    """Judge what the gateway logged while the suite ran: nothing that the suite does may make it stumble."""
    if "Traceback (most recent call last)" not in text:
        return []
    return [Verdict("gateway.log", replicas, problems=[f"TRACEBACK in reports/conformance/{_folder(replicas)}"])]


@contextmanager
def gateway(replicas: int, log: Path) -> Iterator[str]:
    """Run `gateway dev` with the fixtures and yield its URL; it is gone afterwards, and its replicas with it."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")} | {
        "GATEWAY_TOOLS": FIXTURES,
        "GATEWAY_AUTH": "none",
        "GATEWAY_METRICS_PORT": "off",
        "GATEWAY_DRAIN_SECONDS": "5",
        "PYTHONPATH": str(TOP),
    }
    command = [sys.executable, "-m", "gateway", "dev", "--replicas", str(replicas), "--port", "0"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=TOP, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield _wait_ready(process, log)
    finally:
        _stop(process)


def _wait_ready(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        ready = re.search(r"ready on (\S+)", log.read_text(errors="replace"))
        if ready:
            return ready[1]
        time.sleep(POLL_SECONDS)
    raise CannotRunError(f"`gateway dev` did not start:\n{log.read_text(errors='replace')[-3000:].strip()}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a process that stops its own children when asked to; a second signal makes it hurry."""
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                continue


def run_suite(url: str, replicas: int, scenario: str | None, folder: Path) -> list[Verdict]:
    """Run one scenario of the suite, or all of the version, and judge what it wrote down."""
    node, suite = PEERS / "bin" / "node", PEERS / "node_modules" / ".bin" / "conformance"
    if not (node.exists() and suite.exists()):
        raise CannotRunError("the suite is not installed: start it with `make conformance`")
    chosen = ["--suite", "all"] if scenario is None else ["--scenario", scenario]
    command = [str(node), str(suite), "server", "--url", url, *chosen]
    command += ["--spec-version", VERSION, "--output-dir", str(folder)]
    with (folder / "suite.log").open("wb") as output:
        try:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=SUITE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            output.write(f"\nstopped after {SUITE_SECONDS:g} seconds\n".encode())
    results = read_results(folder)
    unknown = results.keys() - CHECKS.keys()
    if unknown:
        raise CannotRunError(f"the suite has scenarios that CHECKS does not know: {', '.join(sorted(unknown))}")
    return [judge(name, replicas, results.get(name, [])) for name in ([scenario] if scenario else CHECKS)]


def read_results(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Read the checks of each scenario that the suite saved, one folder each, named by scenario and time."""
    results = {}
    for file in sorted(folder.glob("server-*/checks.json")):
        (scenario,) = re.findall(r"^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$", file.parent.name)
        results[scenario] = json.loads(file.read_text())
    return results


def run_leg(replicas: int, scenarios: Sequence[str | None]) -> list[Verdict]:
    """Run scenarios against a gateway of their own; the suite's results and both logs stay in `reports/`."""
    folder = RESULTS / _folder(replicas)
    folder.mkdir(parents=True)
    log = folder / "gateway.log"
    with gateway(replicas, log) as url:
        verdicts = [verdict for scenario in scenarios for verdict in run_suite(url, replicas, scenario, folder)]
    return verdicts + judge_log(replicas, log.read_text(errors="replace"))


def _folder(replicas: int) -> str:
    return "one-replica" if replicas == 1 else f"{replicas}-replicas"


def show(verdicts: Sequence[Verdict]) -> str:
    """Return the table, the problems, and the totals."""
    width = max(len(verdict.scenario) for verdict in verdicts)
    lines = [f"{'scenario':<{width}}  replicas  passed  failed  warnings  other"]
    for verdict in verdicts:
        counts = verdict.counts
        other = counts.total() - counts["FAILURE"] - counts["WARNING"]
        excused = f"  {verdict.excused} excused: they need one process" if verdict.excused else ""
        lines.append(
            f"{verdict.scenario:<{width}}  {verdict.replicas:>8}  {verdict.passed:>6}  {counts['FAILURE']:>6}"
            f"  {counts['WARNING']:>8}  {other:>5}{excused}"
        )
        lines += [f"    {problem}" for problem in verdict.problems]
    total: Counter[str] = sum((verdict.counts for verdict in verdicts), Counter())
    passed = sum(verdict.passed for verdict in verdicts)
    rest = {kind: count for kind, count in total.items() if kind not in {"FAILURE", "WARNING"}}
    lines.append(
        f"\n{passed} checks passed, {total['FAILURE']} failed, {total['WARNING']} warnings"
        + "".join(f", {count} {kind.lower()}" for kind, count in sorted(rest.items()))
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both legs, or one scenario in both; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", choices=sorted(CHECKS), metavar="NAME", help="run only this scenario")
    scenario = parser.parse_args(arguments).scenario
    shutil.rmtree(RESULTS, ignore_errors=True)
    try:
        verdicts = run_leg(2, [scenario])
        alone = [name for name in ONE_PROCESS if scenario in {None, name}]
        if alone:
            verdicts += run_leg(1, alone)
    except CannotRunError as error:
        sys.stderr.write(f"conformance: {error}\n")
        return 2
    sys.stdout.write(show(verdicts) + "\n")
    return 1 if any(verdict.problems for verdict in verdicts) else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # what was started is stopped then too
    sys.exit(main())
