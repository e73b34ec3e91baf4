"""Pure: what a leg needs from the process that runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Protocol, TypeVar

from gateway.engine.journal import Checkpoint
from gateway.engine.values import Json

T = TypeVar("T")


class Notices(Protocol):
    """Where a leg tells of itself while it runs. May be called from any thread of the host."""

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Tell how far the leg is."""
        ...

    def log(self, level: str, data: Json, logger: str | None) -> None:
        """Tell the client's developer something."""
        ...


class Keeper(Protocol):
    """Keeps what a leg learns while it runs: the carrier of a task. An ephemeral call has none.

    Whatever it raises ends the leg at once: what it could not keep must not become part of the call.
    """

    async def keep_step(self, key: str, value: Json) -> None:
        """Keep the result of a step; it is durable when this returns."""
        ...

    async def keep_emit(self, number: int, block: dict[str, Any]) -> None:
        """Keep the `number`-th block that the call emits, from 1; it is durable when this returns."""
        ...

    async def keep_checkpoint(self, checkpoint: Checkpoint) -> bool:
        """Keep a checkpoint, now or with the next thing kept.

        Returns:
            Whether the leg is to end here, so that another process goes on.
        """
        ...


class Host(Protocol):
    """Threads, yielding and time limits of the process that runs a leg.

    The engine is written against this protocol so that it imports no event loop; replicas, workers and
    the testing helper bring their own.
    """

    @property
    def replica_id(self) -> str:
        """The name of this replica or worker, for people."""
        ...

    def changed(self, what: str) -> None:
        """Announce that a list, or what a resource reads, has changed. May be called from any thread."""
        ...

    async def run_sync(self, function: Callable[..., T], *args: Any, caller: Hashable = None) -> T:
        """Run a blocking function in a bounded pool of threads, which callers share; None is the anonymous one."""
        ...

    async def yield_now(self) -> None:
        """Let everything else that is ready run once."""
        ...

    async def park(self) -> None:
        """Suspend the caller for good, at no cost. Must suspend even a coroutine that is being thrown away."""
        ...

    def time(self) -> float:
        """Return the time in seconds, by a clock that never goes back."""
        ...

    async def bounded(self, leg: Awaitable[T], began: float | None = None) -> T:
        """Await `leg` within the time limit of this host, which counts from `began` (see `time`), or from now.

        An `Exception` of the leg and the engine's own stop signal pass through, and so does the
        cancellation of the task that awaits this.

        Raises:
            LegTimedOut: the limit passed first; `leg` was cancelled.
            LegCrashed: the leg raised any other `BaseException`; no call may end the process or its task.
        """
        ...
