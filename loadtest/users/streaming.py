"""Users who watch: progress on the stream that answers their request, or on one that they listen to."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from locust import tag, task

from loadtest.client import Errand
from loadtest.users.base import McpUser
from loadtest.users.ephemeral import CITIES
from loadtest.wire import Answer

TOPICS = ("Weather", "Traffic", "Events", "Food", "History", "Parks")


class StreamingUser(McpUser):
    """Has reports written; progress must rise to the end, and every section be there once, in order."""

    kind = "streaming"
    weight = 1

    @task
    @tag("progress")
    def report(self) -> None:
        """Read the progress on the stream of the request itself."""
        self.mcp.call(self._errand(tasks=False))

    @task
    @tag("listen")
    def report_as_task(self) -> None:
        """Let it become a task, and listen to that."""
        self.mcp.call(self._errand(tasks=True))

    def _errand(self, *, tasks: bool) -> Errand:
        city, sections = random.choice(CITIES), int(self.option("report_sections"))

        def check(answer: Answer) -> str | None:
            return wrong_progress(answer.progress, sections, of_task=tasks) or wrong_sections(answer, city, sections)

        arguments = {"city": city, "sections": sections}
        return Errand("report", arguments, check, tasks=tasks, listens=tasks, progress=not tasks)


def wrong_progress(told: Sequence[Mapping[str, Any]], sections: int, *, of_task: bool) -> str | None:
    """Tell what is wrong with the progress of a report: it has to rise, up to the number of sections.

    A task is told of for other reasons too, and a listener may have missed something of it.
    """
    numbers = [params.get("progress", 0) for params in told]
    complete = of_task or numbers[-1:] == [sections]
    if not complete or any(params.get("total") != sections for params in told):
        return f"progress was told as {numbers}, not up to {sections}"
    if any(before > after or (before == after and not of_task) for before, after in pairwise(numbers)):
        return f"progress did not rise: {numbers}"
    return None


def wrong_sections(answer: Answer, city: str, sections: int) -> str | None:
    """Tell what is wrong with the text of a report."""
    expected = [
        f"{number}. {TOPICS[(number - 1) % len(TOPICS)]} in {city}: nothing to complain about."
        for number in range(1, sections + 1)
    ]
    return None if answer.texts == expected else f"got {answer.texts!r:.200}, not {sections} sections about {city}"
