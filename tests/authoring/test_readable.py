"""A file name that is not UTF-8 becomes readable, and loses nothing else of a result."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from gateway import Context, content, prompt, resource, tool
from gateway.authoring.content import Content, ToolResult
from gateway.authoring.readable import readable
from gateway.testing import run

NAME = os.fsdecode(b"caf\xe9.txt")
SHOWN = "caf\ufffd.txt"


@dataclass(frozen=True)
class File:
    name: str
    size: int = 1


class Pair(NamedTuple):
    name: str
    size: int


class Listing(BaseModel):
    names: list[Any]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (NAME, SHOWN),
        ([1, [NAME]], [1, [SHOWN]]),
        ((NAME, "b"), (SHOWN, "b")),
        ({NAME: NAME, "b": 1}, {SHOWN: SHOWN, "b": 1}),
        (OrderedDict({"a": NAME}), OrderedDict({"a": SHOWN})),
        (Content(type="text", text=NAME), Content(type="text", text=SHOWN)),
        (Pair(NAME, 1), Pair(SHOWN, 1)),
        (File(NAME), File(SHOWN)),
        (Listing(names=[File(NAME)]), Listing(names=[File(SHOWN)])),
    ],
    ids=lambda value: type(value).__name__,
)
def test_lone_surrogates_are_replaced_in_a_copy_of_the_same_type(value: Any, shown: Any) -> None:
    made = readable(value)
    assert made == shown
    assert type(made) is type(value)
    assert readable(shown) is shown
    assert value != shown


def test_what_cannot_be_made_readable_stays() -> None:
    circle: list[Any] = [1]
    circle.append(circle)
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    shared: Any = []
    for _ in range(100):
        shared = [shared, shared]
    for value in (circle, deep, shared, dict.fromkeys(("\ud800", "\ud801")), object(), File, None):
        assert readable(value) is value


@tool
async def text() -> str:
    """List."""
    return f"notes.txt {NAME}"


@tool
async def typed() -> dict[str, list[str]]:
    """List."""
    return {"names": ["notes.txt", NAME]}


@tool
async def listed() -> list[File]:
    """List."""
    return [File("notes.txt"), File(NAME)]


@tool
async def untyped() -> Any:
    """List."""
    return [content.text("notes.txt"), content.text(NAME)]


@tool
async def spelled_out() -> ToolResult:
    """List."""
    return ToolResult(content=[content.text("notes.txt")], structured={NAME: 1})


@tool
async def emitted(ctx: Context) -> str:
    """List."""
    await ctx.emit(NAME)
    return "notes.txt"


@prompt
def asked() -> str:
    """List."""
    return f"notes.txt {NAME}"


@resource("files://all")
def read() -> dict[str, str]:
    """List."""
    return {"notes.txt": NAME}


@pytest.mark.parametrize(
    "function", [text, typed, listed, untyped, spelled_out, emitted, asked, read], ids=lambda each: each.name
)
def test_a_result_is_not_lost_for_one_name(function: Any) -> None:
    told = repr(run(function).result)
    assert "notes.txt" in told
    assert SHOWN in told
    assert "isError': True" not in told
