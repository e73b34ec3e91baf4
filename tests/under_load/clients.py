"""Those who call: users with the real `mcp` client, who answer what they are asked, and a bare client of the wire."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import httpx
import httpx2
import mcp_types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.integration.client import Recorder
from tests.integration.raw import META, META_CAPABILITIES, headers_of, request, tool_call

NAME = {"name": "ada"}
"""What everybody answers."""

TASKS_META = {**META, META_CAPABILITIES: {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}}

PATIENCE_SECONDS = 40.0

Think = Callable[[str], Awaitable[None]]
"""Awaited with the message of a question before it is answered."""


async def until(condition: Callable[[], bool], what: str) -> None:
    """Poll until `condition` holds; the time limit only ends a test that has failed."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE_SECONDS:g} seconds for {what}")
        await asyncio.sleep(0.01)


@dataclass(frozen=True)
class Call:
    """One call, as its user saw it.

    Attributes:
        text: the text of its result.
        is_error: whether the result is an error.
        legs: the replicas that served it, in order.
        asked: message of each question → the replica that asked it, in order.
    """

    text: str
    is_error: bool
    legs: list[str]
    asked: list[tuple[str, str]]

    @property
    def messages(self) -> list[str]:
        """The messages of the questions, in order."""
        return [message for message, _ in self.asked]


@dataclass
class User:
    """Somebody with the real client, who makes one call after the other.

    Attributes:
        client: the client.
        recorder: knows which replica served each request.
        asked: what they were asked so far, and by which replica.
    """

    client: Client
    recorder: Recorder
    asked: list[tuple[str, str]]

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> Call:
        """Call a tool and answer what it asks."""
        legs, asked = len(self.recorder.legs(tool)), len(self.asked)
        result = await self.client.call_tool(tool, dict(arguments or {}))
        assert isinstance(result, mcp_types.CallToolResult)
        (block,) = result.content
        assert isinstance(block, mcp_types.TextContent)
        return Call(block.text, bool(result.is_error), self.recorder.legs(tool)[legs:], self.asked[asked:])


async def answer_at_once(_message: str) -> None:
    """Think about nothing."""


class Resending(Recorder):
    """Sends a request again whose reply broke off: of a replica that is killed, the legs in flight need that."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Forward one request, until its reply is complete."""
        while True:
            response = await super().handle_async_request(request)
            if response.headers.get("content-type") != "application/json":
                return response
            try:
                await response.aread()
            except httpx2.RemoteProtocolError:
                self.served.pop()
            else:
                return response


@contextlib.asynccontextmanager
async def connect(url: str, think: Think = answer_at_once, *, resends: bool = False) -> AsyncIterator[User]:
    """Connect the real client.

    Args:
        url: where to.
        think: awaited before each answer.
        resends: whether a request is sent again whose reply broke off.
    """
    recorder = Resending() if resends else Recorder()
    asked: list[tuple[str, str]] = []

    async def elicit(context: object, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        asked.append((params.message, recorder.served[-1].replica))
        await think(params.message)
        return mcp_types.ElicitResult(action="accept", content=dict(NAME))

    async with httpx2.AsyncClient(transport=recorder, timeout=PATIENCE_SECONDS) as http_client:
        transport = streamable_http_client(url, http_client=http_client)
        async with Client(transport, elicitation_callback=elicit) as client:
            yield User(client, recorder, asked)


class WireFailure(AssertionError):
    """A response that the released wire does not have for a call that goes well."""


@dataclass
class WireClient:
    """A client that speaks the released wire and nothing else, over connections that stay open.

    Args:
        url: where to.
    """

    url: str

    async def __aenter__(self) -> Self:
        """Open."""
        # Without `verify=False` it would load all certificates of the machine, though no connection uses TLS.
        self._http = httpx.AsyncClient(timeout=PATIENCE_SECONDS, trust_env=False, verify=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self._http.aclose()

    async def send(self, message: Mapping[str, Any], *, url: str | None = None) -> httpx.Response:
        """Send one request, once, to another address if one is given."""
        headers = {**headers_of(message), "accept": "application/json"}
        if "taskId" in message["params"]:
            headers["mcp-name"] = message["params"]["taskId"]
        return await self._http.post(url or self.url, json=message, headers=headers)

    async def result(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one request of a client that knows tasks, and return its result."""
        response = await self.send(request(method, {"_meta": TASKS_META, **params}))
        body: dict[str, Any] = response.json()
        if "result" not in body:
            raise WireFailure(f"{method} {params}: {response.status_code} {response.text}")
        result: dict[str, Any] = body["result"]
        return result

    async def task(self, task_id: str, status: str) -> dict[str, Any]:
        """Poll a task until it has a status, and return it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (task := await self.result("tasks/get", taskId=task_id))["status"] != status:
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {PATIENCE_SECONDS:g} seconds for a task that is {status}: {task}")
            await asyncio.sleep(0.02)
        return task

    async def call(self, tool: str, arguments: Mapping[str, Any], *, first: str | None = None) -> Call:
        """Call a tool and answer what it asks.

        Args:
            tool: its name.
            arguments: of the call.
            first: where the first leg goes, if that is another address.

        Raises:
            WireFailure: a response is not a result.
        """
        more: dict[str, Any] = {}
        legs: list[str] = []
        asked: list[tuple[str, str]] = []
        while True:
            response = await self.send(tool_call(tool, arguments, **more), url=None if legs else first)
            if response.status_code != 200 or "result" not in response.json():
                raise WireFailure(f"{tool} {arguments}: {response.status_code} {response.text}")
            legs.append(response.headers["x-gateway-replica"])
            result = response.json()["result"]
            if result["resultType"] == "complete":
                (block,) = result["content"]
                return Call(block["text"], result.get("isError", False), legs, asked)
            questions = result.get("inputRequests", {})
            asked += [(question["params"]["message"], legs[-1]) for question in questions.values()]
            answers = {key: {"action": "accept", "content": NAME} for key in questions}
            more = {"requestState": result["requestState"], **({"inputResponses": answers} if answers else {})}
