"""The segments of one result, checked as they come: 1, 2, 3, … and each once, as clients rely on. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loadtest.draft_wire import RELATED_TASK, SEGMENTS


@dataclass(slots=True)
class Segments:
    """The segments of a result read so far, over all connections.

    Attributes:
        task_id: the task of the result; empty before the first response.
        blocks: the content of the segments in order, without their numbers.
        complete: whether the server has marked the result as complete.
    """

    task_id: str = ""
    blocks: list[Mapping[str, Any]] = field(default_factory=list)
    complete: bool = False

    def add(self, result: Mapping[str, Any]) -> str | None:
        """Add the segments of one response; return what is wrong with it, or None.

        No response repeats segments, so the first number that is not the next one is a fault of the server.
        """
        problem = self._not_its_own(result)
        for segment in [] if problem else result[SEGMENTS]:
            problem = problem or self._add(segment)
        self.complete = result.get("isComplete") is True
        return problem

    def _not_its_own(self, result: Mapping[str, Any]) -> str | None:
        meta = result.get("_meta")
        related = meta.get(RELATED_TASK) if isinstance(meta, dict) else None
        task_id = related.get("taskId") if isinstance(related, dict) else None
        if not isinstance(result.get(SEGMENTS), list):
            return f"{SEGMENTS} is not a list"
        if not isinstance(task_id, str) or self.task_id not in ("", task_id):
            return f"segments of the task {task_id!r:.200}, not of {self.task_id or 'any'}"
        if self.complete:
            return "a response with segments after the complete one"
        self.task_id = task_id
        return None

    def _add(self, segment: Any) -> str | None:
        number = segment.get("seqNr") if isinstance(segment, dict) else None
        if type(number) is not int or number < 1:
            return f"a segment without a number: {segment!r:.200}"
        following = len(self.blocks) + 1
        if number < following:
            return f"segment {number} came again or too late: expected {following}"
        if number > following:
            return f"segment {following} is missing: got {number}"
        self.blocks.append({name: value for name, value in segment.items() if name != "seqNr"})
        return None

    def differ_from(self, content: Any) -> str | None:
        """Return how the content of the whole result differs from the segments, or None."""
        if not self.blocks or content == self.blocks:
            return None
        return f"the whole result is {content!r:.200}, but its segments were {self.blocks!r:.200}"
