"""`tasks/get`, `tasks/update` and `tasks/cancel` of the released wire, and what a listener is told of tasks.

A task is found by its owner alone: an id that somebody else learned is an unknown one to them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from typing import Any

from gateway.audit import AuditLog
from gateway.authoring.questions import wire_ask
from gateway.authoring.registry import Registry
from gateway.engine.questions import Answer, InvalidAnswer
from gateway.errors import AskError, InsufficientScope, InvalidParams, MissingCapability, ValueTooLarge
from gateway.ports import Caller, TaskStore
from gateway.protocol.capabilities import TASKS, supports
from gateway.protocol.fields import quote
from gateway.protocol.released.results import ResultWriter, read_answers
from gateway.protocol.released.tasks import detailed_task, not_found, read_task_id, read_task_update, task_meta
from gateway.protocol.requests import McpRequest
from gateway.sealing.binding import owner
from gateway.tasks.model import TaskView, WireQuestion


def require_tasks(request: McpRequest) -> None:
    """Let only requests through whose client declared the extension.

    Raises:
        MissingCapability: it did not.
    """
    if not supports(request.capabilities, TASKS):
        raise MissingCapability(TASKS)


class TaskMethods:
    """Answers the extension's requests.

    Args:
        store: where the tasks are.
        results: writes results.
        audience: the name all replicas of this deployment share; part of who owns a task.
        audit: notes who answers and cancels. Reading is not noted: clients poll.
    """

    def __init__(self, store: TaskStore, results: ResultWriter, audience: str, audit: AuditLog) -> None:
        self._store = store
        self._results = results
        self._audience = audience
        self._audit = audit

    async def get(self, request: McpRequest, caller: Caller, registry: Registry) -> dict[str, Any]:
        """Answer `tasks/get`.

        Raises:
            MissingCapability: the client did not declare the extension.
            InvalidParams: the caller has no such task.
            InsufficientScope: the caller's token no longer grants what the tool asks for.
            TaskStoreDown: the store does not answer.
        """
        require_tasks(request)
        view = await self._find(read_task_id(request.params), caller, registry)
        return self._results.complete(detailed_task(view), task_meta(view))

    async def update(self, request: McpRequest, caller: Caller, registry: Registry) -> dict[str, Any]:
        """Answer `tasks/update`: record answers to what is asked now, all of them or, if one does not fit, none.

        Raises:
            InvalidParams: an answer does not fit its question, or is too large to be kept; the message names its key.
            RpcError: like `get`.
        """
        require_tasks(request)
        wanted = read_task_update(request.params)
        view = await self._find(wanted.task_id, caller, registry)
        answers = _fitting(wanted.input_responses, view.questions)
        if answers:
            try:
                view = _found(await self._store.answer(self._owner(caller), wanted.task_id, answers))
            except ValueTooLarge as error:
                raise InvalidParams(str(error)) from None
        return self._done(request, caller, view)

    async def cancel(self, request: McpRequest, caller: Caller, registry: Registry) -> dict[str, Any]:
        """Answer `tasks/cancel`; a task that has ended stays as it is.

        Raises:
            RpcError: like `get`.
        """
        require_tasks(request)
        view = await self._find(read_task_id(request.params), caller, registry)
        return self._done(request, caller, _found(await self._store.cancel(self._owner(caller), view.task_id)))

    async def own(self, task_ids: Sequence[str], caller: Caller, registry: Registry) -> tuple[str, ...]:
        """Return those tasks that the caller may hear of.

        Raises:
            TaskStoreDown: the store does not answer.
        """
        views = [await self._store.get(self._owner(caller), task_id) for task_id in task_ids]
        return tuple(view.task_id for view in views if view is not None and _may_reach(view, caller, registry))

    def watch(self, task_ids: Collection[str], caller: Caller) -> AsyncGenerator[str, None]:
        """Yield ids of tasks that are to be read again, each one first; see `TaskStore.watch`."""
        return self._store.watch(self._owner(caller), task_ids)

    async def read(self, task_id: str, caller: Caller) -> TaskView | None:
        """Return a task of the caller, or None if there is no such task any more."""
        return await self._store.get(self._owner(caller), task_id)

    async def _find(self, task_id: str, caller: Caller, registry: Registry) -> TaskView:
        view = _found(await self._store.get(self._owner(caller), task_id))
        if not _may_reach(view, caller, registry):
            raise InsufficientScope(registry.tools[view.tool].scopes)
        return view

    def _done(self, request: McpRequest, caller: Caller, view: TaskView) -> dict[str, Any]:
        """Note what was done with a task, and acknowledge it."""
        self._audit.task(caller.principal, request.method, view.tool, task=view.task_id, phase=view.phase.value)
        return self._results.complete({})

    def _owner(self, caller: Caller) -> str:
        return owner(caller.principal, self._audience)


def _found(view: TaskView | None) -> TaskView:
    if view is None:
        raise not_found()
    return view


def _may_reach(view: TaskView, caller: Caller, registry: Registry) -> bool:
    tool = registry.tools.get(view.tool)
    return tool is None or caller.grants(tool.scopes)


def _fitting(responses: Mapping[str, Any], questions: Mapping[str, WireQuestion]) -> dict[str, Answer]:
    """Return the answers to these questions, leaving out what is not asked.

    Raises:
        InvalidParams: one does not fit what was asked.
    """
    asked = {key: response for key, response in responses.items() if key in questions}
    answers = read_answers(asked)
    for key in asked:
        question = questions[key]
        try:
            wire_ask(question.method, question.params).question(question.key).read(answers.get(key, {}))
        except InvalidAnswer:
            raise InvalidParams(f"params.inputResponses[{quote(key)}] does not fit what was asked") from None
        except AskError:
            pass  # to say no is an answer
    return answers
