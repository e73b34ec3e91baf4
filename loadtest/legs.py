"""What sends the legs of one call, as those who follow it to its end see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from loadtest.errand import Errand
from loadtest.replies import Notice
from loadtest.wire import Answer, Reply, Request


@dataclass(slots=True)
class SegmentCounts:
    """What a call that came in segments is counted by; the attributes are those of `rawdata.Call`."""

    segments: int = 0
    breaks: int = 0
    resumes: int = 0
    first_segment: float | None = None


class Legs(Protocol):
    """Sends requests of one call until they are answered, and counts what happens to it.

    Attributes:
        errand: what the call is for.
        counts: what is counted of segments.
    """

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
        """Return a final answer, once its content is seen to be right."""
        ...

    def elapsed(self) -> float:
        """Return how long the call has taken until now, in seconds."""
        ...

    def begin_task(self) -> None:
        """Follow the call as a task from now on."""
        ...

    def is_late(self) -> bool:
        """Whether its task should have ended long ago."""
        ...

    def give_up_late_task(self) -> None:
        """End the call if it `is_late`.

        Raises:
            CallEndedError: it is.
        """
        ...
