"""`make conformance`: the official suite against real replicas behind the round-robin front of `gateway dev`.

Every scenario of the wires 2026-07-28 and 2025-11-25 runs against two replicas that answer in turn. The scenarios of
the tasks extension run against two replicas, one worker and the task store of `gateway dev`. All scenarios of both
wires run again for upstreams: against a server directly, and against two replicas with that server behind them, which
must pass everything that it passes directly. That of 2025-11-25 is behind them in sessions, and as a program. The suite
passes a scenario without checks, and ignores warnings; here every check of `CHECKS` must run and pass, and the
gateway's log must not have a traceback. The few exceptions are below, with the suite's words and the reason.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

TOP: Final = Path(__file__).resolve().parents[2]
PEERS: Final = TOP / ".venvs" / "node"
RESULTS: Final = TOP / "reports" / "conformance"
FIXTURES: Final = "tests.conformance.fixtures"
TASK_FIXTURES: Final = "tests.conformance.task_fixtures"
HANDSHAKE_FIXTURES: Final = "tests.conformance.handshake_fixtures"
SESSION_FIXTURES: Final = TOP / "tests" / "conformance" / "session_fixtures.mjs"
PYTHON: Final = (sys.executable,)
RELEASED: Final = "2026-07-28"
HANDSHAKE: Final = "2025-11-25"
DIRECTLY: Final = "upstream-directly"
THROUGH: Final = "upstream-through"
SESSION_DIRECTLY: Final = "session-directly"
SESSION_THROUGH: Final = "session-through"
PROGRAM_THROUGH: Final = "program-through"
COMPARED: Final[Mapping[str, Mapping[str, str]]] = {
    RELEASED: {DIRECTLY: "directly", THROUGH: "through 2 replicas"},
    HANDSHAKE: {
        SESSION_DIRECTLY: "directly",
        SESSION_THROUGH: "through 2 replicas",
        PROGRAM_THROUGH: "as a program through 2 replicas",
    },
}
"""The legs of upstreams on each wire, as their columns are called."""

START_SECONDS: Final = 40.0
STOP_SECONDS: Final = 15.0
SUITE_SECONDS: Final = 300.0
POLL_SECONDS: Final = 0.05

SHARED: Final = {
    "completion-complete": 2,
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
    "prompts-list": 2,
    "prompts-get-simple": 2,
    "prompts-get-with-args": 2,
    "prompts-get-embedded-resource": 2,
    "prompts-get-with-image": 2,
    "dns-rebinding-protection": 2,
}

CORE: Final = {
    **SHARED,
    "server-stateless": 30,
    "tools-list": 4,
    "sep-2164-resource-not-found": 4,
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
ones included."""

TASKS: Final = {
    "tasks-lifecycle": 9,
    "tasks-capability-negotiation": 5,
    "tasks-wire-fields": 4,
    "tasks-request-state-removal": 3,
    "tasks-mrtr-input": 4,
    "tasks-request-headers": 5,
    "tasks-dispatch-and-envelope": 9,
    "tasks-status-notifications": 1,
    "tasks-required-task-error": 3,
    "tasks-mrtr-composition": 2,
}
"""The same for the tasks extension, which is not on the version's timeline: the suite runs these by name only."""

SESSIONS: Final = {
    **SHARED,
    "server-initialize": 3,
    "server-session-lifecycle": 3,
    "logging-set-level": 2,
    "ping": 2,
    "tools-list": 3,
    "tools-call-with-logging": 2,
    "tools-call-sampling": 2,
    "tools-call-elicitation": 2,
    "elicitation-sep1034-defaults": 6,
    "server-sse-polling": 2,
    "elicitation-sep1330-enums": 6,
    "resources-subscribe": 2,
    "resources-unsubscribe": 2,
}
"""The same for the wire with a handshake."""

SUITES: Final = {RELEASED: CORE, HANDSHAKE: SESSIONS}
"""The scenarios that the suite runs when asked for all of a version."""

CHECKS: Final = {RELEASED: CORE | TASKS, HANDSHAKE: SESSIONS}
"""All scenarios of each wire."""

UNWRITTEN: Final = {"tasks-status-notifications": "The harness needs a rewrite against the new channel"}
"""Checks that the suite always skips, with its words. `tests/workers/test_listening.py` is our own test of the same."""

