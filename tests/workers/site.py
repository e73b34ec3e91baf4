"""A whole site as real processes: a store, one replica, and workers; and a client that speaks the tasks extension."""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack
from copy import copy
from pathlib import Path
from typing import Any, Self

import httpx

from gateway.auth.tokens import mint
from loadtest.cluster import Worker, wait_until
from tests.integration.fleet import Fleet
from tests.storage.servers import Server

EXTENSION = "io.modelcontextprotocol/tasks"
META = "io.modelcontextprotocol"
VERSION = "2026-07-28"


class Site:
    """A store, replicas (one by default), and the workers that a test starts. Leaves no process behind."""

    def __init__(self, directory: Path, server: Server, *replicas: str, **settings: str) -> None:
        self.directory = directory
        self.server = server
        self.environ = {
            "GATEWAY_TOOLS": "tests.workers.tools",
            "GATEWAY_REDIS_URL": server.url,
            "GATEWAY_TASK_LEASE_SECONDS": "30",
            "GATEWAY_TASK_PARTITIONS": "2",
            "GATEWAY_TOOL_HEADERS": "x-tenant",
            "TEST_DIRECTORY": str(directory),
            **settings,
        }
        names = replicas or ("r1",)
        self.fleet = Fleet(directory, self.environ, names=names)
        self.replicas = self.fleet.replicas
        self._ids = itertools.count(1)
        self._http = _client()
        self._stack = ExitStack()
        self._headers: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._stack.enter_context(self._http)
        self._stack.enter_context(self.fleet)
        return self

    def __exit__(self, *_: object) -> None:
        """End everything. Workers end at once, because their tasks may wait for a gate that nobody opens any more."""
        for worker in self.fleet.workers:
            worker.end()
        self._stack.close()

    def joined(self, directory: Path) -> Self:
        """Return a site with the replicas and the store of this one, but its own files and workers.

        Only workers run the tools that write notes, so replicas need not know the directory.
        """
        joined = copy(self)
        joined.directory = directory
        joined.fleet = Fleet(directory, {**self.fleet.environ, "TEST_DIRECTORY": str(directory)}, names=())
        joined._http, joined._stack = _client(), ExitStack()
        return joined

    def forget_tasks(self) -> None:
        """Empty the store, except for what its processes have agreed on. No worker may run."""
        names = self.server.ask("KEYS", "*")
        assert isinstance(names, list)
        tasks = [name.decode() for name in names if not name.endswith((b":partitions", b":owners"))]
        if tasks:
            self.server.ask("DEL", *tasks)

    def as_user(self, secret: str, user: str) -> Self:
        """Return this site as one user sees it, for replicas that know users by this secret."""
        return self.sending(authorization=f"Bearer {mint(secret, user, 'tests')}")

    def sending(self, **headers: str) -> Self:
        """Return this site as a client sees it that sends these headers, their names with underscores."""
        seen = copy(self)
        seen._headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return seen

    def worker(self, name: str, *options: str, **settings: str) -> Worker:
        """Start another worker, and wait until it works."""
        return self.fleet.add_worker(name, *options, **settings)

    def post(self, method: str, params: dict[str, Any], replica: int = 0) -> httpx.Response:
        """Send a request as a client that supports tasks and forms."""
        name = params.get("name") or params["taskId"]
        capabilities: dict[str, Any] = {"elicitation": {"form": {}}, "extensions": {EXTENSION: {}}}
        meta = {f"{META}/protocolVersion": VERSION, f"{META}/clientCapabilities": capabilities}
        return self._http.post(
            self.replicas[replica].url,
            json={"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**params, "_meta": meta}},
            headers={
                "accept": "application/json, text/event-stream",
                "mcp-protocol-version": VERSION,
                "mcp-method": method,
                "mcp-name": name,
                **self._headers,
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
        """Let the tools that wait for a gate continue."""
        (self.directory / gate).touch()

    def lines(self, name: str) -> list[str]:
        """Return the notes of tools under a name."""
        path = self.directory / name
        return path.read_text().splitlines() if path.exists() else []

    def wait_for_line(self, name: str, count: int = 1) -> list[str]:
        wait_until(lambda: len(self.lines(name)) >= count, f"{count} lines in {name}")
        return self.lines(name)


def _client() -> httpx.Client:
    return httpx.Client(timeout=30, verify=False)


def let_pass(seconds: float) -> None:
    """Let a lease run out. The store's clock cannot be moved, so this takes real time."""
    time.sleep(seconds)
