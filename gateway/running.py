"""The requests of sessions that this process is working on, so that their clients can cancel them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator


class Cancelled(Exception):
    """The client of a request has cancelled it: there is nothing to answer."""


class RunningRequests:
    """Knows which asyncio task works on which request."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[object]] = {}
        self._cancelled: set[asyncio.Task[object]] = set()

    @contextlib.contextmanager
    def running(self, request: str) -> Iterator[None]:
        """Let the current task be cancelled by the name of its request while the context is open.

        Args:
            request: names the request and its session, see `gateway.sessions.request_digest`.

        Raises:
            Cancelled: by the context: it was.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - requests are served in tasks
        self._tasks[request] = task
        try:
            yield
        except asyncio.CancelledError:
            if task in self._cancelled and task.uncancel() == 0:
                raise Cancelled from None
            raise
        finally:
            self._cancelled.discard(task)
            if self._tasks.get(request) is task:
                del self._tasks[request]

    def cancel(self, request: str) -> None:
        """Cancel a request, if this process works on it."""
        task = self._tasks.get(request)
        if task is not None and task not in self._cancelled:
            self._cancelled.add(task)
            task.cancel()
