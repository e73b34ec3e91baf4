"""The official SDK's server, set up for speed: stateless, plain JSON answers, no identity, no structured output.

Its request states are sealed under a key of the process, which is the SDK's default. The question is asked in the
SDK's return style; its other style, `Resolve`, costs it about twice the CPU on these legs.
"""

from __future__ import annotations

import json
import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel

from bench.peers.serving import serve

server = MCPServer("bench", version="1.0.0", log_level="WARNING")


class Name(BaseModel):
    """The form for a user's name."""

    name: str


QUESTION = ElicitRequest(
    params=ElicitRequestFormParams(
        message="What is your name?",
        requested_schema={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    )
)


@server.tool(structured_output=False)
async def echo(text: str) -> str:
    """Say the text again."""
    return text


@server.tool(structured_output=False)
async def ask(ctx: Context) -> str | InputRequiredResult:
    """Greet the user by name."""
    answer = (ctx.input_responses or {}).get("name")
    if isinstance(answer, ElicitResult) and answer.action == "accept" and ctx.request_state == "asked":
        return f"Hello, {Name.model_validate(answer.content).name}!"
    return InputRequiredResult(input_requests={"name": QUESTION}, request_state="asked")


@server.tool(structured_output=False)
async def carry(ctx: Context, size: int) -> str | InputRequiredResult:
    """Greet the user by name, with so many bytes in the state meanwhile."""
    answer = (ctx.input_responses or {}).get("name")
    luggage = ctx.request_state
    if isinstance(answer, ElicitResult) and answer.action == "accept" and luggage is not None:
        return f"Hello, {Name.model_validate(answer.content).name}, with {len(luggage)} bytes!"
    return InputRequiredResult(input_requests={"name": QUESTION}, request_state="x" * size)


@server.tool(structured_output=False)
async def greet(ctx: Context, count: int) -> str | InputRequiredResult:
    """Greet so many users by name, one question after the other."""
    names = json.loads(ctx.request_state) if ctx.request_state else []
    answer = (ctx.input_responses or {}).get(f"name-{len(names)}")
    if isinstance(answer, ElicitResult) and answer.action == "accept":
        names.append(Name.model_validate(answer.content).name)
    if len(names) == count:
        return f"Hello, {', '.join(names)}!"
    return InputRequiredResult(input_requests={f"name-{len(names)}": QUESTION}, request_state=json.dumps(names))


@server.tool(structured_output=False)
async def tell(ctx: Context, count: int) -> str:
    """Tell how far it is, so many times, then the result."""
    for done in range(count):
        await ctx.report_progress(done + 1, count)
    return "done"


async def another(text: str) -> str:
    """Say the text again."""
    return text


if __name__ == "__main__":
    for number in range(int(sys.argv[3])):
        server.add_tool(another, name=f"echo_{number:04d}", structured_output=False)
    serve(server.streamable_http_app(json_response=sys.argv[2] == "json", stateless_http=True))
