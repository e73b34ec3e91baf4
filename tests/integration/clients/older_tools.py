"""Tools for clients of before June 2025: results that their versions have no form for, and questions."""

from __future__ import annotations

from pydantic import BaseModel

from gateway import Context, content, prompt, resource, tool


class Sum(BaseModel):
    """The result of `add`."""

    total: int


@tool(title="Add up")
async def add(numbers: list[int]) -> Sum:
    """Add numbers up."""
    return Sum(total=sum(numbers))


@tool
async def find() -> list[content.Content]:
    """Return a text and a link to a resource."""
    return [content.text("Here"), content.resource_link("docs://guide", "guide")]


@tool
async def ask(ctx: Context) -> str:
    """Ask the user for a number."""
    return str((await ctx.elicit("sum", "Which sum?", Sum)).total)


@tool
async def think(ctx: Context) -> str:
    """Ask the client's model."""
    return (await ctx.sample("idea", "Say something.", max_tokens=10)).text


@prompt
async def guide() -> list[content.Message]:
    """Link to a resource."""
    return [content.user(content.resource_link("docs://guide", "guide"))]


@resource("docs://guide")
async def read() -> str:
    """Be read."""
    return "Read me."
