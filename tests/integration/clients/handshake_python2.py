"""Drives a gateway with the official `mcp` client of 2.x in a session, and prints what it saw as one JSON object.

Usage: handshake_python2.py URL REPLICA-URL. It prints the line `restart` when the test should restart the
replicas, and continues after a line on its standard input. This client has no tasks on this wire.
"""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import mcp_types
from mcp import MCPError
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

ANSWERS = {"name": "Ada", "color": "green"}
WATCHES = 2
"""How often this client tries to open a stream to listen to."""


class Watcher:
    """The requests of a client, and the messages that it received.

    Attributes:
        requests: what was sent, and once there is a response its status and the replica that it came from.
    """

    def __init__(self) -> None:
        self.requests: list[list[Any]] = []
        self.questions: list[str] = []
        self.logs: list[Any] = []
        self.hooks: dict[str, list[Any]] = {"request": [self.note_request], "response": [self.note_response]}

    async def note_request(self, request: httpx2.Request) -> None:
        what = json.loads(request.content).get("method", "answer") if request.method == "POST" else request.method
        request.extensions["noted"] = [what]
        self.requests.append(request.extensions["noted"])

    async def note_response(self, response: httpx2.Response) -> None:
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

    async def answer(self, context: Any, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        assert isinstance(params, mcp_types.ElicitRequestFormParams)
        self.questions.append(params.message)
        (name,) = params.requested_schema["properties"]
        return mcp_types.ElicitResult(action="accept", content={name: ANSWERS[name]})

    async def sample(self, context: Any, params: Any) -> mcp_types.CreateMessageResult:
        content = mcp_types.TextContent(type="text", text="Hello,")
        return mcp_types.CreateMessageResult(role="assistant", content=content, model="none")

    async def roots(self, context: Any) -> mcp_types.ListRootsResult:
        return mcp_types.ListRootsResult(roots=[mcp_types.Root.model_validate({"uri": "file:///tmp"})])

    async def log(self, params: mcp_types.LoggingMessageNotificationParams) -> None:
        self.logs.append(params.data)


@asynccontextmanager
async def connected(url: str, watcher: Watcher) -> AsyncIterator[Client]:
    """Open a session, and end it afterwards."""
    async with (
        httpx2.AsyncClient(event_hooks=watcher.hooks, timeout=30) as http_client,
        Client(
            streamable_http_client(url, http_client=http_client),
            mode="legacy",
            elicitation_callback=watcher.answer,
            sampling_callback=watcher.sample,
            list_roots_callback=watcher.roots,
            logging_callback=watcher.log,
        ) as client,
    ):
        yield client


async def drive(url: str, replica_url: str) -> dict[str, Any]:
    """Use every feature as a client does, and return what it saw."""
    watcher = Watcher()
    told: list[list[float | None]] = []

    async def note_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append([progress, total])

    async with connected(url, watcher) as client:
        await watcher.watched()
        await client.set_logging_level("info")

        async def call(name: str, **options: Any) -> str:
            return text_of(await client.call_tool(name, **options))

        saw = {
            "protocol": client.protocol_version,
            "text": await call("test_simple_text"),
            "structured": (await client.call_tool("add", {"numbers": [1, 2, 39]})).structured_content,
            "unknown_prompt": await code_of(client.get_prompt("nobody")),
            "unknown_resource": await code_of(client.read_resource("test://nowhere")),
            "slow": await call("test_tool_with_progress", progress_callback=note_progress),
            "logged": await call("test_tool_with_logging"),
            "asked": await call("test_input_required_result_multi_round"),
            "asked_at_once": await call("test_input_required_result_multiple_inputs"),
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


async def cancel(url: str) -> bool:
    """Cancel a running call and return whether it ended here; other tests check the tool's side."""
    watcher = Watcher()
    begun = asyncio.Event()

    async def note_progress(progress: float, total: float | None, message: str | None) -> None:
        begun.set()

    async with connected(url, watcher) as client:
        call = asyncio.create_task(client.call_tool("hold", progress_callback=note_progress))
        await begun.wait()
        call.cancel()
        await asyncio.wait([call])
        await client.send_ping()
    return call.cancelled()


async def code_of(request: Awaitable[Any]) -> int | None:
    """Return the code of the error that a request ends in."""
    try:
        await request
    except MCPError as error:
        return error.error.code
    return None


async def restart() -> None:
    """Have the replicas restarted."""
    sys.stdout.write("restart\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)


def text_of(result: mcp_types.CallToolResult) -> str:
    """The text blocks of a result, joined."""
    return "".join(block.text for block in result.content if isinstance(block, mcp_types.TextContent))


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # what the newest wire does without
    sys.stdout.write(json.dumps(asyncio.run(drive(*sys.argv[1:]))) + "\n")
