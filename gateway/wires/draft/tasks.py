"""`tasks/*` of the draft wire: tasks ordered with `params.task`, which tell how far they are, and the first form's.

The latter are told in the words they were created in.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from gateway.calls.task_access import fits
from gateway.errors import InvalidParams, Overloaded
from gateway.protocol.caller import Caller
from gateway.protocol.draft import first_form
from gateway.protocol.draft.rounds import read_answers
from gateway.protocol.draft.streaming import partial, read_last_seq_nr, segments_of
from gateway.protocol.fields import read_object
from gateway.protocol.handshake import tasks as ttl_form
from gateway.protocol.handshake.requests import CANCELLED
from gateway.tasks.model import Phase, TaskView
from gateway.wires.handshake.tasks import FIRST_FORM, HandshakeTasks, TaskWords, TtlWords, notify
from gateway.wires.methods import Handler, Incoming
from gateway.wires.replies import Reply

_RELATED_NAMES: Final = (ttl_form.RELATED_TASK, first_form.RELATED_TASK)
"""What a task that a request belongs to may be called in its `_meta`."""


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
        """Return the words that a task is told in: those it was created in, as far as this wire has them."""
        return first_form if view.form == FIRST_FORM else _TTL_WORDS

    def described(self, view: TaskView) -> dict[str, Any]:
        """Return a task as the answer to a request about it; the first form says once more which one it is."""
        return first_form.answer(view) if view.form == FIRST_FORM else super().described(view)

    async def result(self, incoming: Incoming) -> Reply:
        """Answer `tasks/result`: at once for a task of the first form, else when it has ended or asks something.

        Raises:
            RpcError: what the task came to, or like `get`.
            Overloaded: this replica leaves, or the token is over; another request reaches the task as well.
        """
        view = await self._find(incoming)
        if view.form != FIRST_FORM:
            last = read_last_seq_nr(incoming.request.params)
            if last is not None:
                return incoming.answered(await self._segments_after(last, view, incoming.caller))
            if not _has_outcome(view):
                view = await self._wait(view, incoming)
        return incoming.answered(self._outcome(view))

    async def _segments_after(self, last: int, view: TaskView, caller: Caller) -> dict[str, Any]:
        """Return what of the result there is now after a segment, nothing where the client is ahead."""
        after = 0 if ttl_form.has_ended(view) else last
        segments = segments_of(view, await self._access.segments(view.task_id, caller, after), after)
        return partial(segments, last, view.task_id)

    async def _wait(self, view: TaskView, incoming: Incoming) -> TaskView:
        stream = self.stream(view, incoming)
        with incoming.client.waiting():
            async with contextlib.aclosing(self._follower.views(view, incoming.caller)) as views:
                async for now in views:
                    if now is None:
                        raise ttl_form.gone()
                    if _has_outcome(now):
                        return now
                    notify(incoming.client, stream.news(now))
        raise Overloaded

    async def delete(self, incoming: Incoming) -> Reply:
        """Answer `tasks/delete`: the task is forgotten, wherever it is; one that runs is cancelled.

        Raises:
            RpcError: like `get`.
        """
        view = await self._find(incoming)
        chosen = view.form == FIRST_FORM
        await self._access.delete(view.task_id, incoming.caller, incoming.request.method, chosen=chosen)
        return incoming.answered(self.words_of(view).related(view.task_id))

    async def input_response(self, incoming: Incoming) -> Reply:
        """Answer `tasks/input_response`: record those answers that fit what is asked, and ignore the rest.

        Raises:
            InvalidParams: the request names no task, or like `get`.
        """
        request = incoming.request
        view = await self._found(ttl_form.read_related_task(request.params, _RELATED_NAMES), incoming)
        answers = read_answers(read_object(request.params, "inputResponses"))
        fitting = {
            key: answer
            for key, answer in answers.items()
            if key in view.questions and fits(view.questions[key], answer)
        }
        await self._access.answer(view, fitting, incoming.caller, request.method)
        return incoming.answered(self.words_of(view).related(view.task_id))

    async def find_request(self, request: str, caller: Caller) -> str | None:
        """Return the id of the task that a request created, None if there is none.

        Raises:
            InsufficientScope: the caller's token does not grant what the tool asks for.
        """
        task_id = await self._access.of_request(request, caller)
        if task_id is None or await self._access.find(task_id, caller, self._methods.registry) is None:
            return None
        return task_id

    async def cancel_request(self, request: str, caller: Caller) -> bool:
        """Cancel the task that a request created, if there is one; return whether there is.

        Raises:
            InsufficientScope: the caller's token does not grant what the tool asks for.
        """
        task_id = await self.find_request(request, caller)
        if task_id is not None:
            await self._access.cancel(task_id, caller, CANCELLED, withdrawn=True)
        return task_id is not None

    async def _find(self, incoming: Incoming) -> TaskView:
        """Return the task that a request names.

        Raises:
            InvalidParams: the caller has no such task, or `_meta` names another one than the request does.
        """
        view = await super()._find(incoming)
        for name in _RELATED_NAMES:
            joined = incoming.request.meta.get(name)
            if joined is not None and (type(joined) is not dict or joined.get("taskId") != view.task_id):
                raise InvalidParams(f'params._meta["{name}"] names another task than params.taskId')
        return view

    def _outcome(self, view: TaskView) -> dict[str, Any]:
        """Return what `tasks/result` answers now.

        Raises:
            RpcError: what the task came to, or that it has come to nothing yet.
        """
        if view.phase is Phase.WAITING and view.form != FIRST_FORM:
            return ttl_form.asking(view)
        return self.words_of(view).final_result(view)


def _has_outcome(view: TaskView) -> bool:
    """Tell whether `tasks/result` has something to answer."""
    return ttl_form.has_ended(view) or view.phase is Phase.WAITING


_TTL_WORDS = TtlWords(with_progress=True)
