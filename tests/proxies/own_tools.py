"""One of each thing that a deployment can serve itself, for the list of `gateway upstreams --haproxy`."""

from __future__ import annotations

from gateway import prompt, resource, tool


@tool
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@prompt
async def greet() -> str:
    """Greet."""
    return "Hello"


@resource("own://page?a=1,b", name="page")
async def page() -> str:
    """Return a page."""
    return "page"


@resource("own://items/{number}", name="item")
async def item(number: str) -> str:
    """Return an item."""
    return number


@resource("up+own://{name}", name="lookalike")
async def lookalike(name: str) -> str:
    """Return what has the URI of an upstream's resource."""
    return name
