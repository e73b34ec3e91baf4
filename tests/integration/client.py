"""The real `mcp` client against a fleet, with a load balancer in its HTTP client that records who served."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import httpx2
import mcp_types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from pydantic import FileUrl

from tests.integration.fleet import Fleet

Answers = Mapping[str, Mapping[str, Any]]
Hook = Callable[[str], Awaitable[None]]
RecorderT = TypeVar("RecorderT", bound="Recorder")


@dataclass(frozen=True)
class Served:
    """One request as the balancer saw it: the call, and the replica that says it has served it."""

    target: str
    replica: str
    status: int


class Recorder(httpx2.AsyncBaseTransport):
    """Sends each request over its own connection, and records who served it."""

    def __init__(self) -> None:
        self._inner = httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_keepalive_connections=0))
        self.served: list[Served] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.route(request)
        response = await self._inner.handle_async_request(request)
        target = request.headers.get("mcp-name", request.headers.get("mcp-method", ""))
        self.served.append(Served(target, response.headers["x-gateway-replica"], response.status_code))
        return response

    def route(self, request: httpx2.Request) -> None:
        """Choose the replica of a request; here, the one that it names."""

    def legs(self, tool: str) -> list[str]:
        """Return the replicas that served the legs of a tool's calls, in order."""
        return [served.replica for served in self.served if served.target == tool]

    async def aclose(self) -> None:
        await self._inner.aclose()


class RoundRobin(Recorder):
    """Sends each request to the next live replica."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self._fleet = fleet
        self._turn = 0

    def route(self, request: httpx2.Request) -> None:
        """Send a request to the next replica."""
        host, port = self._next()
        request.url = request.url.copy_with(host=host, port=port)
        request.headers["host"] = f"{host}:{port}"

    def _next(self) -> tuple[str, int]:
        for _ in self._fleet.replicas:
            replica = self._fleet.replicas[self._turn % len(self._fleet.replicas)]
            self._turn += 1
            if replica.alive:
                return replica.address
        raise AssertionError("no replica is alive")

    def turn_to(self, name: str) -> None:
        """Give the next request to this replica."""
        self._turn = [replica.name for replica in self._fleet.replicas].index(name)


@dataclass
class Connection(Generic[RecorderT]):
    """A client that is connected."""

    client: Client
    balancer: RecorderT

    async def call(self, tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Call a tool; return the text of its result and whether it is an error."""
        result = await self.client.call_tool(tool, arguments)
        assert isinstance(result, mcp_types.CallToolResult)
        (block,) = result.content
        assert isinstance(block, mcp_types.TextContent)
        return block.text, bool(result.is_error)


@contextlib.asynccontextmanager
async def connect(
    fleet: Fleet,
    answers: Answers,
    *,
    token: str | None = None,
    before_answer: Hook | None = None,
    roots: Sequence[str] = (),
) -> AsyncIterator[Connection[RoundRobin]]:
    """Connect the real client to a fleet.

    Args:
        answers: for a form with this property, its content.
        before_answer: is awaited with the property's name before each answer is given.
        roots: the directories that the client declares and names, as URIs.
    """
    balancer = RoundRobin(fleet)
    async with _connect("http://fleet.test/mcp", balancer, answers, token, before_answer, roots=roots) as connection:
        yield connection


@contextlib.asynccontextmanager
async def connect_to_url(
    url: str, answers: Answers, *, before_answer: Hook | None = None
) -> AsyncIterator[Connection[Recorder]]:
    """Connect the real client to an address that balances the load itself."""
    async with _connect(url, Recorder(), answers, None, before_answer) as connection:
        yield connection


@contextlib.asynccontextmanager
async def _connect(
    url: str,
    recorder: RecorderT,
    answers: Answers,
    token: str | None,
    before_answer: Hook | None,
    *,
    roots: Sequence[str] = (),
) -> AsyncIterator[Connection[RecorderT]]:
    async def name_roots(context: object) -> mcp_types.ListRootsResult:
        return mcp_types.ListRootsResult(roots=[mcp_types.Root(uri=FileUrl(uri)) for uri in roots])

    async def elicit(context: object, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        assert isinstance(params, mcp_types.ElicitRequestFormParams)
        (name,) = params.requested_schema["properties"]
        if before_answer is not None:
            await before_answer(name)
        return mcp_types.ElicitResult(action="accept", content=dict(answers[name]))

    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(transport=recorder, headers=headers, timeout=30) as http_client:
        transport = streamable_http_client(url, http_client=http_client)
        asked = name_roots if roots else None
        async with Client(transport, elicitation_callback=elicit, list_roots_callback=asked) as client:
            yield Connection(client, recorder)