KEPT_NOWHERE: Final = {
    "server-session-delete-accepted": (
        "SKIPPED",
        "Server returned 405 Method Not Allowed; spec permits servers to refuse explicit DELETE.",
    ),
    "server-session-terminated-returns-404": (
        "SKIPPED",
        "Skipped because the server does not support explicit session termination (405 on DELETE).",
    ),
    "server-sse-priming-event": (
        "WARNING",
        "Server did not send priming event with id and empty data on POST SSE stream."
        " This is recommended for resumability.",
    ),
    "server-sse-retry-field": (
        "WARNING",
        "Server did not send retry field. This is recommended for controlling client reconnection timing.",
    ),
}
"""Checks of the wire with a handshake that a server without stored sessions and streams cannot pass, with the suite's
exact words. A session is a sealed token, so there is nothing to delete. No replica has the events that another one
sent, so a broken stream cannot be resumed, and event ids would promise that it can."""


class CannotRunError(Exception):
    """The suite or the gateway does not start. The message says which one, and what to do."""


@dataclass(frozen=True)
class Leg:
    """Scenarios, and the gateway that they run against.

    Attributes:
        scenarios: their names; None stands for all of the version.
        version: the wire that the suite speaks.
        upstream: a further server with the fixtures, which the replicas serve as an upstream under its own names.
            Without replicas, the suite calls it directly. A `stateless` one speaks 2026-07-28, the others 2025-11-25.
    """

    name: str
    scenarios: Sequence[str | None]
    replicas: int
    workers: int = 0
    tools: str = FIXTURES
    version: str = RELEASED
    upstream: Literal["stateless", "session", "program"] | None = None


@dataclass
class Verdict:
    """The result of a scenario.

    Attributes:
        leg: what it ran against.
        problems: what is wrong, a line each.
        excused: why checks need not pass that did not, once each.
    """

    scenario: str
    leg: Leg
    passed: int = 0
    problems: list[str] = field(default_factory=list)
    excused: list[str] = field(default_factory=list)

    @property
    def counts(self) -> Counter[str]:
        return Counter(problem.split(" ", 1)[0] for problem in self.problems)


def judge(scenario: str, leg: Leg, checks: Sequence[dict[str, Any]]) -> Verdict:
    """Judge the checks that the suite recorded for a scenario; INFO rows say nothing about the server."""
    verdict = Verdict(scenario, leg)
    for check in checks:
        status, name = check["status"], check["id"]
        if status == "SUCCESS":
            verdict.passed += 1
            continue
        reason = _reason(check)
        excuse = _excuse(status, name, reason, leg)
        if excuse is not None:
            verdict.excused.append(excuse)
        elif status != "INFO":
            verdict.problems.append(f"{status} {name}: {reason}")
    looked_at = verdict.passed + len(verdict.excused) + len(verdict.problems)
    expected = CHECKS[leg.version][scenario]
    if looked_at < expected:
        verdict.problems.append(f"MISSING {expected - looked_at} of its {expected} checks did not run")
    return verdict


def _reason(check: Mapping[str, Any]) -> str:
    """Return in one line why a check did not pass; by default its description."""
    told = check.get("errorMessage") or (check.get("details") or {}).get("message") or check.get("description", "")
    return " ".join(str(told).split())


def _excuse(status: str, name: str, reason: str, leg: Leg) -> str | None:
    """Return the reason why a check need not pass, or None if it must."""
    if leg.version == HANDSHAKE and KEPT_NOWHERE.get(name) == (status, reason):
        return "nothing is kept"
    if status == "SKIPPED" and name in UNWRITTEN and UNWRITTEN[name] in reason:
        return "the suite always skips it"
    return None


def judge_log(leg: Leg, text: str) -> list[Verdict]:
    """Judge the gateway's log of a run: the suite must not cause an internal error."""
    if "Traceback (most recent call last)" not in text:
        return []
    return [Verdict("gateway.log", leg, problems=[f"TRACEBACK in reports/conformance/{leg.name}"])]


