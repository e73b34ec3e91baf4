"""What running a call needs from outside: traces, and who says that a leg should end early."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, Protocol, TypeVar

from gateway.engine.journal import Journal
from gateway.protocol.headers import Headers
from gateway.protocol.jsonrpc import Notification, Request

T = TypeVar("T")


class LegTrace(Protocol):
    """The trace of one leg while it runs."""

    def end(self, outcome: str, task_id: str = "") -> None:
        """Tell how the leg ended, and the id of the task that the call has become in it."""
        ...


class Tracing(Protocol):
    """Tells a collector of traces what is done. It raises nothing and waits for nobody."""

    async def request(self, message: Request | Notification, headers: Headers, answering: Awaitable[T]) -> T:
        """Trace a request while it is answered; return what the answer is."""
        ...

    def leg(self, journal: Journal, name: str, *, nested: bool) -> LegTrace:
        """Trace a leg of the call that the request at hand is for, until `LegTrace.end`.

        Args:
            journal: says which trace the call belongs to; told so in the first leg.
            name: that of the tool or prompt; the URI of the resource, or of its template.
            nested: whether the request may have several legs.
        """
        ...

    def task_leg(self, tool: str, task_id: str, journal: Mapping[str, Any]) -> LegTrace:
        """Trace a leg of a task, until `LegTrace.end`; `journal` is as it rests (`Journal.to_map`)."""
        ...

    async def step(self, key: str, running: Awaitable[T]) -> T:
        """Trace a step of a leg while it runs; return what it returns."""
        ...

    async def close(self) -> None:
        """Hand over what is not handed over yet, within a short time."""
        ...


class Shedding(Protocol):
    """Tells which legs should end early, so that another replica goes on with what they have learned."""

    def wants_shed(self, began: float) -> bool:
        """Tell whether a leg should end at its checkpoint. One that is told so does end.

        Args:
            began: when it began, on the monotonic clock.
        """
        ...
