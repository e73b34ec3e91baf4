"""The outside services that a running call needs: traces, and decisions to shed."""

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
        """Record how the leg ended, and the id of the task that the call became in it."""
        ...


class Tracing(Protocol):
    """Reports activity to a trace collector. It raises nothing and never blocks."""

    async def request(self, message: Request | Notification, headers: Headers, answering: Awaitable[T]) -> T:
        """Trace a request while it is answered; return the answer."""
        ...

    def leg(self, journal: Journal, name: str, *, nested: bool) -> LegTrace:
        """Trace a leg of the current request's call, until `LegTrace.end`.

        The first leg records the call's trace in `journal`. `name` may be the URI of a resource or of its template. A
        `nested` request may have several legs.
        """
        ...

    def task_leg(self, tool: str, task_id: str, journal: Mapping[str, Any]) -> LegTrace:
        """Trace a leg of a task, until `LegTrace.end`; `journal` is in its stored form (`Journal.to_map`)."""
        ...

    async def step(self, key: str, running: Awaitable[T]) -> T:
        """Trace a step of a leg while it runs; return its result."""
        ...

    async def close(self) -> None:
        """Send what has not been sent yet, within a short time."""
        ...


class Shedding(Protocol):
    """Decides which legs should end early, so another replica can continue with what they have learned."""

    def wants_shed(self, began: float) -> bool:
        """Return whether a leg begun at `began` (monotonic) should end at its checkpoint. If so, the caller ends it."""
        ...
