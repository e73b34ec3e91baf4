"""Users that watch progress, on the reply itself or on a separate stream, or the result as it grows."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from locust import tag, task

from loadtest.errand import Errand
from loadtest.users.base import McpUser
from loadtest.users.ephemeral import CITIES
from loadtest.wire import Answer

TOPICS = ("Weather", "Traffic", "Events", "Food", "History", "Parks")

_user_numbers = itertools.count(1)


class StreamingUser(McpUser):
    """Has reports written; progress must rise to the end, and every section must arrive once, in order."""

    kind = "streaming"
    weight = 1

    def on_start(self) -> None:
        """Start this user's series of breaks, the same in every run with the same seed."""
        super().on_start()
        self._breaks = series_of_breaks(
            self.option("break_seed"), next(_user_numbers), self.option("break_probability")
        )

    @task
    @tag("progress")
    def report(self) -> None:
        """Read the progress on the stream of the request itself."""
        self.mcp.call(self._errand(tasks=False))

    @task
    @tag("listen")
    def report_as_task(self) -> None:
        """Let the call become a task, and listen to it."""
        self.mcp.call(self._errand(tasks=True))

    @task(2)
    @tag("segments")
    def report_in_segments(self) -> None:
        """Read each section as it comes; break the connection now and then, and resume."""
        city, sections = self._order()
        arguments = {"city": city, "sections": sections}
        self.mcp.call(
            Errand("report", arguments, lambda answer: wrong_sections(answer, city, sections), breaks=self._breaks)
        )

    def _order(self) -> tuple[str, int]:
        return random.choice(CITIES), int(self.option("report_sections"))

    def _errand(self, *, tasks: bool) -> Errand:
        city, sections = self._order()

        def check(answer: Answer) -> str | None:
            return wrong_progress(answer.progress, sections, of_task=tasks) or wrong_sections(answer, city, sections)

        arguments = {"city": city, "sections": sections}
        return Errand("report", arguments, check, tasks=tasks, listens=tasks, progress=not tasks)


def series_of_breaks(seed: int, user: int, probability: float) -> Callable[[], bool]:
    """Return a function that decides each time whether to break the connection, the same way for the same seed."""
    chance = random.Random(f"{seed} {user}")
    return lambda: chance.random() < probability


def wrong_progress(told: Sequence[Mapping[str, Any]], sections: int, *, of_task: bool) -> str | None:
    """Return what is wrong with the progress of a report, which must rise to the number of sections, or None.

    A task sends notifications for other reasons too, and a listener may have missed some of them.
    """
    numbers = [params.get("progress", 0) for params in told]
    complete = of_task or numbers[-1:] == [sections]
    if not complete or any(params.get("total") != sections for params in told):
        return f"progress was {numbers}, not up to {sections}"
    if any(before > after or (before == after and not of_task) for before, after in pairwise(numbers)):
        return f"progress did not rise: {numbers}"
    return None


def wrong_sections(answer: Answer, city: str, sections: int) -> str | None:
    """Return what is wrong with the text of a report, or None."""
    expected = [
        f"{number}. {TOPICS[(number - 1) % len(TOPICS)]} in {city}: nothing to complain about."
        for number in range(1, sections + 1)
    ]
    return None if answer.texts == expected else f"got {answer.texts!r:.200}, not {sections} sections about {city}"
