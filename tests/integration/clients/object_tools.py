"""Tools, prompts and resources for the server objects of the tests, whichever package they are made with."""

# mypy: ignore-errors
# The type checker sees other versions, which are installed in its environment.

import asyncio
import contextlib
import os
from pathlib import Path

from pydantic import BaseModel

NOTES = Path(os.environ.get("TEST_DIRECTORY", "."))


class Name(BaseModel):
    """The answer to the question."""

    name: str


def counting():
    """Return a lifespan that notes its end, and a list with an entry for each time it was entered."""
    started = []

    @contextlib.asynccontextmanager
    async def lifespan(_server):
        started.append(1)
        yield {}
        with (NOTES / "ended").open("a") as notes:
            notes.write("ended\n")

    return lifespan, started


def add_to(server, started, context, image, announce):
    """Give a server everything. `announce` says that its list of tools has changed."""
    _add_plain_tools(server, image)
    _add_others(server)

    @server.tool()
    def lifespans() -> int:
        """Count how often the lifespan was entered."""
        return len(started)

    @server.tool()
    async def ask(ctx: context) -> str:
        """Ask the user."""
        answer = await ctx.elicit("What is your name?", Name)
        return answer.action

    @server.tool()
    async def steps(ctx: context) -> str:
        """Report progress, and log."""
        await ctx.report_progress(1, 2, "half")
        await ctx.info("half of it")
        return "done"

    @server.tool()
    async def grow(ctx: context) -> str:
        """Add a tool, and announce it."""

        @server.tool()
        def grown() -> str:
            """Say that it is here."""
            return "grown"

        await announce(ctx)
        return "grew"


def _add_plain_tools(server, image):
    @server.tool()
    def echo(text: str) -> str:
        """Say the text again."""
        return text

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def picture() -> image:
        """Return a picture."""
        return image(data=b"\x89PNG", format="png")

    @server.tool()
    def broken() -> str:
        """Fail."""
        raise ValueError("in its own words")

    @server.tool()
    async def slow() -> str:
        """Take long, and note how the call goes."""
        with (NOTES / "slow").open("a") as notes:
            notes.write("begun\n")
            notes.flush()
            try:
                await asyncio.Event().wait()
            finally:
                notes.write("cancelled\n")


def _add_others(server):
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
