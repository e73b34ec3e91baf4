"""Faults that a test injects into a call: a process that dies, a response that gets lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from gateway.testing.mistakes import RunError, advice

__tracebackhide__ = True  # pytest shows the test and the author's code


@dataclass(frozen=True)
class crash_after:  # noqa: N801 - reads as a function: `faults=[crash_after("charge")]`
    """The process dies after the function of a step has run, and before anything of it is recorded.

    The client repeats the request, or another worker takes over the task. So the step runs again, unless the tool
    avoids it. Python code that cleans up, such as `finally`, still runs, but can do nothing more through the context.

    Args:
        step: the key of the step.
        times: how often this happens, one time after the other.
    """

    step: str
    times: int = 1


@dataclass(frozen=True)
class lose_response:  # noqa: N801 - reads as a function: `faults=[lose_response(2)]`
    """A leg ends, and its response gets lost. The client sends the same request again, with the same state.

    In a task, a worker is lost just before the end of the leg, after recording its work. Like a crash, this counts
    towards `max_attempts`. After the first leg of a `single_use` tool, a leg still runs once.

    Args:
        leg: the leg, from 1. A repeated leg keeps its number.
    """

    leg: int = 1


Fault: TypeAlias = crash_after | lose_response


class Faults:
    """The faults of one call that have not happened yet.

    Args:
        faults: of the test: one, or some.
        every_response: whether the response of each leg gets lost once, unless that would end the call.

    Raises:
        RunError: one of them is not a fault.
    """

    def __init__(self, faults: object, *, every_response: bool = False) -> None:
        self._crashes: dict[str, int] = {}
        self._lost: set[int] = set()
        self.every_response = every_response
        for fault in faults if isinstance(faults, Iterable) and not isinstance(faults, str) else [faults]:
            if isinstance(fault, crash_after) and _is_count(fault.times) and isinstance(fault.step, str):
                self._crashes[fault.step] = self._crashes.get(fault.step, 0) + fault.times
            elif isinstance(fault, lose_response) and _is_count(fault.leg):
                self._lost.add(fault.leg)
            else:
                raise RunError(f"{fault!r} is not a fault; use crash_after('step') or lose_response(leg=1)")

    def crash_after(self, step: str) -> bool:
        """Return whether the process dies now that this step has run; each crash happens once."""
        left = self._crashes.get(step, 0)
        if left:
            self._crashes[step] = left - 1
        return left > 0

    def lose_response(self, leg: int) -> bool:
        """Return whether a fault loses the response of this leg. The caller asks once a leg."""
        if leg not in self._lost:
            return False
        self._lost.remove(leg)
        return True

    def check_all_happened(self, steps: Iterable[str], legs: int) -> None:
        """Check that each fault has happened.

        Args:
            steps: the keys of the steps that ran.
            legs: how many legs the call had, without repetitions.

        Raises:
            RunError: a fault did not happen, so the test would prove nothing.
        """
        ran = list(steps)
        for step, left in self._crashes.items():
            if left and step not in ran:
                raise RunError(f"crash_after({step!r}): no such step ran; {advice(step, ran, 'the steps were')}")
            if left:
                raise RunError(f"crash_after({step!r}): the step ran too seldom to crash {left} more times")
        for leg in self._lost:
            raise RunError(f"lose_response({leg}): the call had {legs} legs, so this one never ran")


def _is_count(value: Any) -> bool:
    """Return whether a value is a whole number from 1."""
    return isinstance(value, int) and value > 0
