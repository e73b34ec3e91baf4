"""The watchdog's reports about the stacks of real calls, each at a chosen moment."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from gateway import Context, tool
from gateway.authoring.served import work_in
from gateway.demo.weather import get_weather
from gateway.process.watchdog import _what_blocks
from gateway.protocol.strict_json import decode
from gateway.testing import run

UNKNOWN = "the event loop is blocked"
GATEWAY = "the gateway blocks the event loop"
TOOL = "a tool blocks the event loop"
NAME = {"type": "object", "properties": {"name": {"type": "string"}}}


def lengthen(text: str) -> str:
    return text + text


@tool(input_schema=NAME)
async def given(ctx: Context, name: str) -> str:
    """Take arguments whose schema is given."""
    return name


@tool
async def validated(ctx: Context, name: Annotated[str, AfterValidator(lengthen)]) -> str:
    """Take an argument that a function of the author's checks."""
    return name


@tool
async def written(ctx: Context, name: str) -> str:
    """Call the standard library."""
    return json.dumps({"name": name}, indent=1)


@tool
async def asking(ctx: Context, name: str) -> str:
    """Ask with a form whose schema is given."""
    answer = await ctx.elicit("name", "?", NAME)
    return str(answer["name"])


def told_at(module: str, function: str, work: Callable[[], object]) -> tuple[str, str | None]:
    """Return the report about the stack when `function` runs, or is called, in `module`, and the tool that it names."""
    told: list[tuple[str, str | None]] = []

    def look(frame: FrameType, event: str, arg: Any) -> None:
        name = arg.__name__ if event == "c_call" else frame.f_code.co_name
        if event in ("call", "c_call") and (frame.f_globals["__name__"], name) == (module, function):
            busy = work_in(threading.get_ident(), frame)
            told.append((_what_blocks(frame, busy), None if busy is None else busy.served.name))

    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
    assert told, f"{function} did not run"
    return told[0]


def call(served: Any, **arguments: str) -> Callable[[], object]:
    return lambda: run(served, arguments, answers=lambda _key, _question: {"name": "Ada"})


CASES: dict[str, tuple[str, str, Callable[[], object], tuple[str, str | None]]] = {
    "an author's function": (__name__, "asking", call(asking, name="x"), (TOOL, "asking")),
    "an author's check of an argument": (__name__, "lengthen", call(validated, name="x"), (TOOL, "validated")),
    "a library that a tool calls": ("json.encoder", "_iterencode_dict", call(written, name="x"), (TOOL, "written")),
    "a tool of the demo": (
        "gateway.demo.weather",
        "get_weather",
        call(get_weather, location="x"),
        (TOOL, "get_weather"),
    ),
    "our check of arguments": (
        "gateway.json_schema.validation",
        "is_valid",
        call(given, name="x"),
        (GATEWAY, "given"),
    ),
    "our check of an answer": (
        "gateway.json_schema.validation",
        "is_valid",
        call(asking, name="x"),
        (GATEWAY, "asking"),
    ),
    "our writing of a result": (
        "gateway.authoring.tools",
        "result",
        call(written, name="x"),
        (GATEWAY, "written"),
    ),
    "our work for no call": ("gateway.protocol.strict_json", "decode", lambda: decode(b"{}"), (GATEWAY, None)),
    "an author's work for no call": (__name__, "lengthen", lambda: lengthen("x"), (UNKNOWN, None)),
    "the loop itself": (
        "asyncio.base_events",
        "_run_once",
        lambda: asyncio.run(asyncio.sleep(0)),
        (UNKNOWN, None),
    ),
}


@pytest.mark.parametrize(("module", "function", "work", "expected"), CASES.values(), ids=CASES)
def test_the_innermost_function_outside_the_libraries_is_reported_as_blocking(
    module: str, function: str, work: Callable[[], object], expected: tuple[str, str | None]
) -> None:
    assert told_at(module, function, work) == expected
