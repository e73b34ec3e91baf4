"""Pure: drives the author's function through one leg, whatever it does, to an outcome."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeAlias

from gateway.engine.leg import Leg, LegStopped
from gateway.engine.outcomes import Completed, Failed, LegCrashed, Outcome
from gateway.errors import AuthoringError

LegFunction: TypeAlias = Callable[[Leg], Coroutine[Any, Any, Any]]


async def run_leg(function: LegFunction, leg: Leg) -> Outcome:
    """Run one leg to its outcome, within the host's limit of time.

    Cancellation of the host's task passes through; every other end is an outcome. What the leg learned is
    in its journal either way.
    """
    outcome: Outcome
    try:
        running = function(leg)
        began = leg.host.time()
        try:
            wanted = running.send(None)
        except StopIteration as end:
            # Most legs never wait for anything, and are spared what a limit costs; none could end what does not wait.
            outcome = Completed(end.value)
        except (Exception, LegStopped):
            raise
        except BaseException as error:
            raise LegCrashed(type(error).__name__) from error
        else:
            outcome = Completed(await leg.host.bounded(_rest(running, wanted, leg), began))
    except LegStopped:
        outcome = Failed(AuthoringError("the tool raised the gateway's stop signal itself"))
    except Exception as error:  # noqa: BLE001 - a tool may raise anything; that is its outcome
        outcome = Failed(error)
    if leg.outcome is None:
        leg.outcome = outcome
    return leg.outcome


@types.coroutine
def _rest(running: Coroutine[Any, Any, Any], wanted: Any, leg: Leg) -> Generator[Any, Any, Any]:
    """Await `running`, which waits for `wanted`, but let go of it when the leg has given it up.

    It would swallow cancellation too.
    """
    resume: Callable[[Any], Any]
    value: Any
    while True:
        if leg.given_up:
            raise LegStopped
        try:
            value = yield wanted
            resume = running.send
        except BaseException as error:  # noqa: BLE001 - it is thrown on into the function
            value, resume = error, running.throw
        try:
            wanted = resume(value)
        except StopIteration as end:
            return end.value
        except GeneratorExit as error:
            if error is value:  # this is being closed, not the function ending by itself
                raise
            raise LegCrashed(type(error).__name__) from error
