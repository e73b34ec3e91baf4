"""The interface that sends the legs of one call, for the code that follows the call to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from loadtest.errand import Errand
from loadtest.replies import Notice
from loadtest.wire import Answer, Reply, Request


@dataclass(slots=True)
class SegmentCounts:
    """The counters of a call that came in segments; the attributes are those of `rawdata.Call`."""

    segments: int = 0
    breaks: int = 0
    resumes: int = 0
    first_segment: float | None = None


class Legs(Protocol):
    """Sends the requests of one call until they are answered, and counts what happens to it."""

    errand: Errand
    counts: SegmentCounts

    def leg(
        self,
        request: Request,
        stage: str = "",
        read: Callable[[Reply], Answer] = ...,
        on_notice: Notice = ...,
        again: Callable[[], Request] | None = None,
    ) -> Answer:
        """Send a request until it is answered, for as long as a patient client would.

        Raises:
            CallEndedError: it was refused or lost too often, or the answer says that the call has failed.
        """
        ...

    def fill_in(self, questions: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        """Think, and return the answer to each question.

        Raises:
            CallEndedError: one of them is not expected.
        """
        ...

    def checked(self, answer: Answer) -> Answer:
        """Return a final answer after checking its content."""
        ...

    def elapsed(self) -> float:
        """Return how long the call has taken so far, in seconds."""
        ...

    def begin_task(self) -> None:
        """Follow the call as a task from now on."""
        ...

    def is_late(self) -> bool:
        """Whether its task has run for too long."""
        ...

    def give_up_late_task(self) -> None:
        """End the call if it `is_late`.

        Raises:
            CallEndedError: it is.
        """
        ...
