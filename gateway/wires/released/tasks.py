"""`tasks/get`, `tasks/update` and `tasks/cancel` of the released wire."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from gateway.calls.task_access import TaskAccess, misfit
from gateway.calls.task_follower import TaskFollower
from gateway.engine.capabilities import supports
from gateway.engine.questions import Answer
from gateway.errors import InvalidParams, MissingCapability, RpcError, TooManyStreams
from gateway.protocol.caller import Caller
from gateway.protocol.capabilities import TASKS
from gateway.protocol.fields import quote
from gateway.protocol.released.results import ResultWriter, read_answers
from gateway.protocol.released.tasks import detailed_task, not_found, read_task_id, read_task_update, task_meta
from gateway.protocol.requests import McpRequest
from gateway.tasks.model import TaskView, WireQuestion
from gateway.wires.methods import Handler, Incoming, Methods
from gateway.wires.replies import Reply


def require_tasks(request: McpRequest) -> None:
    """Raise `MissingCapability` unless the client declared the tasks extension."""
    if not supports(request.capabilities, TASKS):
        raise MissingCapability(TASKS)


class ReleasedTasks:
    """Answers the extension's requests."""

    def __init__(self, methods: Methods, access: TaskAccess, results: ResultWriter, follower: TaskFollower) -> None:
        self._methods = methods
        self._access = access
        self._results = results
        self._follower = follower

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The handlers, by method."""
        return {"tasks/get": self.get, "tasks/update": self.update, "tasks/cancel": self.cancel}

    async def result_within(self, incoming: Incoming, created: TaskView, seconds: float) -> dict[str, Any] | None:
        """Return the result of a new task if it ends with one in time, else None: the task itself is the answer then.

        If the task ended in time with an error, this raises that error.
        """
        view = created
        with contextlib.suppress(TooManyStreams), incoming.client.waiting():
            view = await self._follower.soon(created, incoming.caller, seconds)
        if view.error is not None:
            raise RpcError(view.error["code"], view.error["message"], view.error.get("data"))
        return None if view.result is None else self._results.complete(view.result)

    async def get(self, incoming: Incoming) -> Reply:
        """Answer `tasks/get`.

        Raises:
            MissingCapability: the client did not declare the extension.
            InvalidParams: the caller has no such task.
            InsufficientScope: the caller's token no longer grants the tool's scopes.
            TaskStoreDown: the store does not answer.
        """
        require_tasks(incoming.request)
        view = await self._find(read_task_id(incoming.request.params), incoming.caller)
        return incoming.answered(self._results.complete(detailed_task(view), task_meta(view)))

    async def update(self, incoming: Incoming) -> Reply:
        """Answer `tasks/update`: record the answers to open questions. If one does not match, none is recorded.

        Raises:
            InvalidParams: an answer does not match its question, or is too large to store; the message names its key.
            RpcError: see `get`.
        """
        request, caller = incoming.request, incoming.caller
        require_tasks(request)
        wanted = read_task_update(request.params)
        view = await self._find(wanted.task_id, caller)
        answers = _fitting(wanted.input_responses, view.questions)
        _found(await self._access.answer(view, answers, caller, request.method))
        return incoming.answered(self._results.complete({}))

    async def cancel(self, incoming: Incoming) -> Reply:
        """Answer `tasks/cancel`. A task that has ended does not change. For errors, see `get`."""
        request, caller = incoming.request, incoming.caller
        require_tasks(request)
        view = await self._find(read_task_id(request.params), caller)
        _found(await self._access.cancel(view.task_id, caller, request.method))
        return incoming.answered(self._results.complete({}))

    async def _find(self, task_id: str, caller: Caller) -> TaskView:
        return _found(await self._access.find(task_id, caller, self._methods.registry))


def _found(view: TaskView | None) -> TaskView:
    if view is None:
        raise not_found()
    return view


def _fitting(responses: Mapping[str, Any], questions: Mapping[str, WireQuestion]) -> dict[str, Answer]:
    """Return the answers to these questions, and ignore all others. A mismatch raises `InvalidParams`."""
    asked = {key: response for key, response in responses.items() if key in questions}
    answers = read_answers(asked)
    for key in asked:
        reason = misfit(questions[key], answers.get(key, {}))
        if reason is not None:
            raise InvalidParams(f"params.inputResponses[{quote(key)}] does not match what was asked. {reason}".rstrip())
    return answers
