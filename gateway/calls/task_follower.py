"""Follows tasks for the streams of this process that wait for them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Hashable, Mapping, Sequence
from typing import Any, Final

from gateway.calls.authority import Authorities
from gateway.calls.changes import ChangeHub, Subscription
from gateway.calls.task_access import TaskAccess, scopes_of
from gateway.errors import TaskStoreDown
from gateway.protocol.caller import Caller
from gateway.runtime.background import task_running
from gateway.tasks.model import Phase, TaskView

log = logging.getLogger(__name__)

_TIMES = frozenset({"lastUpdatedAt", "pollIntervalMs", "pollInterval", "pollFrequency"})

_EXPIRED_SECONDS: Final = 0.05
"""How long after its expiry a task is read again: the store must have deleted it by then."""

_OVERDUE_SECONDS: Final = 5.0
"""How long after it was read a task is read again that should have expired before."""


class TaskFollower:
    """Reads a task again each time it may have changed.

    Its streams end when this replica drains, or when their authority has ended.
    """

    def __init__(self, access: TaskAccess, changes: ChangeHub, authorities: Authorities) -> None:
        self._access = access
        self._changes = changes
        self._authorities = authorities

    async def views(self, task: TaskView, caller: Caller) -> AsyncGenerator[TaskView | None, None]:
        """Yield the task as it is, then again whenever it may have changed; None once it is gone.

        The generator ends after a task that has ended or is gone. It ends earlier only if this replica drains, or if
        the caller may no longer reach the task. Close it (`contextlib.aclosing`) when done.
        """
        task_ids = (task.task_id,)
        subscription = self._changes.subscribe(task_ids)
        expiry = _Expiry(lambda: subscription.notify(task.task_id))
        try:
            with self._authorities.watching(caller, lambda now: scopes_of(task, now), subscription.cut):
                async with pumping(self._access, task_ids, caller, subscription, str):
                    while await subscription.changed():
                        subscription.take()
                        try:
                            view = await self._access.read(task.task_id, caller)
                        except TaskStoreDown:
                            continue  # the store is asked again in a few seconds
                        if not self.may_be_reported(task, caller):
                            return
                        yield view
                        if view is None or view.phase.ended:
                            return
                        expiry.expect(view)
        finally:
            expiry.cancel()
            self._changes.unsubscribe(subscription)

    async def soon(self, task: TaskView, caller: Caller, seconds: float) -> TaskView:
        """Return the task once it has ended or asks a question, or else as it is after a time."""
        latest = task
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), contextlib.aclosing(self.views(task, caller)) as views:
                async for view in views:
                    latest = view or latest
                    if latest.phase.ended or not latest.opened or latest.phase is Phase.WAITING:
                        break
        return latest

    def may_be_reported(self, task: TaskView, caller: Caller) -> bool:
        """Return whether the caller may still reach a task. Check again after each wait for the store."""
        return self._authorities.hold(caller, lambda now: scopes_of(task, now))


class _Expiry:
    """Triggers a read when a task expires, because the store sends no hint of that."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._timer: asyncio.TimerHandle | None = None

    def expect(self, view: TaskView) -> None:
        """Set the timer to the task's expiry, as it is now."""
        self.cancel()
        left = (view.expires_ms - view.now_ms) / 1000
        # A task that outlives its expiry has a damaged record.
        seconds = left + _EXPIRED_SECONDS if left > 0 else _OVERDUE_SECONDS
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def cancel(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()


def timeless(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task's fields without those that change although nothing has happened, for comparisons."""
    return {name: value for name, value in told.items() if name not in _TIMES}


def pumping(
    access: TaskAccess,
    task_ids: Sequence[str],
    caller: Caller,
    subscription: Subscription,
    topic: Callable[[str], Hashable],
) -> contextlib.AbstractAsyncContextManager[None]:
    """Pass the store's hints on to a subscription while the context is open."""
    return task_running(_pump(access, task_ids, caller, subscription, topic))


async def _pump(
    access: TaskAccess,
    task_ids: Sequence[str],
    caller: Caller,
    subscription: Subscription,
    topic: Callable[[str], Hashable],
) -> None:
    try:
        async with contextlib.aclosing(access.watch(task_ids, caller)) as hints:
            async for task_id in hints:
                subscription.notify(topic(task_id))
    except TaskStoreDown:
        log.warning("a stream of tasks ends, because the task store is not available")
    except Exception:
        log.exception("watching tasks failed; the stream ends")
        raise
    finally:
        # Without hints the stream would be silent, so it ends and its client opens a new one.
        subscription.close()
