"""Tools that misbehave in every way a function can, and a few that ask. They use only the public API."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

from pydantic import AfterValidator, BaseModel, Field, model_serializer

from gateway import AskError, Content, Context, ProtocolError, ToolResult, prompt, resource, tool

SECRET = "the-password-is-hunter2"
"""Part of every exception that the tools here raise; no client may ever see it."""

POLL_SECONDS = 0.01


class Internal(Exception):
    """An error that a database client might raise."""


class Rude(BaseException):
    """Not an `Exception`, so ordinary handlers let it pass."""


class Who(BaseModel):
    name: str


class Unspeakable(BaseModel):
    secret: str = SECRET

    @model_serializer
    def refuse(self) -> str:
        raise Internal(SECRET)


@tool
async def echo(text: str) -> str:
    """Give the text back."""
    return text


@tool
async def add_one(number: int) -> str:
    """Add one, exactly."""
    return str(number + 1)


@tool
async def greet(ctx: Context, greeting: str = "Hello", punctuation: dict[str, Any] | None = None) -> str:
    """Greet the person that the user names."""
    who = await ctx.elicit("who", "Who are you?", Who)
    return f"{greeting} {who.name}"


@tool
async def greet_too(ctx: Context, greeting: str = "Hello", punctuation: dict[str, Any] | None = None) -> str:
    """Do the same under another name."""
    who = await ctx.elicit("who", "Who are you?", Who)
    return f"{greeting} {who.name}"


@tool
async def introduce(ctx: Context) -> str:
    """Ask for one name after the other, without end."""
    for number in itertools.count():
        await ctx.elicit(f"name{number}", "And who else?", Who)
    return "never"


@tool
async def hoard(ctx: Context, size: int) -> str:
    """Keep `size` characters for the next leg."""
    kept = await ctx.step("loot", lambda: "x" * size)
    who = await ctx.elicit("who", "Who are you?", Who)
    return f"{who.name} keeps {len(kept)}"


@tool
async def hold(started: str, release: str) -> str:
    """Create the file `started`, then wait for the file `release`."""
    Path(started).touch()  # noqa: ASYNC240 - one file on a local disk
    while not Path(release).exists():  # noqa: ASYNC240, ASYNC110 - another process sets it
        await asyncio.sleep(POLL_SECONDS)
    return "released"


@tool
async def hold_at_checkpoints(ctx: Context, started: str, release: str, ballast: str = "") -> str:
    """Like `hold`, with a checkpoint at each look; return the number of legs. Each leg adds a line to `started`."""
    with Path(started).open("a") as file:  # noqa: ASYNC230 - one file on a local disk
        file.write("|")
    legs = ctx.resumed({"legs": 0})["legs"] + 1
    while not Path(release).exists():  # noqa: ASYNC240 - another process sets it
        await asyncio.sleep(POLL_SECONDS)
        await ctx.checkpoint({"legs": legs, "ballast": ballast})
    return f"released in leg {legs}"


@tool
async def linger(_ctx: Context) -> str:
    """Outlive every time limit."""
    await asyncio.Event().wait()
    return "never"


@tool
async def linger_in_step(ctx: Context, started: str) -> str:
    """Outlive every time limit in a thread that nothing can stop."""

    def block() -> None:
        Path(started).touch()
        threading.Event().wait()

    await ctx.step("block", block)
    return "never"


def _recurse(depth: int) -> int:
    return _recurse(depth + 1) + 1


def _raise(error: BaseException) -> NoReturn:
    raise error


async def _cancelled() -> None:
    sleeping = asyncio.create_task(asyncio.sleep(3600))
    sleeping.cancel()
    await sleeping


async def _rude_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_fail_soon())
        await asyncio.Event().wait()


async def _fail_soon() -> None:
    raise Rude(SECRET)


CRASHES: dict[str, Callable[[], Any]] = {
    "exception": lambda: _raise(Internal(SECRET)),
    "recursion": lambda: _recurse(0),
    "memory": lambda: _raise(MemoryError(SECRET)),
    "exit": lambda: sys.exit(SECRET),
    "exit_0": lambda: sys.exit(0),
    "interrupt": lambda: _raise(KeyboardInterrupt(SECRET)),
    "base": lambda: _raise(Rude(SECRET)),
    "cancelled_error": lambda: _raise(asyncio.CancelledError(SECRET)),
    "stop_iteration": lambda: _raise(StopIteration(SECRET)),
    "timeout": lambda: _raise(TimeoutError(SECRET)),
    "group": lambda: _raise(ExceptionGroup(SECRET, [Internal(SECRET)])),
    "base_group": lambda: _raise(BaseExceptionGroup(SECRET, [KeyboardInterrupt(SECRET)])),
    "cancelled_child": _cancelled,
    "rude_child": _rude_group,
}
"""The ways in which `crash` fails, also inside a step."""


@tool
async def crash(how: str) -> str:
    """Crash."""
    pending = CRASHES[how]()
    if pending is not None:
        await pending
    return "survived"


STEP_CRASHES = ("exception", "recursion", "exit", "interrupt", "base", "stop_iteration", "base_group")


@tool
async def crash_in_step(ctx: Context, how: str) -> str:
    """Crash in a thread of the pool."""
    await ctx.step("crash", CRASHES[how])
    return "survived"


def _loop() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


NONSENSE: dict[str, Callable[[], Any]] = {
    "object": object,
    "class": lambda: Internal,
    "function": lambda: _loop,
    "coroutine_function": lambda: _cancelled,
    "bytes": lambda: b"\xff" + SECRET.encode(),
    "set_of_objects": lambda: {object()},
    "nan": lambda: float("nan"),
    "infinity_inside": lambda: {"value": [float("inf")]},
    "colliding_surrogates": lambda: dict.fromkeys(("\ud800", "\ud801")),
    "colliding_names": lambda: {1: SECRET, "1": SECRET},
    "circle": _loop,
    "unspeakable": Unspeakable,
    "block_with_objects": lambda: Content(type="text", text=object()),
    "result_with_objects": lambda: ToolResult(content=[{"type": object()}]),
    "result_with_bytes": lambda: ToolResult(content=[], structured={"data": b"\xff" + SECRET.encode()}),
}
"""Return values of `babble` that no client could read."""


@tool
async def babble(what: str) -> Any:
    """Return something that is not a result."""
    return NONSENSE[what]()


@tool
async def count_high(digits: Annotated[int, Field(le=5000)]) -> dict[str, int]:
    """Return a huge number."""
    return {"number": 10**digits}


QUESTIONS: dict[str, tuple[str, str, Any]] = {
    "key": ("wh~o", "Who?", Who),
    "message": ("who", "\ud800", Who),
    "schema": ("who", "Who?", {"type": "object", "properties": {"name": {"type": object()}}}),
    "no_schema": ("who", "Who?", 7),
}
"""Questions of `ask_nonsense` that no client could answer."""


@tool
async def ask_nonsense(ctx: Context, what: str) -> str:
    """Ask something that is not a question."""
    key, message, schema = QUESTIONS[what]
    await ctx.elicit(key, message, schema)
    return "answered"


@tool
async def keep_nonsense(ctx: Context) -> str:
    """Store something that is not JSON, then ask."""
    await ctx.step("object", object)
    await ctx.elicit("who", "Who?", Who)
    return "kept"


@tool
async def swallow(ctx: Context) -> str:
    """Swallow even the signal that ends a leg, then crash."""
    try:
        await ctx.elicit("who", "Who are you?", Who)
    except BaseException:  # noqa: BLE001 - this is the point
        sys.exit(SECRET)
    return "answered"


def _break(_value: int) -> int:
    raise Internal(SECRET)


@tool
async def break_validator(number: Annotated[int, AfterValidator(_break)]) -> str:
    """Have an argument whose type is broken."""
    return str(number)


@tool
async def refuse(code: int, message: str = "I would rather not") -> str:
    """End with a JSON-RPC error of the tool's own."""
    raise ProtocolError(code, message, {"hint": "ask somebody else"})


