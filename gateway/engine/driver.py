"""Pure: drives the author's function through one leg, whatever it does, to an outcome."""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeAlias

from gateway.engine.leg import Leg, LegStopped
from gateway.engine.outcomes import Completed, Failed, Outcome
from gateway.errors import AuthoringError

LegFunction: TypeAlias = Callable[[Leg], Awaitable[Any]]


async def run_leg(function: LegFunction, leg: Leg) -> Outcome:
    """Run one leg to its outcome.

    Cancellation of the host's task passes through; every other end is an outcome. What the leg learned is
    in its journal either way.
    """
    outcome: Outcome
    try:
        outcome = Completed(await leg.host.bounded(_driven(function(leg), leg)))
    except LegStopped:
        outcome = Failed(AuthoringError("the tool raised the gateway's stop signal itself"))
    except Exception as error:  # noqa: BLE001 - a tool may raise anything; that is its outcome
        outcome = Failed(error)
    if leg.outcome is None:
        leg.outcome = outcome
    return leg.outcome


@types.coroutine
def _driven(running: Awaitable[Any], leg: Leg) -> Generator[Any, Any, Any]:
    """Await `running`, but let go of it when the leg has given it up: it would swallow cancellation too."""
    coroutine = running.__await__()
    resume: Callable[[Any], Any] = coroutine.send
    value: Any = None
    while True:
        try:
            wanted = resume(value)
        except StopIteration as end:
            return end.value
        if leg.given_up:
            raise LegStopped
        try:
            value = yield wanted
            resume = coroutine.send
        except BaseException as error:  # noqa: BLE001 - it is thrown on into the function
            value = error
            resume = coroutine.throw
