"""Pure: runs the author's function through one leg to an outcome, whatever the function does."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeAlias

from gateway.engine.leg import Leg
from gateway.engine.outcomes import Completed, Failed, LegCrashed, Outcome
from gateway.engine.stoppable_leg import LegStopped
from gateway.errors import AuthoringError

LegFunction: TypeAlias = Callable[[Leg], Coroutine[Any, Any, Any]]


async def run_leg(function: LegFunction, leg: Leg, *, limited: bool = True, seconds: float | None = None) -> Outcome:
    """Run one leg to its outcome, within the host's time limit, or `seconds` if that is less.

    A leg that is not `limited` keeps a limit of its own.

    Cancellation of the host's task passes through; every other end is an outcome. In each case the leg's journal has
    what the leg learned.
    """
    outcome: Outcome
    try:
        running = function(leg)
        began = leg.host.time()
        try:
            wanted = running.send(None)
        except StopIteration as end:
            # Most legs never wait. They need no time limit: it costs time, and could not end code that does not wait.
            outcome = Completed(end.value)
        except (Exception, LegStopped):
            raise
        except BaseException as error:
            raise LegCrashed(type(error).__name__) from error
        else:
            outcome = Completed(
                await leg.host.bounded(_rest(running, wanted, leg), began, limited=limited, seconds=seconds)
            )
    except LegStopped:
        outcome = Failed(AuthoringError("the tool raised the gateway's stop signal itself"))
    except Exception as error:  # noqa: BLE001 - a tool may raise anything, which is its outcome
        outcome = Failed(error)
    if leg.outcome is None:
        leg.outcome = outcome
    return leg.outcome


@types.coroutine
def _rest(running: Coroutine[Any, Any, Any], wanted: Any, leg: Leg) -> Generator[Any, Any, Any]:
    """Await `running`, which waits for `wanted`, until it ends or the leg abandons it.

    An abandoned function would also swallow cancellation.
    """
    resume: Callable[[Any], Any]
    value: Any
    while True:
        if leg.given_up:
            raise LegStopped
        try:
            value = yield wanted
            resume = running.send
        except BaseException as error:  # noqa: BLE001 - it is thrown into the function
            value, resume = error, running.throw
        try:
            wanted = resume(value)
        except StopIteration as end:
            return end.value
        except GeneratorExit as error:
            if error is value:  # the coroutine is being closed; the function did not raise this itself
                raise
            raise LegCrashed(type(error).__name__) from error
