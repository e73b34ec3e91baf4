"""Pure: the segments of a streamed result as a client keeps them: each number once, in whatever order they come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class SegmentError(ValueError):
    """The server sent something that is not part of a streamed result."""


@dataclass(slots=True)
class SegmentTracker:
    """The part of one task's streamed result that has arrived, by any mechanism.

    Attributes:
        duplicates: each `seqNr` that came again, as often as it did.
        conflicts: those of them that came with another content; the first one counts.
    """

    task_id: str
    segments: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    duplicates: list[int] = field(default_factory=list)
    conflicts: list[int] = field(default_factory=list)
    is_complete: bool = False
    is_error: bool = False

    @property
    def received_seq_nrs(self) -> frozenset[int]:
        """The numbers that have arrived."""
        return frozenset(self.segments)

    @property
    def highest_seq_nr(self) -> int:
        """The highest number that has arrived, 0 before the first."""
        return max(self.segments, default=0)

    @property
    def missing(self) -> list[int]:
        """The gaps: the numbers below the highest one that have not arrived."""
        return [number for number in range(1, self.highest_seq_nr) if number not in self.segments]

    @property
    def last_seq_nr(self) -> int:
        """The `lastSeqNr` to continue from: the last number before the first gap, 0 if the first segment is missing."""
        return next(iter(self.missing), self.highest_seq_nr + 1) - 1

    @property
    def whole(self) -> bool:
        """Whether everything has arrived: the server says so, and there is no gap."""
        return self.is_complete and not self.missing

    def add(self, result: Mapping[str, Any]) -> list[int]:
        """Take in one response with `partial-content`; return the numbers that are new.

        Raises:
            SegmentError: it has no list of numbered blocks, or does not say whether it is the last.
        """
        blocks, is_complete = result.get("partial-content"), result.get("isComplete")
        if not isinstance(blocks, list) or not isinstance(is_complete, bool):
            raise SegmentError(f"not a streaming response: {result}")
        new = [block["seqNr"] for block in blocks if self._keep(block)]
        self.is_complete = self.is_complete or is_complete
        self.is_error = self.is_error or result.get("isError") is True
        return new

    def _keep(self, block: Any) -> bool:
        """Keep a segment; return whether it is new."""
        number = block.get("seqNr") if isinstance(block, dict) else None
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise SegmentError(f"`seqNr` has to be a positive integer: {block}")
        if number not in self.segments:
            self.segments[number] = block
            return True
        self.duplicates.append(number)
        if self.segments[number] != block:
            self.conflicts.append(number)
        return False

    def merged(self) -> list[dict[str, Any]]:
        """Return what has arrived as the `content` of an ordinary result: by number, without the numbers."""
        return [
            {name: value for name, value in self.segments[number].items() if name != "seqNr"}
            for number in sorted(self.segments)
        ]
