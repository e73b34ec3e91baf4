"""Explains what Python says where an author called the context wrongly, or read its answers as other libraries do."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, Final

from gateway.authoring.context import Context, PlainContext, call_of, is_forgotten
from gateway.engine.leg import Leg
from gateway.errors import AuthoringError

_WRONG_CALL: Final = re.compile(r"(?:Plain)?Context\.(\w+)\(\) (.+)")
_RESULTS_ELSEWHERE: Final = frozenset({"action", "data", "content", "result"})
"""The attributes of an answer in other libraries."""

_EXAMPLES: Final = {
    "elicit": "ctx.elicit('name', 'What is your name?', str)",
    "elicit_url": "ctx.elicit_url('login', 'Please sign in', 'https://login.example.com')",
    "sample": "ctx.sample('poem', 'Write a poem', max_tokens=100)",
    "roots": "ctx.roots('roots')",
    "step": "ctx.step('charge', charge, 5)",
}
"""How to call what has a key, which other libraries do not have."""

_METHODS: Final = frozenset(
    name for kind in (Context, PlainContext) for name, member in vars(kind).items() if inspect.isfunction(member)
)
_AWAITED_NONE: Final = "object NoneType can't be used in 'await' expression"
_NOT_AWAITED: Final = "ctx.log, ctx.progress and ctx.changed do not wait: call them without `await`"
_ANSWER: Final = "an answer is the value itself; a user who says no raises gateway.Declined, or use `default`"


def explained(error: AttributeError | TypeError, leg: Leg) -> AuthoringError | None:
    """Return the broken rule behind an error of Python, or None. A hint is added to the error where it is only likely.

    The calls that were never awaited are closed, so Python does not warn of them, too.
    """
    if (broken := _wrong_call(error)) is not None:
        return broken
    if "coroutine" in str(error):
        return _not_awaited(error, leg)
    if _AWAITED_NONE in str(error):
        error.add_note(_NOT_AWAITED)
    if isinstance(error, AttributeError) and error.name in _RESULTS_ELSEWHERE and leg.journal.answers:
        error.add_note(_ANSWER)
    return None


def _wrong_call(error: AttributeError | TypeError) -> AuthoringError | None:
    match = _WRONG_CALL.fullmatch(str(error))
    # Other libraries have a `Context` too.
    if not match or match[1] not in _METHODS or not any(isinstance(each, PlainContext) for each in _values(error)):
        return None
    name, problem = match.groups()
    if name in _EXAMPLES:
        problem += f"; the first argument is a key of your choice: {_EXAMPLES[name]}"
    return AuthoringError(f"ctx.{name}() {problem}; its parameters are {_parameters(name)}")


def _not_awaited(error: AttributeError | TypeError, leg: Leg) -> AuthoringError | None:
    call = leg.forgotten
    for coroutine in filter(is_forgotten, _values(error)):
        call = call or call_of(coroutine)
        coroutine.close()
    return None if call is None else AuthoringError(f"{call} was never awaited; write `await` before the call")


def _parameters(name: str) -> str:
    parameters = list(inspect.signature(getattr(Context, name)).parameters.values())[1:]
    return ", ".join(each.name if each.default is each.empty else f"{each.name}=…" for each in parameters)


def _values(error: AttributeError | TypeError) -> Iterator[Any]:
    """Yield what the error is about, and the variables of the functions that it passed."""
    if isinstance(error, AttributeError):
        yield error.obj
    part = error.__traceback__
    while part is not None:
        yield from part.tb_frame.f_locals.values()
        part = part.tb_next
