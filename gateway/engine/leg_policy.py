"""Pure: what the operator decides about every leg, in a replica and in a worker alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.engine.values import MAX_VALUE_BYTES

if TYPE_CHECKING:
    from gateway.settings.model import Settings


@dataclass(frozen=True, slots=True)
class LegPolicy:
    """Settings that legs keep to. None has a default, so that no process can forget one.

    Attributes:
        strict_asks: whether a function that declares its questions may ask only those.
        show_errors: whether callers learn what went wrong in the author's code, and where. Only for development.
        max_answers: how many answers one leg may carry. A worker's legs carry none.
        tool_headers: the request headers that functions see, in lower case.
        max_result_bytes: of an author's result or message, as JSON, if a call waits for it. The task store has its own.
    """

    strict_asks: bool
    show_errors: bool
    max_answers: int
    tool_headers: tuple[str, ...]
    max_result_bytes: int

    @classmethod
    def of(cls, settings: Settings) -> LegPolicy:
        """Return what the settings decide."""
        return LegPolicy(
            strict_asks=settings.strict_asks,
            show_errors=settings.show_errors,
            max_answers=settings.max_answers,
            tool_headers=settings.tool_headers,
            max_result_bytes=settings.max_result_bytes,
        )

    @classmethod
    def strict(cls) -> LegPolicy:
        """Return what holds in authors' tests: they find questions that are not declared, and see all errors."""
        # Without settings, whose import would take a test too long. Answers come from no client: nothing counts them.
        return LegPolicy(
            strict_asks=True, show_errors=True, max_answers=1, tool_headers=(), max_result_bytes=MAX_VALUE_BYTES
        )
