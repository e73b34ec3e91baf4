"""A server of fastmcp 4 without sessions. Usage: python sessionless_fastmcp.py PORT [json].

With the port `stdio`, it is a server on its standard streams.
"""

# mypy: ignore-errors
# The type checker sees other versions, which are installed in its environment.

import sys
from typing import Any

from fastmcp import Context, FastMCP
from fastmcp.utilities.types import Image

server: FastMCP[Any] = FastMCP("fastmcp")


@server.tool
def echo(text: str) -> str:
    """Say the text again."""
    return text


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def picture() -> Image:
    """Return a picture."""
    return Image(data=b"\x89PNG", format="png")


@server.tool
def broken() -> str:
    """Fail."""
    raise ValueError("in its own words")


@server.tool
async def ask(ctx: Context) -> str:
    """Ask the user."""
    answer = await ctx.elicit("What is your name?", str)
    return answer.action


@server.tool
async def steps(ctx: Context) -> str:
    """Report progress."""
    await ctx.report_progress(1, 2, "half")
    return "done"


@server.prompt
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


if sys.argv[1] == "stdio":
    server.run("stdio", show_banner=False, log_level="error")
    sys.exit()
server.run(
    "http",
    host="127.0.0.1",
    port=int(sys.argv[1]),
    stateless_http=True,
    json_response="json" in sys.argv,
    show_banner=False,
    log_level="error",
)
