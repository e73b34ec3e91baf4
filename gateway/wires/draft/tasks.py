"""`tasks/*` of the draft wire, for tasks requested with `params.task` and tasks of the first form.

The former report their progress. The latter are written in the format in which they were created.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from gateway.calls.task_access import misfit
from gateway.errors import InvalidParams, Overloaded
from gateway.protocol.caller import Caller
from gateway.protocol.draft import first_form
from gateway.protocol.draft.rounds import read_answers
from gateway.protocol.draft.streaming import partial, read_last_seq_nr, segments_of
from gateway.protocol.fields import quote, require_object
from gateway.protocol.handshake import tasks as ttl_form
from gateway.protocol.handshake.requests import CANCELLED
from gateway.tasks.model import Phase, TaskView
from gateway.wires.handshake.tasks import FIRST_FORM, HandshakeTasks, TaskWords, notify, ttl_words
from gateway.wires.methods import Handler, Incoming
from gateway.wires.replies import Reply

_RELATED_NAMES: Final = (ttl_form.RELATED_TASK, first_form.RELATED_TASK)
"""The names in `_meta` that link a request to a task."""


class DraftTasks(HandshakeTasks):
    """Answers requests about tasks."""

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The handlers, by method."""
        return {
            "tasks/get": self.get,
            "tasks/result": self.result,
            "tasks/list": self.page,
            "tasks/cancel": self.cancel,
            "tasks/delete": self.delete,
            "tasks/input_response": self.input_response,
        }

    def words_of(self, view: TaskView) -> TaskWords:
        """Return the format of a task: the one it was created in, if this wire has it."""
        return _FIRST_WORDS if _is_first_form(view) else _TTL_WORDS

    def described(self, view: TaskView) -> dict[str, Any]:
        """Return a task as the answer to a request about it. The first form also links the answer to the task."""
        return first_form.answer(view) if _is_first_form(view) else super().described(view)

    async def result(self, incoming: Incoming) -> Reply:
        """Answer `tasks/result`: immediately for a task of the first form, otherwise when it ends or asks a question.

        Raises:
            RpcError: the task ended with this error; or see `get`.
            Overloaded: this replica shuts down, or the token has expired; another request can reach the task.
        """
        view = await self._find(incoming)
        if not _is_first_form(view):
            last = read_last_seq_nr(incoming.request.params)
            if last is not None:
                return incoming.answered(await self._segments_after(last, view, incoming.caller))
            if not _has_outcome(view):
                view = await self._wait(view, incoming)
        return incoming.answered(self._outcome(view))

    async def _segments_after(self, last: int, view: TaskView, caller: Caller) -> dict[str, Any]:
        """Return the segments after the client's last one that exist now. There are none if the client is ahead."""
        after = 0 if ttl_form.has_ended(view) else last
        segments = segments_of(view, await self.access.segments(view.task_id, caller, after), after)
        return partial(segments, last, view.task_id)

    async def _wait(self, view: TaskView, incoming: Incoming) -> TaskView:
        stream = self.stream(view, incoming)
        with incoming.client.waiting():
            async with contextlib.aclosing(self.follower.views(view, incoming.caller)) as views:
                async for now in views:
                    if now is None:
                        raise ttl_form.gone()
                    if _has_outcome(now):
                        return now
                    notify(incoming.client, stream.news(now))
        raise Overloaded

    async def delete(self, incoming: Incoming) -> Reply:
        """Answer `tasks/delete`: delete the task, and cancel it if it is running. For errors, see `get`."""
        view = await self._find(incoming)
        chosen = _is_first_form(view)
        await self.access.delete(view.task_id, incoming.caller, incoming.request.method, chosen=chosen)
        return incoming.answered(self.words_of(view).related(view.task_id))

    async def input_response(self, incoming: Incoming) -> Reply:
        """Answer `tasks/input_response`: record the answers that match a question, and ignore the rest.

        If the request names no task or has no answers, or that to a question cannot be read, this raises
        `InvalidParams`; or see `get`.
        """
        request = incoming.request
        view = await self._found(ttl_form.read_related_task(request.params, _RELATED_NAMES), incoming)
        responses = require_object(request.params, "inputResponses")
        answers = read_answers(responses)
        if unreadable := view.questions.keys() & responses.keys() - answers.keys():
            raise InvalidParams(
                f"params.inputResponses[{quote(min(unreadable))}] must be an object with a result or an error"
            )
        fitting = {
            key: answer
            for key, answer in answers.items()
            if key in view.questions and misfit(view.questions[key], answer) is None
        }
        await self.access.answer(view, fitting, incoming.caller, request.method)
        return incoming.answered(self.words_of(view).related(view.task_id))

    async def find_request(self, request: str, caller: Caller) -> str | None:
        """Return the id of the task that a request created, or None. Without its scopes, raise `InsufficientScope`."""
        task_id = await self.access.of_request(request, caller)
        if task_id is None or await self.access.find(task_id, caller, self.methods.registry) is None:
            return None
        return task_id

    async def cancel_request(self, request: str, caller: Caller) -> bool:
        """Cancel the task that a request created, and return whether there is one.

        If the token does not grant the tool's scopes, this raises `InsufficientScope`.
        """
        task_id = await self.find_request(request, caller)
        if task_id is not None:
            await self.access.cancel(task_id, caller, CANCELLED, withdrawn=True)
        return task_id is not None

    async def _find(self, incoming: Incoming) -> TaskView:
        """Return the task that a request names.

        If the caller has no such task, or the `_meta` of a request for a task of the first form names another one, this
        raises `InvalidParams`. For other tasks, the id in the parameters counts (2025-11-25 "Tasks", Related Task
        Metadata).
        """
        view = await super()._find(incoming)
        request = incoming.request
        named = [name for name in _RELATED_NAMES if request.meta.get(name) is not None]
        if named and _is_first_form(view) and ttl_form.read_related_task(request.params, named) != view.task_id:
            raise InvalidParams("params._meta names another task than params.taskId")
        return view

    def _outcome(self, view: TaskView) -> dict[str, Any]:
        """Return the answer to `tasks/result` at this moment, or raise an `RpcError`, also without a result."""
        if view.phase is Phase.WAITING and not _is_first_form(view):
            return ttl_form.asking(view)
        return self.words_of(view).final_result(view)


def _is_first_form(view: TaskView) -> bool:
    """Return whether a task is of the first form. If its record does not say so, its retention does."""
    return view.form == FIRST_FORM if view.form else view.kept_ms is not None


def _has_outcome(view: TaskView) -> bool:
    """Return whether `tasks/result` can answer now."""
    return ttl_form.has_ended(view) or view.phase is Phase.WAITING


_TTL_WORDS = ttl_words(with_progress=True)
_FIRST_WORDS = TaskWords(first_form.task, first_form.status_notification, first_form.related, first_form.final_result)
