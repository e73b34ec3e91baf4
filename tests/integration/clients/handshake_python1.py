"""Drives a gateway with the official `mcp` client of 1.x.

Usage: -m tests.integration.clients.handshake_python1 URL REPLICA-URL, with a Python that has mcp 1.x.
"""

# mypy: ignore-errors
# The type checker sees 2.x, which is installed in its environment.

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from mcp import ClientSession, McpError, types
from mcp.client.streamable_http import streamable_http_client

from tests.integration.clients.handshake import Driver, Watcher, text_of


async def sample(context: Any, params: Any) -> Any:
    content = types.TextContent(type="text", text="Hello,")
    return types.CreateMessageResult(role="assistant", content=content, model="none")


async def roots(context: Any) -> Any:
    return types.ListRootsResult(roots=[types.Root(uri="file:///tmp")])


class Python1(Driver):
    refusal = McpError

    @asynccontextmanager
    async def connected(self, url: str, watcher: Watcher) -> AsyncIterator[Any]:
        async def answer(context: Any, params: Any) -> Any:
            content = watcher.answer_to(params.message, params.requestedSchema["properties"])
            return types.ElicitResult(action="accept", content=content)

        async with (
            httpx.AsyncClient(event_hooks=watcher.hooks, timeout=30) as http_client,
            streamable_http_client(url, http_client=http_client) as (read_stream, write_stream, _),
            ClientSession(
                read_stream,
                write_stream,
                elicitation_callback=answer,
                sampling_callback=sample,
                list_roots_callback=roots,
                logging_callback=watcher.log,
            ) as session,
        ):
            watcher.protocol = (await session.initialize()).protocolVersion
            yield session

    def structured(self, result: Any) -> Any:
        return result.structuredContent

    async def leave(self, client: Any, watcher: Watcher) -> None:
        params = types.CancelledNotificationParams(requestId=watcher.ids["tools/call"])
        await client.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))

    async def run_task(self, client: Any) -> dict[str, Any]:
        tasks = client.experimental
        created = (await tasks.call_tool_as_task("confirm_delete", {"filename": "notes.txt"})).task
        states = [created.status]
        async for task in tasks.poll_task(created.taskId):
            if task.status == "input_required":
                break
        result = await tasks.get_task_result(created.taskId, types.CallToolResult)
        ended = await tasks.get_task(created.taskId)
        return {"task": [*states, task.status, ended.status, text_of(result)]}


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # of tasks, which 2.x does without
    Python1().main()