@contextmanager
def gateway(leg: Leg, folder: Path) -> Iterator[str]:
    """Run the gateway of a leg, and the server behind it, and yield the gateway's URL; both end afterwards."""
    log = folder / "gateway.log"
    if leg.upstream is None:
        with _running(log, *_dev(leg), GATEWAY_TOOLS=leg.tools) as url:
            yield url
        return
    with _behind(leg, folder / "upstream.log") as entry:
        if not leg.replicas:
            log.touch()
            yield entry["url"]
            return
        file = folder / "upstreams.json"
        file.write_text(json.dumps({"mcpServers": {"behind": {**entry, "gateway": {"prefix": ""}}}}))
        with _running(log, *_dev(leg), GATEWAY_UPSTREAMS=str(file)) as through:
            yield through


@contextmanager
def _behind(leg: Leg, log: Path) -> Iterator[dict[str, Any]]:
    """Run the upstream of a leg if it does not begin with the replicas, and yield its entry."""
    node, *arguments = str(PEERS / "bin" / "node"), str(SESSION_FIXTURES), str(PEERS)
    if leg.upstream == "program":
        yield {"command": node, "args": [*arguments, "stdio"]}
        return
    command = (node, *arguments, "http") if leg.upstream == "session" else (*PYTHON, "-m", "tests.conformance.behind")
    with _running(log, *command) as url:
        yield {"url": url}


def _dev(leg: Leg) -> list[str]:
    replicas, workers = str(leg.replicas), str(leg.workers)
    return [*PYTHON, "-m", "gateway", "dev", "--port", "0", "--replicas", replicas, "--workers", workers]


@contextmanager
def _running(log: Path, *command: str, **settings: str) -> Iterator[str]:
    """Run a server and yield its URL; it ends afterwards, together with its replicas."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")} | {
        "GATEWAY_AUTH": "none",
        "GATEWAY_METRICS_PORT": "off",
        "GATEWAY_DRAIN_SECONDS": "5",
        "PYTHONPATH": str(TOP),
        **settings,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=TOP,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
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
    raise CannotRunError(f"the server did not start:\n{log.read_text(errors='replace')[-3000:].strip()}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a process that stops its own children when asked to; a second signal makes it hurry."""
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                continue


def run_suite(url: str, leg: Leg, scenario: str | None, folder: Path) -> list[Verdict]:
    """Run one scenario of the suite, or all of the version, and judge its results.

    Raises:
        CannotRunError: the suite is not installed, or has other scenarios than we know.
    """
    node, suite = PEERS / "bin" / "node", PEERS / "node_modules" / ".bin" / "conformance"
    if not (node.exists() and suite.exists()):
        raise CannotRunError("the suite is not installed: start it with `make conformance`")
    chosen = ["--suite", "all"] if scenario is None else ["--scenario", scenario, "--force"]
    command = [str(node), str(suite), "server", "--url", url, *chosen]
    command += ["--spec-version", leg.version, "--output-dir", str(folder)]
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
    unknown = results.keys() - CHECKS[leg.version].keys()
    if unknown:
        raise CannotRunError(f"the suite has scenarios that CHECKS does not know: {', '.join(sorted(unknown))}")
    return [judge(name, leg, results.get(name, [])) for name in ([scenario] if scenario else SUITES[leg.version])]


