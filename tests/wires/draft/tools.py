"""Tools, prompts and resources whose work a test watches and steers through files in one directory."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from gateway import (
    AskError,
    Context,
    Elicit,
    ElicitUrl,
    Roots,
    Sample,
    prompt,
    resource,
    tool,
)

POLL_SECONDS: Final = 0.01


class Name(BaseModel):
    name: str


KINDS: Final[dict[str, Any]] = {
    "github_login": Elicit("Please provide your GitHub username", Name),
    "form": Elicit("Who are you?", Name),
    "other_form": Elicit("And who is with you?", Name),
    "url": ElicitUrl("Please log in", "https://example.com/login"),
    "capital_of_france": Sample(
        "What is the capital of France?",
        max_tokens=100,
        system_prompt="You are a helpful assistant.",
        options={
            "modelPreferences": {
                "hints": [{"name": "claude-3-sonnet"}],
                "intelligencePriority": 0.8,
                "speedPriority": 0.5,
            }
        },
    ),
    "sampling": Sample("What is the capital of France?", max_tokens=100),
    "roots": Roots(),
}
"""The questions that `ask` asks, by their keys."""


def note(name: str, line: str) -> None:
    """Add a line to what has happened."""
    with (Path(os.environ["TEST_DIRECTORY"]) / name).open("a") as file:
        file.write(f"{line}\n")


async def opened(gate: str) -> None:
    """Wait until a test opens a gate."""
    while not (Path(os.environ["TEST_DIRECTORY"]) / gate).exists():  # noqa: ASYNC110 - another process opens it
        await asyncio.sleep(POLL_SECONDS)


def told(answer: Any) -> str:
    """Say in a text what somebody answered."""
    if isinstance(answer, Name):
        return answer.name
    return f"{len(answer)} roots" if isinstance(answer, list) else str(getattr(answer, "text", answer))


@tool(task="optional")
async def say(call: str, text: str = "done") -> str:
    """Say it, and note that it ran."""
    note(call, text)
    return text


@tool(task="optional")
async def wait(ctx: Context, gate: str, text: str = "done") -> str:
    """Wait for a gate; note the beginning, and being cancelled."""
    note(f"started-{gate}", ctx.replica_id)
    try:
        await opened(gate)
    except asyncio.CancelledError:
        note(f"cancelled-{gate}", ctx.replica_id)
        raise
    return text


@tool(task="optional")
async def ask(ctx: Context, call: str, kinds: list[str]) -> str:
    """Ask questions of these kinds all at once, record each run, and return the answers."""
    note(call, ctx.replica_id)
    answers = await ctx.ask(**{kind: KINDS[kind] for kind in kinds})
    return ", ".join(f"{kind}: {told(answers[kind])}" for kind in kinds)


@tool(task="optional")
async def ask_in_turn(ctx: Context, kinds: list[str]) -> str:
    """Ask questions of these kinds one after the other, and return the answers."""
    return ", ".join([f"{kind}: {told((await ctx.ask(**{kind: KINDS[kind]}))[kind])}" for kind in kinds])


@tool(task="optional")
async def ask_and_note(ctx: Context, call: str, gate: str) -> str:
    """Ask, then wait for a gate; note how far it came in each run."""
    note(call, "asks")
    given = await ctx.elicit("form", "Who are you?", Name)
    note(call, "knows")
    await opened(gate)
    return given.name


@tool(task="optional")
async def ask_after_progress(ctx: Context) -> str:
    """Tell how far it is, then ask."""
    ctx.progress(1, 2, "half of it")
    return (await ctx.elicit("form", "Who are you?", Name)).name


@tool(task="optional")
async def ask_politely(ctx: Context) -> str:
    """Ask, and tell how the answer was refused."""
    try:
        return (await ctx.elicit("form", "Who are you?", Name)).name
    except AskError as error:
        return f"{type(error).__name__}: {error}"


@prompt
async def greeting(ctx: Context, tone: str) -> str:
    """Ask who is to be greeted."""
    return f"Greet {(await ctx.elicit('form', 'Who are you?', Name)).name}, {tone}."


@tool("greeting")
async def greet(ctx: Context, tone: str) -> str:
    """Do what the prompt of this name does."""
    return f"Greet {(await ctx.elicit('form', 'Who are you?', Name)).name}, {tone}."


@resource("draft://notes")
async def notes(ctx: Context) -> str:
    """Ask whose notes these are."""
    return f"Notes of {(await ctx.elicit('form', 'Who are you?', Name)).name}"
