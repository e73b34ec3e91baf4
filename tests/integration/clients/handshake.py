"""What the drivers of the official Python clients with sessions share, for each version of `mcp`.

A driver prints what it saw as one JSON object. It prints the line `restart` when the test should restart the replicas,
and continues after a line on its standard input.
"""

from __future__ import annotations

import abc
import asyncio
import json
import sys
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar

ANSWERS = {"name": "Ada", "color": "green", "confirm": True}
WATCHES = 2
"""How often these clients try to open a stream to listen to."""


class Watcher:
    """The requests of a client, and the messages that it received.

    Attributes:
        requests: what was sent, and once there is a response its status and the replica that it came from.
        ids: the ids of the requests that were sent, by their method; the last one each.
    """

    def __init__(self) -> None:
        self.protocol = ""
        self.requests: list[list[Any]] = []
        self.questions: list[str] = []
        self.logs: list[Any] = []
        self.ids: dict[str, Any] = {}
        self.hooks: dict[str, list[Any]] = {"request": [self.note_request], "response": [self.note_response]}

    async def note_request(self, request: Any) -> None:
        what = request.method
        if what == "POST":
            message = json.loads(request.content)
            what = message.get("method", "answer")
            self.ids[what] = message.get("id")
        request.extensions["noted"] = [what]
        self.requests.append(request.extensions["noted"])

    async def note_response(self, response: Any) -> None:
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

    def answer_to(self, message: str, properties: Any) -> dict[str, Any]:
        """Return the content of a form with one field."""
        self.questions.append(message)
        (name,) = properties
        return {name: ANSWERS[name]}

    async def log(self, params: Any) -> None:
        self.logs.append(params.data)


class Driver(abc.ABC):
    """Uses every feature as a client does."""

    refusal: ClassVar[type[Exception]]

    @abc.abstractmethod
    def connected(self, url: str, watcher: Watcher) -> AbstractAsyncContextManager[Any]:
        """Open a session, note its protocol version, and end it afterwards."""

    @abc.abstractmethod
    def structured(self, result: Any) -> Any: ...

    @abc.abstractmethod
    async def leave(self, client: Any, watcher: Watcher) -> None:
        """Notify the server before a call is cancelled, if the client does not."""

    async def run_task(self, client: Any) -> dict[str, Any]:
        """Have a tool run as a task, if the client has tasks on this wire, and return what it saw."""
        return {}

    async def drive(self, url: str, replica_url: str) -> dict[str, Any]:
        """Use every feature, and return what the client saw."""
        watcher = Watcher()
        told: list[list[float | None]] = []

        async def note_progress(progress: float, total: float | None, message: str | None) -> None:
            told.append([progress, total])

        async with self.connected(url, watcher) as client:
            await watcher.watched()
            await client.set_logging_level("info")

            async def call(name: str, **options: Any) -> str:
                return text_of(await client.call_tool(name, **options))

            saw = {
                "protocol": watcher.protocol,
                "text": await call("test_simple_text"),
                "structured": self.structured(await client.call_tool("add", {"numbers": [1, 2, 39]})),
                "unknown_prompt": await self.code_of(client.get_prompt("nobody")),
                "unknown_resource": await self.code_of(client.read_resource("test://nowhere")),
                "slow": await call("test_tool_with_progress", progress_callback=note_progress),
                "logged": await call("test_tool_with_logging"),
                "asked": await call("test_input_required_result_multi_round"),
                "asked_at_once": await call("test_input_required_result_multiple_inputs"),
                **await self.run_task(client),
            }
            sys.stdout.write("restart\n")
            sys.stdout.flush()
            await asyncio.to_thread(sys.stdin.readline)
            saw["after_restart"] = await call("test_simple_text")
            saw["asked_after_restart"] = await call("test_input_required_result_elicitation")
            await watcher.settled()
        return {
            **saw,
            "cancelled": await self.cancel(replica_url),
            "progress": told,
            "questions": watcher.questions,
            "logs": watcher.logs,
            "requests": watcher.requests,
        }

    async def cancel(self, url: str) -> bool:
        """Cancel a running call and return whether it ended here; other tests check the tool's side."""
        watcher = Watcher()
        begun = asyncio.Event()

        async def note_progress(progress: float, total: float | None, message: str | None) -> None:
            begun.set()

        async with self.connected(url, watcher) as client:
            call = asyncio.create_task(client.call_tool("hold", progress_callback=note_progress))
            await begun.wait()
            await self.leave(client, watcher)
            call.cancel()
            await asyncio.wait([call])
            await client.send_ping()
        return call.cancelled()

    async def code_of(self, request: Any) -> Any:
        """Return the code of the error that a request ends in."""
        try:
            await request
        except self.refusal as error:
            return vars(error)["error"].code
        return None

    def main(self) -> None:
        """Run as a command with both URLs as arguments."""
        sys.stdout.write(json.dumps(asyncio.run(self.drive(*sys.argv[1:]))) + "\n")


def text_of(result: Any) -> str:
    return "".join(block.text for block in result.content)
