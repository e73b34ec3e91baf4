"""Tasks as they change, told to those who wait for them in this process."""

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
from gateway.tasks.model import TaskView

log = logging.getLogger(__name__)

_TIMES = frozenset({"lastUpdatedAt", "pollIntervalMs", "pollInterval", "pollFrequency"})

_EXPIRED_SECONDS: Final = 0.05
"""How long after a task has expired it is looked for: the store must have forgotten it by then."""


class TaskFollower:
    """Reads one task again and again, each time that it may have changed.

    Args:
        access: reaches the tasks.
        changes: ends who waits when this replica leaves.
        authorities: end who waits by an authority that is over.
    """

    def __init__(self, access: TaskAccess, changes: ChangeHub, authorities: Authorities) -> None:
        self._access = access
        self._changes = changes
        self._authorities = authorities

    async def views(self, task: TaskView, caller: Caller) -> AsyncGenerator[TaskView | None, None]:
        """Yield the task as it is, then again whenever it may have changed; None once it is gone.

        Ends after a task that has ended or is gone, and before that only when this replica leaves or the caller may not
        reach the task any more. Close it (`contextlib.aclosing`) when done.
        """
        task_ids = (task.task_id,)
        subscription = self._changes.subscribe(task_ids)
        expiry = _Expiry(lambda: subscription.notify(task.task_id))
        try:
            with self._authorities.watching(caller, lambda now: scopes_of(task, now), subscription.cut):
                async with pumping(self._access, task_ids, caller, subscription, str):
                    while await subscription.next() is not None:
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

    def may_be_reported(self, task: TaskView, caller: Caller) -> bool:
        """Tell whether the caller may still reach a task; to be asked again after each wait for the store."""
        return self._authorities.hold(caller, lambda now: scopes_of(task, now))


class _Expiry:
    """Has a task read again when it expires, which the store tells nobody.

    Args:
        look: has it read.
    """

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._timer: asyncio.TimerHandle | None = None

    def expect(self, view: TaskView) -> None:
        """Wait until the task expires, as things are now."""
        self.cancel()
        seconds = max((view.expires_ms - view.now_ms) / 1000, 0) + _EXPIRED_SECONDS
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def cancel(self) -> None:
        """Wait no more."""
        if self._timer is not None:
            self._timer.cancel()


def timeless(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is told of a task without what changes of it and is no news, to be compared with another time."""
    return {name: value for name, value in told.items() if name not in _TIMES}


def pumping(
    access: TaskAccess,
    task_ids: Sequence[str],
    caller: Caller,
    subscription: Subscription,
    topic: Callable[[str], Hashable],
) -> contextlib.AbstractAsyncContextManager[None]:
    """Hand the hints of the store to a subscription while the context is open.

    Args:
        access: reaches the tasks.
        task_ids: which ones.
        caller: their owner.
        subscription: is told of each task that may have changed.
        topic: what stands for a task there.
    """
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
    except Exception:
        log.exception("watching tasks failed; the stream ends")
        raise
    finally:
        # Without hints the stream would go silent: its client had better begin a new one.
        subscription.close()
