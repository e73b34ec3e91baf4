"""A real server of the `mcp` SDK 2, with a tool of each way to ask.

`Resolve` works in both eras; a tool that returns an `InputRequiredResult` works only stateless; one that awaits
`ctx.elicit` works only in a session.
"""

from __future__ import annotations

import threading
from typing import Annotated, Self

import uvicorn
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel

from loadtest.cluster import wait_until

server = MCPServer("sdk2", version="2.0.0", log_level="WARNING", instructions="The SDK's own words.")


class Name(BaseModel):
    name: str


class Colour(BaseModel):
    colour: str


async def who() -> Elicit[Name]:
    return Elicit("What is your name?", Name)


async def colour(name: Annotated[Name, Resolve(who)]) -> Elicit[Colour]:
    return Elicit(f"Your colour, {name.name}?", Colour)


@server.tool()
async def echo(text: str) -> str:
    """Say the text again."""
    return text


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def resolved(name: Annotated[Name, Resolve(who)]) -> str:
    """Greet the user, who is asked before the tool runs."""
    return f"Hello, {name.name}!"


@server.tool()
async def resolved_twice(name: Annotated[Name, Resolve(who)], paint: Annotated[Colour, Resolve(colour)]) -> str:
    """Ask two questions; the second depends on the first."""
    return f"{name.name} likes {paint.colour}"


@server.tool(structured_output=False)
async def returned(ctx: Context) -> str | InputRequiredResult:
    """Greet the user, who is asked by a result."""
    answer = (ctx.input_responses or {}).get("name")
    if isinstance(answer, ElicitResult) and answer.action == "accept" and answer.content is not None:
        return f"Hello, {answer.content['name']}, {ctx.request_state}!"
    schema = Name.model_json_schema()
    params = ElicitRequestFormParams(message="What is your name?", requested_schema=schema)
    return InputRequiredResult(input_requests={"name": ElicitRequest(params=params)}, request_state="asked")


@server.tool()
async def awaited(ctx: Context) -> str:
    """Greet the user, who is asked while the call is open."""
    answer = await ctx.elicit("What is your name?", Name)
    return f"Hello, {answer.data.name}!" if answer.action == "accept" else f"You chose to {answer.action}"


@server.tool()
async def steps(ctx: Context, count: int) -> str:
    """Report progress and log, then finish."""
    for done in range(count):
        await ctx.report_progress(done + 1, count)
    return "done"


@server.tool()
async def broken() -> str:
    """Raise an error."""
    raise ValueError("the upstream's own words")


@server.prompt()
def greeting(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@server.resource("note://today")
def today() -> str:
    """A note."""
    return "a note of the SDK"


@server.resource("item://{item_id}")
def item(item_id: str) -> str:
    """An item."""
    return f"item {item_id}"


class Sdk2:
    """Serves it in a thread while the context is open. The SDK allows that once a process."""

    def __init__(self, port: int = 0) -> None:
        config = uvicorn.Config(
            server.streamable_http_app(),
            host="127.0.0.1",
            port=port,
            loop="uvloop",
            http="httptools",
            access_log=False,
            log_level="critical",
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until(lambda: self._server.started, "the SDK's server")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()

    @property
    def url(self) -> str:
        port: int = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}/mcp"
