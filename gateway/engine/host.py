"""Pure: what a leg needs from the process that runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Protocol, TypeVar

from gateway.engine.journal import Checkpoint
from gateway.engine.values import Json

T = TypeVar("T")


class Notices(Protocol):
    """Receives reports from a running leg. May be called from any thread of the host."""

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Report the progress of the leg."""
        ...

    def log(self, level: str, data: Json, logger: str | None) -> None:
        """Send a message to the client's developer."""
        ...


class Keeper(Protocol):
    """Stores what a leg learns while it runs: the carrier of a task. An ephemeral call has none.

    Any exception ends the leg at once: what could not be stored must not become part of the call.
    """

    async def keep_step(self, key: str, value: Json) -> None:
        """Store the result of a step; it is durable when this returns."""
        ...

    async def keep_emit(self, number: int, block: dict[str, Any]) -> None:
        """Store the `number`-th block that the call emits, from 1; it is durable when this returns."""
        ...

    async def keep_checkpoint(self, checkpoint: Checkpoint) -> bool:
        """Store a checkpoint, now or with the next thing stored.

        Return whether the leg should end here, so another process can continue.
        """
        ...

    async def keep_slot(self, slot: dict[str, Any]) -> None:
        """Store where a relay stands; it is durable when this returns."""
        ...


class Host(Protocol):
    """Threads, yielding and time limits of the process that runs a leg.

    The engine uses this protocol, so it imports no event loop. Replicas, workers and the testing helper provide their
    own implementations.
    """

    @property
    def replica_id(self) -> str:
        """The name of this replica or worker, for people."""
        ...

    def changed(self, what: str) -> None:
        """Announce that a list or the content of a resource has changed. May be called from any thread."""
        ...

    async def run_sync(self, function: Callable[..., T], *args: Any, caller: Hashable = None) -> T:
        """Run a blocking function in a bounded pool of threads that callers share; a `caller` of None is anonymous."""
        ...

    async def yield_now(self) -> None:
        """Let everything else that is ready run once."""
        ...

    async def park(self) -> None:
        """Suspend the caller for good, at no cost. Must suspend even a coroutine that is being closed."""
        ...

    def time(self) -> float:
        """Return the time in seconds, on a clock that never goes back."""
        ...

    async def bounded(
        self, leg: Awaitable[T], began: float | None = None, *, limited: bool = True, seconds: float | None = None
    ) -> T:
        """Await `leg` within this host's time limit, or `seconds` if that is less, from `began` (see `time`) or now.

        A leg that is not `limited` has no time limit here, because it keeps one of its own.

        An `Exception` of the leg and the engine's stop signal pass through, and so does the cancellation of the task
        that awaits this.

        Raises:
            LegTimedOut: the limit passed first; `leg` was cancelled.
            LegCrashed: the leg raised any other `BaseException`; no call may end the process or its task.
        """
        ...
