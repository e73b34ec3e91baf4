"""A client of the released wire that sends each leg of a call to the next replica."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from gateway.auth.tokens import mint
from loadtest.cluster import Replica, wait_until
from tests.wires.draft.deployment import AUDIENCE, SECRET

META = "io.modelcontextprotocol"
VERSION = "2026-07-28"
ANSWERS = {"start": {"start": "Harwich"}, "end": {"end": "Esbjerg"}}


class Calling:
    """Sends requests.

    Args:
        metas: additions to `_meta` in the first leg, the second, and so on.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        *metas: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        tasks: bool = True,
    ) -> None:
        self._turn = itertools.cycle(replicas)
        self._metas = iter(metas)
        self._headers = headers or {}
        extensions: dict[str, Any] = {"io.modelcontextprotocol/tasks": {}} if tasks else {}
        self._capabilities = {"elicitation": {"form": {}}, "extensions": extensions}

    def post(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        meta = {
            f"{META}/protocolVersion": VERSION,
            f"{META}/clientCapabilities": self._capabilities,
            **next(self._metas, {}),
        }
        headers = {
            "accept": "application/json, text/event-stream",
            "authorization": f"Bearer {mint(SECRET, 'ada', AUDIENCE)}",
            "mcp-protocol-version": VERSION,
            "mcp-method": method,
            "mcp-name": str(params.get("name") or params.get("taskId", "")),
            **self._headers,
        }
        body = {"jsonrpc": "2.0", "id": "request-7", "method": method, "params": {**params, "_meta": meta}}
        told: dict[str, Any] = httpx.post(
            next(self._turn).url, json=body, headers=headers, timeout=30, verify=False
        ).json()
        return told

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool until it ends; return its result, or the error."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        while True:
            told = self.post("tools/call", params)
            result: dict[str, Any] = told.get("result", told)
            if result.get("resultType") == "task":
                return self._task(str(result["taskId"]))
            if result.get("resultType") != "input_required":
                return result
            answers = {key: {"action": "accept", "content": ANSWERS[key]} for key in result.get("inputRequests", {})}
            params |= {"requestState": result["requestState"], "inputResponses": answers}

    def text(self, tool: str, **arguments: Any) -> str:
        """Call a tool until it ends; return the text of its result."""
        return str(self.call(tool, **arguments)["content"][0]["text"])

    def _task(self, task_id: str) -> dict[str, Any]:
        def get() -> dict[str, Any]:
            told: dict[str, Any] = self.post("tasks/get", {"taskId": task_id})["result"]
            return told

        wait_until(lambda: get()["status"] == "completed", "the end of the task")
        result: dict[str, Any] = get()["result"]
        return result
