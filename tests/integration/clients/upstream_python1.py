"""A server of the `mcp` SDK 1.x. Usage: python upstream_python1.py PORT [json|sessions]; default: no sessions.

With the port `stdio`, it is a server on its standard streams.
"""

# mypy: ignore-errors
# The type checker sees other versions, which are installed in its environment.

import asyncio
import sys
from typing import Any

from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.utilities.types import Image
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp.types import ElicitRequestURLParams
from pydantic import BaseModel

PORT = sys.argv[1]
server = FastMCP(
    "python1",
    host="127.0.0.1",
    port=0 if PORT == "stdio" else int(PORT),
    stateless_http="sessions" not in sys.argv,
    json_response="json" in sys.argv,
    log_level="ERROR",
)


class Name(BaseModel):
    """The answer to the question."""

    name: str


@server.tool()
def echo(text: str) -> str:
    """Say the text again."""
    return text


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def picture() -> Any:
    """Return a picture."""
    return Image(data=b"\x89PNG", format="png")


@server.tool()
def broken() -> str:
    """Fail."""
    raise ValueError("in its own words")


@server.tool()
async def ask(ctx: Context[Any, Any, Any]) -> str:
    """Ask the user."""
    answer = await ctx.elicit("What is your name?", Name)
    return answer.action


visited = set()


@server.tool()
def sign_in(user: str) -> str:
    """Send a user to a URL first."""
    if user in visited:
        return f"signed in: {user}"
    visited.add(user)
    url = f"https://example.com/in?user={user}"
    raise UrlElicitationRequiredError(
        [ElicitRequestURLParams(mode="url", message="Please sign in", url=url, elicitationId="e1")]
    )


@server.tool()
async def count(ctx: Context[Any, Any, Any]) -> str:
    """Count the calls of the session."""
    ctx.session.calls = getattr(ctx.session, "calls", 0) + 1
    return str(ctx.session.calls)


@server.tool()
async def steps(ctx: Context[Any, Any, Any]) -> str:
    """Report progress."""
    await ctx.report_progress(1, 2, "half")
    return "done"


@server.tool()
async def slow() -> str:
    """Take long, and print how the call goes."""
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        sys.stdout.write("cancelled\n")
        sys.stdout.flush()
        raise
    return "finally"


@server.prompt()
def greeting(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@server.resource("note://today")
def today() -> str:
    """Return a note."""
    return "a note"


@server.resource("item://{number}")
def item(number: str) -> str:
    """Return an item."""
    return f"item {number}"


server.run("stdio" if PORT == "stdio" else "streamable-http")
