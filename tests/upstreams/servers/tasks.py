"""A server of 2025-11-25 with a tool that it runs only as a task of its own ("Tasks"), and a record of these tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.upstreams.servers.earlier import OFFERED, Params, text
from tests.upstreams.servers.plain_http import Exchange
from tests.upstreams.servers.session import InSessions, Open

TASKS: Mapping[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
STUDY = {"name": "study", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}


@dataclass
class Task:
    """A task, and in which session it was created."""

    session: str
    arguments: Params
    token: Any
    status: str = "working"


@dataclass
class WithTasks(InSessions):
    """The server.

    Attributes:
        tasks: all tasks, by id.
        holds_creation: whether the answer that names a task waits for the gate.
        task_id: names each task in that answer, instead of its own id.
    """

    offered: Mapping[str, Any] = field(default_factory=lambda: {**OFFERED, "tasks": TASKS})
    tasks: dict[str, Task] = field(default_factory=dict)
    holds_creation: bool = False
    task_id: Any = None

    async def _of(self, message: Any, params: Params) -> dict[str, Any]:
        if message["method"] == "tools/list" and "cursor" not in params:
            page = await super()._of(message, params)
            return {**page, "nextCursor": "more"}
        if message["method"] == "tools/list":
            return {"tools": [STUDY]}
        if message["method"] == "tasks/cancel":
            self.tasks[params["taskId"]].status = "cancelled"
            return {"taskId": params["taskId"], "status": "cancelled"}
        return await super()._of(message, params)

    async def _answered(self, exchange: Exchange, message: Any, name: str) -> None:
        if message["method"] == "tasks/result":
            await self._finished(exchange, message, name)
        else:
            await super()._answered(exchange, message, name)

    async def _study(self, exchange: Exchange, message: Any, _session: Open, arguments: Params) -> None:
        params = message["params"]
        if "task" not in params:
            self._end(exchange, message, text("study requires task augmentation", isError=True))
            return
        task_id = f"t-{len(self.tasks) + 1}"
        token = params.get("_meta", {}).get("progressToken")
        self.tasks[task_id] = Task(exchange.header("mcp-session-id") or "", arguments, token)
        if self.holds_creation:
            self.begun.set()
            await self.gate.wait()
        created = {"taskId": task_id if self.task_id is None else self.task_id, "status": "working", **params["task"]}
        self._end(exchange, message, {"task": created})

    async def _finished(self, exchange: Exchange, message: Any, name: str) -> None:
        """Report and ask on the stream of the request, and end it with the result of its task."""
        task_id = message["params"]["taskId"]
        task = self.tasks[task_id]
        assert task.session == name
        related = {"io.modelcontextprotocol/related-task": {"taskId": task_id}}
        for method, params in (
            ("progress", {"progressToken": task.token, "progress": 1, "_meta": related}),
            ("message", {"level": "warning", "data": "studying", "_meta": related}),
            ("tasks/status", {"taskId": task_id, "status": "working", "_meta": related}),
        ):
            exchange.event({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params})
        if task.arguments.get("asks"):
            self.answered.clear()
            exchange.event({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {"_meta": related}})
            await self.answered.wait()
        self.begun.set()
        if task.arguments.get("waits"):
            await self.gate.wait()
        task.status = "completed"
        self._end(exchange, message, text(f"studied {task.arguments.get('subject')}", _meta=related))
