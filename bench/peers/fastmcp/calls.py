"""fastmcp's server for calls, set up for speed: stateless, plain JSON answers, no identity, no structured output."""

from __future__ import annotations

from fastmcp import Context, FastMCP  # type: ignore[import-not-found]  # lives in an environment of its own
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

from bench.peers.serving import serve

server = FastMCP("bench", version="1.0.0")

QUESTION = ElicitRequest(
    params=ElicitRequestFormParams(
        message="What is your name?",
        requested_schema={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    )
)


@server.tool(output_schema=None)  # type: ignore[untyped-decorator]  # seen from outside its environment
async def echo(text: str) -> str:
    """Say the text again."""
    return text


@server.tool(output_schema=None)  # type: ignore[untyped-decorator]  # likewise
async def ask(ctx: Context) -> str | InputRequiredResult:
    """Greet the user by name."""
    answer = (ctx.input_responses or {}).get("name")
    if isinstance(answer, ElicitResult) and answer.content is not None and ctx.request_state == "asked":
        return f"Hello, {answer.content['name']}!"
    return InputRequiredResult(input_requests={"name": QUESTION}, request_state="asked")


if __name__ == "__main__":
    serve(server.http_app(path="/mcp", json_response=True, stateless_http=True))
