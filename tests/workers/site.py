"""A whole site as real processes: a store, one replica, and workers; and a client that speaks the tasks extension."""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import httpx

from tests.integration.fleet import REPOSITORY, Fleet, clean_environment, wait_until
from tests.storage.servers import Server

EXTENSION = "io.modelcontextprotocol/tasks"
META = "io.modelcontextprotocol"
VERSION = "2026-07-28"
STOP_SECONDS = 20.0


class WorkerProcess:
    """One `gateway worker`."""

    def __init__(self, name: str, environ: dict[str, str], log_path: Path, *options: str) -> None:
        self.name = name
        self.log_path = log_path
        with log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gateway", "worker", "--worker-id", name, *options],
                cwd=REPOSITORY,
                env=clean_environment({"GATEWAY_LOG_FORMAT": "json", **environ}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def logged(self, message: str) -> list[dict[str, Any]]:
        lines = [line for line in self.log_text().splitlines() if line.startswith("{")]
        return [record for record in map(json.loads, lines) if record.get("message") == message]

    def wait_working(self) -> None:
        wait_until(lambda: bool(self.logged("working")) or self.process.poll() is not None, "a worker")
        assert self.process.poll() is None, self.log_text()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(STOP_SECONDS)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()

    def metric(self, line: str) -> float:
        (record,) = self.logged("metrics")
        with urllib.request.urlopen(record["url"]) as response:
            found = re.search(rf"^{re.escape(line)} (\S+)$", response.read().decode(), re.MULTILINE)
        return float(found[1]) if found else 0.0


class Site:
    """A store, replicas (one unless named), and the workers that a test starts. Leaves no process behind."""

    def __init__(self, directory: Path, server: Server, *replicas: str, **settings: str) -> None:
        self.directory = directory
        self.server = server
        self.environ = {
            "GATEWAY_TOOLS": "tests.workers.tools",
            "GATEWAY_REDIS_URL": server.url,
            "GATEWAY_TASK_LEASE_SECONDS": "30",
            "GATEWAY_TASK_PARTITIONS": "2",
            "TEST_DIRECTORY": str(directory),
            **settings,
        }
        self.fleet = Fleet(directory, self.environ, names=replicas or ["r1"])
        self.workers: list[WorkerProcess] = []
        self._ids = itertools.count(1)
        self._http = httpx.Client(timeout=30)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._http)
        self._stack.enter_context(self.fleet)
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.stop()
        self._stack.close()

    def worker(self, name: str, *options: str, **settings: str) -> WorkerProcess:
        """Start one more worker, and wait until it works."""
        environ = {**self.fleet.environ, **settings}
        worker = WorkerProcess(name, environ, self.directory / f"{name}-{len(self.workers)}.log", *options)
        self.workers.append(worker)
        worker.wait_working()
        return worker

    def post(self, method: str, params: dict[str, Any], replica: int = 0) -> httpx.Response:
        """Send a request of a client that knows tasks and forms."""
        name = params.get("name") or params["taskId"]
        capabilities: dict[str, Any] = {"elicitation": {"form": {}}, "extensions": {EXTENSION: {}}}
        meta = {f"{META}/protocolVersion": VERSION, f"{META}/clientCapabilities": capabilities}
        return self._http.post(
            self.fleet.replicas[replica].url,
            json={"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**params, "_meta": meta}},
            headers={
                "accept": "application/json, text/event-stream",
                "mcp-protocol-version": VERSION,
                "mcp-method": method,
                "mcp-name": name,
            },
        )

    def request(self, method: str, params: dict[str, Any], replica: int = 0) -> dict[str, Any]:
        """Send a request, and return its result."""
        body: dict[str, Any] = self.post(method, params, replica).json()
        assert "result" in body, body
        result: dict[str, Any] = body["result"]
        return result

    def create(self, tool: str, **arguments: Any) -> str:
        """Call a tool that becomes a task, and return the task's id."""
        created = self.request("tools/call", {"name": tool, "arguments": arguments})
        assert created["resultType"] == "task", created
        return str(created["taskId"])

    def get(self, task_id: str) -> dict[str, Any]:
        return self.request("tasks/get", {"taskId": task_id})

    def wait_for(self, task_id: str, status: str) -> dict[str, Any]:
        """Poll until the task has a status."""
        wait_until(lambda: self.get(task_id)["status"] == status, f"a task that is {status}")
        return self.get(task_id)

    def text(self, task_id: str) -> str:
        """Wait until the task is completed, and return the text of its result."""
        result = self.wait_for(task_id, "completed")["result"]
        return "\n".join(block["text"] for block in result["content"])

    def answer(self, task_id: str, key: str, replica: int = 0, **content: Any) -> None:
        response = {"action": "accept", "content": content}
        self.request("tasks/update", {"taskId": task_id, "inputResponses": {key: response}}, replica)

    def open(self, gate: str = "gate") -> None:
        """Let the tools go on that wait for a gate."""
        (self.directory / gate).touch()

    def lines(self, name: str) -> list[str]:
        """Return what tools have noted under a name."""
        path = self.directory / name
        return path.read_text().splitlines() if path.exists() else []

    def wait_for_line(self, name: str, count: int = 1) -> list[str]:
        wait_until(lambda: len(self.lines(name)) >= count, f"{count} lines in {name}")
        return self.lines(name)


def let_pass(seconds: float) -> None:
    """Let a lease run out: the store's clock has no other hands."""
    time.sleep(seconds)