class Changing(ProtocolError):
    """An error whose code is changed after it was checked."""

    def __init__(self, code: int) -> None:
        super().__init__(1, "mine")
        self.code = code


@tool
async def refuse_later(code: int) -> str:
    """End with an error of a code that is not the tool's."""
    raise Changing(code)


ERRORS: dict[str, tuple[Any, Any, Any]] = {
    "code": ("x", "I would rather not", None),
    "message": (42, "\ud800", None),
    "number": (42, 43, None),
    "data": (42, "I would rather not", {"data": object()}),
    "circle": (42, "I would rather not", {"data": _loop()}),
}
"""Errors of `refuse_badly` that no client could read."""


@tool
async def refuse_badly(what: str) -> str:
    """Raise an error without meaning."""
    code, message, data = ERRORS[what]
    raise ProtocolError(code, message, data)


@tool
async def require_name(ctx: Context) -> str:
    """Continue only with a name."""
    try:
        who = await ctx.elicit("who", "Who are you?", Who)
    except AskError as error:
        return f"no name: {type(error).__name__}"
    return who.name


@tool
async def insist(ctx: Context) -> str:
    """Let a refusal be the end."""
    return (await ctx.elicit("who", "Who are you?", Who)).name


@prompt("insist")
async def insist_in_a_prompt(ctx: Context) -> str:
    """Let a refusal be the end of a prompt."""
    return (await ctx.elicit("who", "Who are you?", Who)).name


@resource("asking://insist")
async def insist_in_a_resource(ctx: Context) -> str:
    """Let a refusal be the end of a resource."""
    return (await ctx.elicit("who", "Who are you?", Who)).name
