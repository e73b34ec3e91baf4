"""A call that failed, or an answer that did not fit, is gone at once: not when the garbage collector runs."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from gateway import Context, tool
from tests.asgi import Client, make_app
from tests.integration.raw import accept, tool_call

MARK = "only-here"


class Name(BaseModel, extra="forbid"):
    name: str


@tool
async def asks(ctx: Context) -> str:
    """Ask for a name."""
    return (await ctx.elicit("who", "Who are you?", Name)).name


@tool
async def fails(given: dict[str, list[int]]) -> str:
    """Fail with the arguments in a variable."""
    raise ValueError(len(given))


@tool
def fails_in_a_thread(given: dict[str, list[int]]) -> str:
    """Fail with the arguments in a variable."""
    raise ValueError(len(given))


@tool
async def chains(ctx: Context, given: dict[str, list[int]]) -> str:
    """Fail because something else failed."""
    try:
        raise ValueError(len(given))
    except ValueError as error:
        raise LookupError(ctx.call_id) from error


@tool
async def hides(ctx: Context, given: dict[str, list[int]]) -> str:
    """Fail because something else failed, which nobody shall see."""
    try:
        raise ValueError(len(given))
    except ValueError:
        raise LookupError(ctx.call_id) from None


@tool
async def misuses(ctx: Context, given: dict[str, list[int]]) -> str:
    """Fail with an error that is explained."""
    name: Any = ctx.elicit("who", str(len(given)), Name)
    return str(name.name)


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def kept() -> int:
    """Return how many dictionaries with the mark there are. The collector knows those that hold a list, for example."""
    return sum(type(each) is dict and MARK in each for each in gc.get_objects())


@pytest.mark.usefixtures("_no_collector")
async def test_an_answer_that_does_not_fit_is_gone_after_its_leg() -> None:
    app = make_app(__name__)
    first = await Client(app).post(tool_call("asks"))
    answers: Any = accept(**{MARK: [1]})
    second = await Client(app).post(tool_call("asks", requestState=first.state, inputResponses=answers))
    del answers
    assert "not accepted" in second.result["inputRequests"]["who"]["params"]["message"]
    del first, second
    assert kept() == 0


@pytest.mark.parametrize("name", ["fails", "fails_in_a_thread", "chains", "hides", "misuses"])
@pytest.mark.usefixtures("_no_collector")
async def test_the_arguments_of_a_tool_that_failed_are_gone_after_the_call(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "gateway.calls")  # pytest would keep the traceback that is logged
    app = make_app(__name__)
    said = (await Client(app).post(tool_call(name, {"given": {MARK: [1]}}))).result
    assert said["isError"]
    assert kept() == 0


def test_the_mark_is_found_where_it_is_kept() -> None:
    holding = {MARK: [len(MARK)]}
    assert kept() == len(holding)