def read_results(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Read the checks of each scenario that the suite saved, one folder each, named by scenario and time."""
    results = {}
    for file in sorted(folder.glob("server-*/checks.json")):
        (scenario,) = re.findall(r"^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$", file.parent.name)
        results[scenario] = json.loads(file.read_text())
    return results


def run_leg(leg: Leg) -> list[Verdict]:
    """Run scenarios against their own gateway; the suite's results and both logs stay in `reports/`."""
    folder = RESULTS / leg.name
    folder.mkdir(parents=True)
    with gateway(leg, folder) as url:
        verdicts = [verdict for scenario in leg.scenarios for verdict in run_suite(url, leg, scenario, folder)]
    return verdicts + judge_log(leg, (folder / "gateway.log").read_text(errors="replace"))


def show(verdicts: Sequence[Verdict]) -> str:
    """Return the tables, the problems, and the totals."""
    compared = [verdict for verdict in verdicts if verdict.leg.upstream is not None]
    lines = _table([verdict for verdict in verdicts if verdict not in compared])
    for version, columns in COMPARED.items():
        of_version = [verdict for verdict in compared if verdict.leg.version == version]
        if of_version:
            lines += ["", *_columns(version, of_version, columns)]
    total: Counter[str] = sum((verdict.counts for verdict in verdicts), Counter())
    passed = sum(verdict.passed for verdict in verdicts)
    rest = {kind: count for kind, count in total.items() if kind not in {"FAILURE", "WARNING"}}
    lines.append(
        f"\n{passed} checks passed, {total['FAILURE']} failed, {total['WARNING']} warnings"
        + "".join(f", {count} {kind.lower()}" for kind, count in sorted(rest.items()))
    )
    return "\n".join(lines)


def _table(verdicts: Sequence[Verdict]) -> list[str]:
    width = max((len(verdict.scenario) for verdict in verdicts), default=0)
    lines = [f"{'scenario':<{width}}  wire        replicas  passed  failed  warnings  other"]
    for verdict in verdicts:
        counts = verdict.counts
        other = counts.total() - counts["FAILURE"] - counts["WARNING"]
        lines.append(
            f"{verdict.scenario:<{width}}  {verdict.leg.version}  {verdict.leg.replicas:>8}  {verdict.passed:>6}"
            f"  {counts['FAILURE']:>6}  {counts['WARNING']:>8}  {other:>5}{_excused(verdict)}"
        )
        lines += [f"    {problem}" for problem in verdict.problems]
    return lines


def _excused(verdict: Verdict) -> str:
    return "".join(f"  {count} excused: {why}" for why, count in Counter(verdict.excused).items())


def _columns(version: str, verdicts: Sequence[Verdict], columns: Mapping[str, str]) -> list[str]:
    """Return what passes at an upstream directly, beside what passes through the gateway in front of it."""
    rows = dict.fromkeys(verdict.scenario for verdict in verdicts)
    found = {(verdict.scenario, verdict.leg.name): verdict for verdict in verdicts}
    width = max(len(scenario) for scenario in rows)
    lines = [f"{'scenario of ' + version:<{width}}  {'  '.join(columns.values())}"]
    for scenario in rows:
        row = [(title, found.get((scenario, leg))) for leg, title in columns.items()]
        cells = "  ".join(f"{'' if verdict is None else verdict.passed:>{len(title)}}" for title, verdict in row)
        *_, last = (verdict for _, verdict in row if verdict is not None)
        lines.append(f"{scenario:<{width}}  {cells}{_excused(last)}")
        lines += [f"    {verdict.leg.name}: {problem}" for _, verdict in row if verdict for problem in verdict.problems]
    return lines


def plan(scenario: str | None) -> list[Leg]:
    """Return the legs of all scenarios, or of one on each wire that has it."""

    def chosen(names: Iterable[str]) -> list[str | None]:
        return [name for name in names if scenario in {None, name}]

    everything = [None] if scenario is None else chosen(CORE)
    in_sessions = [None] if scenario is None else chosen(SESSIONS)
    legs = [
        Leg("2-replicas", everything, replicas=2),
        Leg("tasks", chosen(TASKS), replicas=2, workers=1, tools=TASK_FIXTURES),
        Leg(
            "handshake",
            in_sessions,
            replicas=2,
            tools=f"{FIXTURES},{HANDSHAKE_FIXTURES}",
            version=HANDSHAKE,
        ),
        Leg(DIRECTLY, everything, replicas=0, upstream="stateless"),
        Leg(THROUGH, everything, replicas=2, upstream="stateless"),
        Leg(SESSION_DIRECTLY, in_sessions, replicas=0, version=HANDSHAKE, upstream="session"),
        Leg(SESSION_THROUGH, in_sessions, replicas=2, version=HANDSHAKE, upstream="session"),
        Leg(PROGRAM_THROUGH, in_sessions, replicas=2, version=HANDSHAKE, upstream="program"),
    ]
    return [leg for leg in legs if leg.scenarios]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all legs, or one scenario wherever it belongs; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted(set().union(*CHECKS.values()))
    parser.add_argument("--scenario", choices=names, metavar="NAME", help="run only this scenario")
    scenario = parser.parse_args(arguments).scenario
    shutil.rmtree(RESULTS, ignore_errors=True)
    try:
        verdicts = [verdict for leg in plan(scenario) for verdict in run_leg(leg)]
    except CannotRunError as error:
        sys.stderr.write(f"conformance: {error}\n")
        return 2
    sys.stdout.write(show(verdicts) + "\n")
    return 1 if any(verdict.problems for verdict in verdicts) else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))  # this stops started processes too
    sys.exit(main())
