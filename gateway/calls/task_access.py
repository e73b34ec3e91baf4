"""How callers reach their tasks, on any wire.

A task is visible only to its owner. For anyone else who learned its id, the id is unknown.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from gateway.authoring.forms.questions import wire_ask
from gateway.engine.questions import Answer, InvalidAnswer
from gateway.errors import AskError, InsufficientScope, InvalidParams, ValueTooLarge
from gateway.observability.audit import AuditLog
from gateway.protocol.caller import Caller
from gateway.registry.registry import Registry
from gateway.registry.relayed import forwarded_question
from gateway.tasks.model import TaskView, WireQuestion
from gateway.tasks.ports import TaskPage, TaskPlaceMark

if TYPE_CHECKING:  # a process without a task store never loads redis, which takes memory
    from gateway.storage import RedisTaskStore

_PAGE: Final = 250
"""The number of tasks that one command reads."""


class TaskAccess:
    """Reads, answers, cancels and deletes tasks for their owners.

    The audit log gets answers, cancellations and deletions, but no reads: clients poll.
    """

    def __init__(self, store: RedisTaskStore, audit: AuditLog) -> None:
        self._store = store
        self._audit = audit

    async def find(self, task_id: str, caller: Caller, registry: Registry) -> TaskView | None:
        """Return a task of the caller, None if there is no such task.

        Raises:
            InsufficientScope: the caller's token lacks a scope that the tool requires now, or required at the task's
                creation.
            TaskStoreDown: the store does not answer.
        """
        view = await self.read(task_id, caller)
        if view is None or not _can_be_judged(view, registry):
            return None
        scopes = scopes_of(view, registry)
        if not caller.grants(scopes):
            raise InsufficientScope(scopes)
        return view

    async def read(self, task_id: str, caller: Caller) -> TaskView | None:
        """Return a task that the caller has reached before, None if it no longer exists."""
        return await self._store.get(await self.owner(caller), task_id)

    async def page(self, after: TaskPlaceMark | None, limit: int, caller: Caller, registry: Registry) -> TaskPage:
        """Return the next page of the caller's tasks, without those whose tool the caller may no longer use."""
        page = await self._store.page(await self.owner(caller), after, limit)
        return TaskPage([view for view in page.views if _may_reach(view, caller, registry)], page.last)

    async def newest(self, limit: int, caller: Caller, registry: Registry) -> list[TaskView]:
        """Return the newest of the caller's tasks, newest first, without those whose tool the caller may no longer use.

        All of the caller's tasks are read, in brief: the store has them in the order in which they expire.
        """
        views: list[TaskView] = []
        page = await self.page(None, _PAGE, caller, registry)
        views += page.views
        while page.last is not None:
            page = await self.page(page.last, _PAGE, caller, registry)
            views += page.views
        return sorted(views, key=lambda view: view.created_ms, reverse=True)[:limit]

    async def of_request(self, request: str, caller: Caller) -> str | None:
        """Return the id of the task that a request of the caller created."""
        return await self._store.of_request(await self.owner(caller), request)

    async def segments(self, task_id: str, caller: Caller, after: int = 0) -> Sequence[Mapping[str, object]]:
        """Return the blocks that a task emitted after a segment."""
        return await self._store.segments(await self.owner(caller), task_id, after)

    async def answer(
        self, view: TaskView, answers: Mapping[str, Answer], caller: Caller, method: str
    ) -> TaskView | None:
        """Record answers that `fits` accepted; return the task after that.

        Raises:
            AuditLogDown: the audit log could not be written, so nothing was recorded.
            InvalidParams: an answer is too large to store; the message names its key.
        """
        self._audit.require()
        after: TaskView | None = view
        if answers:
            try:
                after = await self._store.answer(await self.owner(caller), view.task_id, answers)
            except ValueTooLarge as error:
                raise InvalidParams(str(error)) from None
        self._note(method, caller, after)
        return after

    async def deliver(self, task_id: str, stream: str, ms: int, caller: Caller) -> bool:
        """Take or extend the right to deliver a task's questions; see `RedisTaskStore.deliver`."""
        return await self._store.deliver(await self.owner(caller), task_id, stream, ms)

    async def cancel(self, task_id: str, caller: Caller, method: str, *, withdrawn: bool = False) -> TaskView | None:
        """Cancel a task; a task that has ended stays as it is.

        `withdrawn` says whether the request that created it was cancelled; see `RedisTaskStore.cancel`.

        Raises:
            AuditLogDown: the audit log could not be written, so nothing was cancelled.
        """
        self._audit.require()
        view = await self._store.cancel(await self.owner(caller), task_id, withdrawn=withdrawn)
        self._note(method, caller, view)
        return view

    async def delete(self, task_id: str, caller: Caller, method: str, *, chosen: bool) -> TaskView | None:
        """Delete a task, in any phase; return it as it was.

        `chosen` says whether the client chose the id; see `RedisTaskStore.delete`.

        Raises:
            AuditLogDown: the audit log could not be written, so nothing was deleted.
        """
        self._audit.require()
        view = await self._store.delete(await self.owner(caller), task_id, chosen=chosen)
        self._note(method, caller, view)
        return view

    async def own(self, task_ids: Sequence[str], caller: Caller, registry: Registry) -> tuple[TaskView, ...]:
        """Return those of the tasks that the caller may see, in brief.

        Raises:
            TaskStoreDown: the store does not answer.
        """
        views: list[TaskView] = []
        for first in range(0, len(task_ids), _PAGE):
            views += await self._store.briefs(await self.owner(caller), task_ids[first : first + _PAGE])
        return tuple(view for view in views if _may_reach(view, caller, registry))

    async def watch(self, task_ids: Collection[str], caller: Caller) -> AsyncGenerator[str, None]:
        """Yield ids of tasks that should be read again, each id once at first; see `RedisTaskStore.watch`."""
        async with contextlib.aclosing(self._store.watch(await self.owner(caller), task_ids)) as hints:
            async for task_id in hints:
                yield task_id

    async def owner(self, caller: Caller) -> str:
        """Return the store's name for the caller."""
        return await self._store.owner(caller.principal)

    def _note(self, method: str, caller: Caller, view: TaskView | None) -> None:
        if view is not None:
            self._audit.task(caller.principal, method, view.tool, task=view.task_id, phase=view.phase.value)


def misfit(question: WireQuestion, answer: Answer) -> str | None:
    """Return why an answer does not fit the question, or None if it does. Declining is an answer.

    The reason has nothing from the answer, because refusals are logged.
    """
    try:
        if question.forwarded:
            forwarded_question(question.method, question.params).read(answer)
        else:
            wire_ask(question.method, question.params, question.digest).question(question.key).read(answer)
    except InvalidAnswer as invalid:
        return invalid.unquoted
    except AskError:
        pass
    return None


def scopes_of(view: TaskView, registry: Registry) -> frozenset[str]:
    """Return the scopes needed to reach a task: those its tool required at its creation, and those it requires now."""
    tool = registry.find_tool(view.tool)
    return view.scopes if tool is None else view.scopes | tool.scopes


def _may_reach(view: TaskView, caller: Caller, registry: Registry) -> bool:
    return _can_be_judged(view, registry) and caller.grants(scopes_of(view, registry))


def _can_be_judged(view: TaskView, registry: Registry) -> bool:
    """Return whether the scopes of a task are known, from its record or from the tool that is served now.

    A record that does not even name its tool reveals nothing, so its owner may see that it cannot be read.
    """
    return view.opened or not view.tool or registry.find_tool(view.tool) is not None
