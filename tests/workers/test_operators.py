"""`gateway status` and `gateway tasks` at a site of real processes."""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from loadtest.cluster import Replica, Worker, wait_until
from tests import forkserver
from tests.docs.markdown import blocks_of
from tests.workers.site import Site

ROOT = Path(__file__).parent.parent.parent
SECRET = "0123456789abcdef0123456789abcdef"


def run(site: Site, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the settings of the site's workers."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
    environ = {**inherited, **site.fleet.environ, "GATEWAY_AUDIT_LOG": "off", **settings, "PYTHONPATH": str(ROOT)}
    return forkserver.run([sys.executable, "-m", "gateway", *arguments], env=environ, cwd=ROOT)


def asked(site: Site, *arguments: str, **settings: str) -> Any:
    """Run a command that prints JSON, and return that."""
    result = run(site, *arguments, "--json", **settings)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def status_of(process: Replica | Worker, report: Mapping[str, Any]) -> dict[str, Any]:
    (found,) = (each for each in report["processes"] if each["process"] in process.metrics_url)
    return dict(found)


@pytest.mark.setting("redis_url")
def test_the_status_of_a_fleet_shows_its_processes_and_its_tasks(site: Site) -> None:
    worker = site.worker("w1", "--concurrency", "3")
    oldest = site.create("ask")
    site.wait_for(oldest, "input_required")
    running = site.create("wait")
    site.wait_for_line("started")
    urls = [process.metrics_url for process in (*site.replicas, worker)]

    wait_until(lambda: status_of(worker, asked(site, "status", "--metrics", *urls))["running"] == 1, "a task that runs")
    report = asked(site, "status", "--metrics", *urls)
    assert status_of(worker, report)["kind"] == "worker"
    assert status_of(worker, report)["places"] == 3
    replica = status_of(site.replicas[0], report)
    assert (replica["kind"], replica["running"], replica["held"]) == ("replica", 0, 0)
    assert replica["version"] == status_of(worker, report)["version"]
    assert replica["legs"] >= 2
    assert report["tasks"]["phases"] == {"queued": 0, "running": 1, "waiting": 1, "done": 0, "cancelled": 0}
    assert report["tasks"]["oldest"]["id"] == oldest

    text = run(site, "status", "--metrics", *urls)
    assert text.returncode == 0, text.stderr
    heading, *lines = text.stdout.splitlines()
    assert heading.split() == ["PROCESS", "KIND", "VERSION", "UP", "RUNNING", "HELD", "LEGS", "REFUSED"]
    assert any("  worker  " in line and "  1 of 3  " in line for line in lines)
    version = replica["version"]
    assert f"1 replica ({version}); 1 worker ({version})" in lines
    assert any(line.startswith("tasks: 0 queued, 1 running, 1 waiting, 0 done, 0 cancelled (Redis ") for line in lines)
    assert any(line.startswith(f"oldest unfinished task: {oldest} of ask, ") for line in lines)
    site.open()
    site.wait_for(running, "completed")


def test_the_commands_print_columns_and_lines_as_the_page_shows(site: Site) -> None:
    worker = site.worker("w1")
    task = site.create("wait")
    site.wait_for_line("started")
    urls = [process.metrics_url for process in (*site.replicas, worker)]
    printed = [run(site, "status", "--metrics", *urls), run(site, "tasks", "list", "--phase", "running")]
    printed.append(run(site, "tasks", "cancel", task))
    shown = [block.text for block in blocks_of("docs/run/operating.md") if block.language == "console"]
    shape = "\n".join(result.stdout for result in printed)
    assert _form("".join(line for code in shown for line in code.splitlines(True) if line[:1] != "$")) <= _form(shape)


def _form(text: str) -> set[str]:
    """Return the headings and the beginnings of the lines that are not about one process or task."""
    named = [line for line in text.splitlines() if re.match(r"[A-Z]{2}|tasks: |oldest |task ", line)]
    return {line if line[:2].isupper() else re.split(r"[ ,]", line)[0] for line in map(" ".join, map(str.split, named))}


def test_a_process_that_does_not_answer_is_named_and_the_others_are_shown(site: Site) -> None:
    url = site.replicas[0].metrics_url
    result = run(site, "status", "--metrics", url, "http://127.0.0.1:1", site.replicas[0].url)
    assert result.returncode == 1
    assert "127.0.0.1:1: Connection refused" in result.stdout.splitlines()
    assert "1 replica (" in result.stdout
    assert result.stderr == ""


def test_a_store_that_does_not_answer_is_named_and_the_processes_are_shown(site: Site) -> None:
    nowhere = "redis://127.0.0.1:1/0"
    result = run(site, "status", "--metrics", site.replicas[0].metrics_url, GATEWAY_REDIS_URL=nowhere)
    assert result.returncode == 1
    assert "1 replica (" in result.stdout
    assert "tasks: GATEWAY_REDIS_URL: the server does not answer (" in result.stdout
    result = run(site, "tasks", "list", GATEWAY_REDIS_URL=nowhere)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("gateway: GATEWAY_REDIS_URL: the server does not answer (")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.setting("metrics_host", "metrics_port", "redis_url")
def test_without_urls_the_metrics_of_this_machine_are_read_and_a_store_is_not_needed(site: Site) -> None:
    port = site.replicas[0].metrics_url.removesuffix("/metrics").rpartition(":")[2]
    for host in ("127.0.0.1", "0.0.0.0"):
        report = asked(
            site, "status", GATEWAY_METRICS_HOST=host, GATEWAY_METRICS_PORT=port, GATEWAY_REDIS_URL="", GATEWAY_TOOLS=""
        )
        assert [each["kind"] for each in report["processes"]] == ["replica"]
        assert report["tasks"] is None
    assert asked(site, "status", GATEWAY_METRICS_PORT="off")["processes"] == []


def test_tasks_of_all_callers_are_listed_without_anything_that_they_wrote(start_site: Any) -> None:
    site = start_site(GATEWAY_AUTH="jwt", GATEWAY_JWT_SECRET=SECRET)
    ann, bob = site.as_user(SECRET, "ann.secret"), site.as_user(SECRET, "bob.secret")
    worker = site.worker("w1")
    waiting = ann.create("ask")
    ann.wait_for(waiting, "input_required")
    running = bob.create("wait", gate="gate-secret")
    site.wait_for_line("started")

    rows = {row["id"]: row for row in asked(site, "tasks", "list")}
    assert list(rows) == [waiting, running]
    assert (rows[waiting]["phase"], rows[waiting]["open_questions"], rows[waiting]["worker"]) == ("waiting", 1, None)
    assert (rows[running]["phase"], rows[running]["tool"], rows[running]["worker"]) == ("running", "wait", "w1")
    assert rows[waiting]["owner"] != rows[running]["owner"]
    everything = run(site, "tasks", "list").stdout + json.dumps(rows) + run(site, "status").stdout
    assert "secret" not in everything
    assert "Who are you" not in everything

    def ids(*options: str) -> list[str]:
        return [row["id"] for row in asked(site, "tasks", "list", *options)]

    assert ids("--phase", "running") == [running]
    assert ids("--phase", "running", "--phase", "waiting") == [waiting, running]
    assert ids("--tool", "ask") == [waiting]
    assert ids("--owner", rows[running]["owner"][:12]) == [running]
    assert ids("--limit", "1") == [waiting]
    assert "the oldest 1 of 2 tasks" in run(site, "tasks", "list", "--limit", "1").stdout
    assert run(site, "tasks", "list", "--phase", "done").stdout == "no tasks\n"
    worker.end()


def test_an_operator_cancels_tasks_in_every_phase_and_the_audit_log_says_who(site: Site, tmp_path: Path) -> None:
    site.worker("w1", "--concurrency", "1")
    waiting = site.create("ask")
    site.wait_for(waiting, "input_required")
    running = site.create("wait")
    site.wait_for_line("started")
    queued = site.create("say", text="hello")
    audit = tmp_path / "operators.log"

    settings = {"GATEWAY_AUDIT_LOG": str(audit), "GATEWAY_AUDIT_LOG_REQUIRED": "on", "GATEWAY_LOG_FORMAT": "json"}
    result = run(site, "tasks", "cancel", waiting, running, queued, running, **settings)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [f"task {each}: cancelled" for each in (waiting, running, queued)]
    assert site.wait_for_line("cancelled") == ["w1"]
    for task in (waiting, running, queued):
        assert site.get(task)["status"] == "cancelled"

    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    cancelled = [(waiting, "ask", "waiting"), (running, "wait", "running"), (queued, "say", "queued")]
    assert [(line["task"], line["target"], line["phase"]) for line in lines] == cancelled
    me = pwd.getpwuid(os.getuid()).pw_name
    for line in lines:
        assert line["message"] == "operator changes a task"
        assert (line["audit"], line["method"]) == ("operator", "tasks/cancel")
        assert (line["operator"], len(line["owner"])) == (me, 64)


def test_nothing_is_cancelled_unless_each_task_can_be(site: Site, tmp_path: Path) -> None:
    site.worker("w1")
    done, waiting = site.create("say", text="hello"), site.create("ask")
    site.wait_for(done, "completed")
    site.wait_for(waiting, "input_required")
    audit = str(tmp_path / "operators.log")
    for task, reason in ((done, "it has already ended (done)"), ("no-such\x1b", "not found")):
        result = run(site, "tasks", "cancel", waiting, task, GATEWAY_AUDIT_LOG=audit)
        assert (result.returncode, result.stdout) == (1, "")
        assert f"gateway: task {task.replace(chr(27), '?')}: {reason}" in result.stderr
    assert site.get(waiting)["status"] == "input_required"
    assert not Path(audit).exists()


@pytest.mark.setting("audit_log", "audit_log_required")
def test_nothing_is_cancelled_without_a_line_if_lines_are_required(site: Site) -> None:
    site.worker("w1")
    waiting = site.create("ask")
    site.wait_for(waiting, "input_required")
    full = {"GATEWAY_AUDIT_LOG": "/dev/full"}
    result = run(site, "tasks", "cancel", waiting, **full, GATEWAY_AUDIT_LOG_REQUIRED="on")
    assert (result.returncode, result.stdout) == (1, "")
    assert "GATEWAY_AUDIT_LOG: it cannot be written, so nothing is cancelled" in result.stderr
    assert site.get(waiting)["status"] == "input_required"

    result = run(site, "tasks", "cancel", waiting, **full)
    assert result.returncode == 0
    assert "GATEWAY_AUDIT_LOG: it cannot be written, so this is not recorded" in result.stdout.splitlines()
    assert site.get(waiting)["status"] == "cancelled"


@pytest.mark.setting("redis_url")
@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("tasks list", "GATEWAY_REDIS_URL"),
        ("tasks list", "GATEWAY_SEAL_KEYS"),
        ("tasks list", "GATEWAY_AUDIENCE"),
        ("status", "GATEWAY_SEAL_KEYS"),
    ],
)
def test_tasks_need_the_settings_of_their_store_and_no_tools(site: Site, command: str, name: str) -> None:
    result = run(site, *command.split(), **{name: "", "GATEWAY_TOOLS": ""})
    assert result.returncode == 2
    assert result.stderr.startswith(f"gateway: {name}: not set")
    assert len(result.stderr.splitlines()) == 1
