"""Drives a gateway with the official `mcp` client of 1.x and prints what it saw as one JSON object.

Usage: handshake_python1.py URL REPLICA-URL, with the Python of an environment that has mcp 1.x. It prints the line
`restart` when the test should restart the replicas, and continues after a line on its standard input.
"""

# mypy: ignore-errors
# The type checker sees 2.x, which is installed in its environment.

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from mcp import ClientSession, McpError, types
from mcp.client.streamable_http import streamable_http_client

ANSWERS = {"name": "Ada", "color": "green", "confirm": True}
WATCHES = 2
"""How often this client tries to open a stream to listen to."""


class Watcher:
    """The requests of a client, and the messages that it received.

    Attributes:
        requests: what was sent, and once there is a response its status and the replica that it came from.
        ids: the ids of the requests that were sent, by their method; the last one each.
    """

    def __init__(self) -> None:
        self.requests: list[list[Any]] = []
        self.questions: list[str] = []
        self.logs: list[Any] = []
        self.ids: dict[str, Any] = {}
        self.hooks = {"request": [self.note_request], "response": [self.note_response]}

    async def note_request(self, request: httpx.Request) -> None:
        what = request.method
        if what == "POST":
            message = json.loads(request.content)
            what = message.get("method", "answer")
            self.ids[what] = message.get("id")
        request.extensions["noted"] = [what]
        self.requests.append(request.extensions["noted"])

    async def note_response(self, response: httpx.Response) -> None:
        response.request.extensions["noted"] += [response.status_code, response.headers["x-gateway-replica"]]

    async def watched(self) -> None:
        """Wait until the client has given up opening a stream to listen to, as those requests come at any time."""
        while sum(request[0] == "GET" for request in self.requests) < WATCHES:  # noqa: ASYNC110 - the client does not say
            await asyncio.sleep(0.05)
        await self.settled()

    async def settled(self) -> None:
        """Wait until every request has its response."""
        while any(len(request) == 1 for request in self.requests):  # noqa: ASYNC110 - the client does not say
            await asyncio.sleep(0.05)

    async def answer(self, context: Any, params: Any) -> Any:
        self.questions.append(params.message)
        (name,) = params.requestedSchema["properties"]
        return types.ElicitResult(action="accept", content={name: ANSWERS[name]})

    async def sample(self, context: Any, params: Any) -> Any:
        content = types.TextContent(type="text", text="Hello,")
        return types.CreateMessageResult(role="assistant", content=content, model="none")

    async def roots(self, context: Any) -> Any:
        return types.ListRootsResult(roots=[types.Root(uri="file:///tmp")])

    async def log(self, params: Any) -> None:
        self.logs.append(params.data)


@asynccontextmanager
async def connected(url: str, watcher: Watcher) -> AsyncIterator[Any]:
    """Open a session, and end it afterwards."""
    async with (
        httpx.AsyncClient(event_hooks=watcher.hooks, timeout=30) as http_client,
        streamable_http_client(url, http_client=http_client) as (read_stream, write_stream, _),
        ClientSession(
            read_stream,
            write_stream,
            elicitation_callback=watcher.answer,
            sampling_callback=watcher.sample,
            list_roots_callback=watcher.roots,
            logging_callback=watcher.log,
        ) as session,
    ):
        yield session


async def drive(url: str, replica_url: str) -> dict[str, Any]:
    """Use every feature as a client does, and return what it saw."""
    watcher = Watcher()
    told: list[list[float | None]] = []

    async def note_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append([progress, total])

    async with connected(url, watcher) as session:
        begun = await session.initialize()
        await watcher.watched()
        await session.set_logging_level("info")

        async def call(name: str, arguments: dict[str, Any] | None = None, **options: Any) -> str:
            return text_of(await session.call_tool(name, arguments, **options))

        saw = {
            "protocol": begun.protocolVersion,
            "text": await call("test_simple_text"),
            "structured": (await session.call_tool("add", {"numbers": [1, 2, 39]})).structuredContent,
            "unknown_prompt": await code_of(session.get_prompt("nobody")),
            "unknown_resource": await code_of(session.read_resource("test://nowhere")),
            "slow": await call("test_tool_with_progress", progress_callback=note_progress),
            "logged": await call("test_tool_with_logging"),
            "asked": await call("test_input_required_result_multi_round"),
            "asked_at_once": await call("test_input_required_result_multiple_inputs"),
            "task": await run_task(session),
        }
        await restart()
        saw["after_restart"] = await call("test_simple_text")
        saw["asked_after_restart"] = await call("test_input_required_result_elicitation")
        await watcher.settled()
    return {
        **saw,
        "cancelled": await cancel(replica_url),
        "progress": told,
        "questions": watcher.questions,
        "logs": watcher.logs,
        "requests": watcher.requests,
    }


async def run_task(session: Any) -> list[str]:
    """Have a tool run as a task that asks the user, and return its states and its result."""
    tasks = session.experimental
    created = (await tasks.call_tool_as_task("confirm_delete", {"filename": "notes.txt"})).task
    states = [created.status]
    async for task in tasks.poll_task(created.taskId):
        if task.status == "input_required":
            break
    result = await tasks.get_task_result(created.taskId, types.CallToolResult)
    ended = await tasks.get_task(created.taskId)
    return [*states, task.status, ended.status, text_of(result)]


async def cancel(url: str) -> bool:
    """Cancel a running call and return whether it ended here; other tests check the tool's side."""
    watcher = Watcher()
    begun = asyncio.Event()

    async def note_progress(progress: float, total: float | None, message: str | None) -> None:
        begun.set()

    async with connected(url, watcher) as session:
        await session.initialize()
        call = asyncio.create_task(session.call_tool("hold", progress_callback=note_progress))
        await begun.wait()
        # This client leaves the cancellation to its user.
        params = types.CancelledNotificationParams(requestId=watcher.ids["tools/call"])
        await session.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))
        call.cancel()
        await asyncio.wait([call])
        await session.send_ping()
    return call.cancelled()


async def code_of(request: Any) -> int | None:
    """Return the code of the error that a request ends in."""
    try:
        await request
    except McpError as error:
        return int(error.error.code)
    return None


async def restart() -> None:
    """Have the replicas restarted."""
    sys.stdout.write("restart\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)


def text_of(result: Any) -> str:
    """The text blocks of a result, joined."""
    return "".join(block.text for block in result.content)


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # of tasks, which 2.x does without
    sys.stdout.write(json.dumps(asyncio.run(drive(*sys.argv[1:]))) + "\n")
