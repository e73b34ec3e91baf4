"""Tools, prompts and resources that report while they run, ask, announce changes, and can be watched from outside."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from gateway import Context, Elicit, InputRequired, PlainContext, complete, lifespan, prompt, resource, tool
from gateway.protocol.versions import LogLevel

LEVELS: tuple[LogLevel, ...] = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
DIARY_VARIABLE = "TEST_DIARY"
"""The variable with the file in which the lifespan records its events."""

POLL_SECONDS = 0.01

counted: dict[str, int] = {}
"""How far the runs of `count` came, by their name."""


class Who(BaseModel):
    name: str


def _note(what: str) -> None:
    diary = os.environ.get(DIARY_VARIABLE)
    if diary is not None:
        with Path(diary).open("a") as file:
            file.write(f"{what} {os.getpid()}\n")


@lifespan
async def shared() -> AsyncIterator[str]:
    """Share what every call can use."""
    _note("opened")
    yield f"of {os.getpid()}"
    _note("closed")


async def _wait_for(file: str) -> None:
    while not Path(file).exists():  # noqa: ASYNC110, ASYNC240 - another process sets it
        await asyncio.sleep(POLL_SECONDS)


@tool
async def work(ctx: Context, release: str) -> str:
    """Report the first half, wait until the file `release` exists, and report the second."""
    ctx.progress(1, 2, "half")
    ctx.log("info", {"half": 1}, "work")
    await _wait_for(release)
    ctx.progress(1.5, 2)
    ctx.progress(1.25, 2, "backwards")
    ctx.log("warning", {"half": 2})
    ctx.progress(2, 2)
    return "worked"


@tool
def work_blocking(ctx: PlainContext, release: str) -> str:
    """Do the same in a thread."""
    ctx.progress(1, 2, "half")
    ctx.log("info", {"half": 1}, "work")
    while not Path(release).exists():
        time.sleep(POLL_SECONDS)
    ctx.progress(2, 2)
    return "worked"


@tool
async def talk(ctx: Context) -> str:
    """Log once at each level, loudest first."""
    for level in reversed(LEVELS):
        ctx.log(level, f"this is {level}")
    return "said"


@tool
async def tell_and_ask(ctx: Context) -> str:
    """Report progress before each question and after the last."""
    ctx.log("info", "before")
    ctx.progress(1, 3)
    first = await ctx.elicit("first", "Who are you?", Who)
    ctx.log("info", f"hello {first.name}")
    ctx.progress(2, 3)
    second = await ctx.elicit("second", "And who else?", Who)
    ctx.log("info", f"hello {second.name}")
    ctx.progress(3, 3)
    return f"{first.name} and {second.name}"


@tool
async def count(ctx: Context, name: str, ended: str) -> str:
    """Count until stopped, then write the reason to the file `ended`."""
    counted[name] = 0
    ctx.progress(1)
    try:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            counted[name] += 1
    except BaseException as error:
        Path(ended).write_text(type(error).__name__)  # noqa: ASYNC240 - one file on a local disk
        raise


@resource("count://{name}")
async def read_count(name: str) -> str:
    """Read how far a run of `count` came."""
    return str(counted.get(name, 0))


@tool
async def add_one(number: int) -> str:
    """Add one, exactly."""
    return str(number + 1)


@tool
async def which_process() -> str:
    """Return the resource that the process shares."""
    return shared.value


@tool
async def announce(ctx: Context, what: str) -> str:
    """Announce a change."""
    ctx.changed(what)
    return what


@tool(
    input_schema={
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
        },
    }
)
async def deploy(**arguments: Any) -> str:
    """Repeat the arguments."""
    return repr(arguments)


@tool
async def greet(ctx: Context, greeting: str = "Hello") -> str:
    """Greet the person that the user names."""
    return f"{greeting} {(await ctx.elicit('who', 'Who are you?', Who)).name}"


@prompt("greet")
async def greet_prompt(ctx: Context, greeting: str = "Hello") -> str:
    """Greet in a prompt, under the name of a tool."""
    return f"{greeting} {(await ctx.elicit('who', 'Who are you?', Who)).name}"


@prompt
def greet_in_return_style(ctx: PlainContext, greeting: str = "Hello") -> str | InputRequired:
    """Greet in the other style."""
    question = Elicit("Who are you?", Who)
    who = ctx.answers.get("who", question)
    return InputRequired(who=question) if who is None else f"{greeting} {who.name}"


@complete(greet_prompt, "greeting")
async def complete_greeting(value: str) -> list[str]:
    """Suggest greetings."""
    return [greeting for greeting in ("Hello", "Hi", "Welcome") if greeting.startswith(value)]


@resource("note://plain", ttl_ms=5000, cache="public")
async def plain_note() -> str:
    """Read the same for every caller."""
    return "plain"


@resource("note://news", announces_changes=True)
async def news() -> str:
    """Read a changing resource."""
    return "news"


@resource("note://room/{name}", announces_changes=True, ttl_ms=5000, cache="public")
async def room(ctx: Context, name: str) -> str:
    """Read a room after asking for whom."""
    return f"{name} for {(await ctx.elicit('who', 'Who are you?', Who)).name}"
