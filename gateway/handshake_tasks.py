"""`tasks/*` of the handshake wires: tasks ordered with `params.task`, and on the draft wire those of the first form.

Which words a task is told in is decided by the wire and by the form it was created in.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, Final, Protocol

from gateway.authoring.registry import Registry
from gateway.errors import InvalidParams, Overloaded
from gateway.following import TaskFollower, timeless
from gateway.methods import Incoming
from gateway.ports import Caller, Client
from gateway.protocol.draft import first_form
from gateway.protocol.draft.rounds import read_answers
from gateway.protocol.draft.streaming import partial, read_last_seq_nr, segments_of
from gateway.protocol.fields import read_object
from gateway.protocol.handshake import tasks as ttl_form
from gateway.protocol.jsonrpc import Response, server_request
from gateway.protocol.requests import read_cursor
from gateway.return_addresses import ReturnAddresses
from gateway.sealing.return_address import TaskAddress
from gateway.task_access import TaskAccess, fits
from gateway.task_cursors import TaskCursors
from gateway.tasks.model import Phase, TaskView

TTL_FORM: Final = "ttl"
"""A task that a client ordered with `params.task`."""

FIRST_FORM: Final = "first"
"""A task whose client chose its id."""

ANSWERED_ON_STREAM: Final = "response"
CANCELLED: Final = "notifications/cancelled"
"""What the audit log names where no request was made."""

RELATED_NAMES: Final = (ttl_form.RELATED_TASK, first_form.RELATED_TASK)
"""What a task that a request belongs to may be called in its `_meta`."""

PAGE_SIZE: Final = 100
"""Tasks on one page of `tasks/list`."""


class TaskWords(Protocol):
    """How a task of one form is told."""

    def task(self, view: TaskView) -> dict[str, Any]:
        """Return the task as lists tell it."""
        ...

    def status_notification(self, view: TaskView) -> bytes:
        """Return a `notifications/tasks/status`."""
        ...

    def related(self, task_id: str) -> dict[str, Any]:
        """Return the `_meta` of what belongs to a task, in a result of its own."""
        ...

    def final_result(self, view: TaskView) -> dict[str, Any]:
        """Return what the call of an ended task came to.

        Raises:
            RpcError: it came to this error, or may not be asked for.
        """
        ...


class TtlWords:
    """Tasks in the words of 2025-11-25.

    Args:
        with_progress: whether the task tells how far it is in fields of its own.
    """

    def __init__(self, *, with_progress: bool) -> None:
        self._with_progress = with_progress

    def task(self, view: TaskView) -> dict[str, Any]:
        """See `TaskWords.task`."""
        return ttl_form.task(view, self._with_progress)

    def status_notification(self, view: TaskView) -> bytes:
        """See `TaskWords.status_notification`."""
        return ttl_form.status_notification(view, self._with_progress)

    def related(self, task_id: str) -> dict[str, Any]:
        """See `TaskWords.related`."""
        return ttl_form.related(task_id)

    def final_result(self, view: TaskView) -> dict[str, Any]:
        """See `TaskWords.final_result`."""
        return ttl_form.final_result(view)


class TaskStream:
    """What one stream is told of a task: each change of it once, and each question once, as a request.

    Args:
        words: how the task is told.
        addresses: writes the ids of requests.
        caller: who is to answer.
    """

    def __init__(self, words: TaskWords, addresses: ReturnAddresses, caller: Caller) -> None:
        self._words = words
        self._addresses = addresses
        self._caller = caller
        self._told: dict[str, Any] | None = None
        self._asked: set[str] = set()

    def news(self, view: TaskView) -> list[bytes]:
        """Return what tells that something about the task has changed, if it has."""
        told = timeless(self._words.task(view))
        if told == self._told:
            return []
        self._told = told
        return [self._words.status_notification(view)]

    def questions(self, view: TaskView) -> list[bytes]:
        """Return what asks those of its open questions that were not asked yet."""
        requests = []
        for key, question in view.questions.items():
            if key not in self._asked:
                self._asked.add(key)
                address = self._addresses.of_task(view.task_id, key, view.expires_ms - view.now_ms, self._caller)
                params = {**question.params, **self._words.related(view.task_id)}
                requests.append(server_request(address, question.method, params))
        return requests


class HandshakeTasks:
    """Answers requests about tasks.

    Args:
        access: reaches the tasks.
        follower: waits for them.
        addresses: writes the ids of requests, and reads them.
        cursors: makes the cursors of `tasks/list`.
    """

    def __init__(
        self, access: TaskAccess, follower: TaskFollower, addresses: ReturnAddresses, cursors: TaskCursors
    ) -> None:
        self._access = access
        self._follower = follower
        self._addresses = addresses
        self._cursors = cursors

    def stream(self, view: TaskView, caller: Caller) -> TaskStream:
        """Return what one stream is to be told of a task."""
        return TaskStream(words_of(view), self._addresses, caller)

    async def get(self, incoming: Incoming, registry: Registry) -> dict[str, Any]:
        """Answer `tasks/get`.

        Raises:
            InvalidParams: the caller has no such task.
            InsufficientScope: the caller's token no longer grants what the tool asks for.
            TaskStoreDown: the store does not answer.
        """
        view = await self._find(incoming, registry)
        return _told(view)

    async def result(self, incoming: Incoming, registry: Registry) -> dict[str, Any]:
        """Answer `tasks/result`: at once for a task of the first form, else when it has ended or asks something.

        Raises:
            RpcError: what the task came to, or like `get`.
            Overloaded: this replica leaves; another one knows the task as well.
        """
        view = await self._find(incoming, registry)
        if view.form != FIRST_FORM:
            last = read_last_seq_nr(incoming.request.params)
            if last is not None:
                return await self._segments_after(last, view, incoming.caller)
            if not _can_be_told(view):
                view = await self._wait(view, incoming)
        return _outcome(view)

    async def _segments_after(self, last: int, view: TaskView, caller: Caller) -> dict[str, Any]:
        """Return what of the result there is now after a segment, nothing where the client is ahead."""
        after = 0 if ttl_form.has_ended(view) else last
        segments = segments_of(view, await self._access.segments(view.task_id, caller, after), after)
        return partial(segments, last, view.task_id, complete=segments.complete, is_error=segments.is_error)

    async def _wait(self, view: TaskView, incoming: Incoming) -> TaskView:
        stream = self.stream(view, incoming.caller)
        with incoming.client.waiting():
            async with contextlib.aclosing(self._follower.views(view.task_id, incoming.caller)) as views:
                async for now in views:
                    if now is None:
                        raise ttl_form.not_found()
                    if _can_be_told(now):
                        return now
                    tell(incoming.client, stream.news(now))
        raise Overloaded

    async def page(self, incoming: Incoming, registry: Registry) -> dict[str, Any]:
        """Answer `tasks/list`.

        Raises:
            InvalidParams: the cursor is none of ours for this caller.
            TaskStoreDown: the store does not answer.
        """
        caller = incoming.caller
        after = self._cursors.read(read_cursor(incoming.request.params), caller)
        page = await self._access.page(after, PAGE_SIZE, caller, registry)
        told: dict[str, Any] = {"tasks": [words_of(view).task(view) for view in page.views]}
        if page.last is not None:
            told["nextCursor"] = self._cursors.make(page.last, caller)
        return told

    async def cancel(self, incoming: Incoming, registry: Registry) -> dict[str, Any]:
        """Answer `tasks/cancel`.

        Raises:
            InvalidParams: the task has ended already, or like `get`.
        """
        view = await self._find(incoming, registry)
        if view.phase.ended:
            status = words_of(view).task(view)["status"]
            raise InvalidParams(f"Cannot cancel task: already in terminal status '{status}'")
        after = await self._access.cancel(view.task_id, incoming.caller, incoming.request.method)
        if after is None:
            raise ttl_form.not_found()
        return _told(after)

    async def delete(self, incoming: Incoming, registry: Registry) -> dict[str, Any]:
        """Answer `tasks/delete`: the task is forgotten, wherever it is; one that runs is cancelled.

        Raises:
            RpcError: like `get`.
        """
        view = await self._find(incoming, registry)
        await self._access.delete(view.task_id, incoming.caller, incoming.request.method)
        return words_of(view).related(view.task_id)

    async def input_response(self, incoming: Incoming, registry: Registry) -> dict[str, Any]:
        """Answer `tasks/input_response`: record those answers that fit what is asked, and ignore the rest.

        Raises:
            InvalidParams: the request names no task, or like `get`.
        """
        request = incoming.request
        view = await self._found(
            ttl_form.read_related_task(request.params, (ttl_form.RELATED_TASK, first_form.RELATED_TASK)),
            incoming,
            registry,
        )
        answers = read_answers(read_object(request.params, "inputResponses"))
        fitting = {
            key: answer
            for key, answer in answers.items()
            if key in view.questions and fits(view.questions[key], answer)
        }
        await self._access.answer(view, fitting, incoming.caller, request.method)
        return words_of(view).related(view.task_id)

    async def take_answer(self, response: Response, address: TaskAddress, caller: Caller, registry: Registry) -> None:
        """Record the response to a question that was asked on a stream; one that comes too late means nothing."""
        answer = {"error": response.error} if response.result is None else {"result": response.result}
        view = await self._access.find(address.task_id, caller, registry)
        question = None if view is None else view.questions.get(address.key)
        if view is not None and question is not None and fits(question, answer):
            await self._access.answer(view, {address.key: answer}, caller, ANSWERED_ON_STREAM)

    async def cancel_request(self, request: str, caller: Caller) -> None:
        """Cancel the task that a request created, if there is one."""
        task_id = await self._access.of_request(request, caller)
        if task_id is not None:
            await self._access.cancel(task_id, caller, CANCELLED)

    async def _find(self, incoming: Incoming, registry: Registry) -> TaskView:
        return await self._found(ttl_form.read_task_id(incoming.request.params), incoming, registry)

    async def _found(self, task_id: str, incoming: Incoming, registry: Registry) -> TaskView:
        view = await self._access.find(task_id, incoming.caller, registry)
        if view is None:
            raise ttl_form.not_found()
        return view


def tell(client: Client, messages: Iterable[bytes]) -> None:
    """Send messages ahead of the answer, to a client that takes them."""
    if client.post is not None:
        for message in messages:
            client.post(message)


def words_of(view: TaskView) -> TaskWords:
    """Return the words that a task is told in on the draft wire: those it was created in, as far as it has them."""
    return first_form if view.form == FIRST_FORM else _TTL_WORDS


def _told(view: TaskView) -> dict[str, Any]:
    """Return a task as the answer to a request about it; the first form says once more which one it is."""
    return first_form.answer(view) if view.form == FIRST_FORM else words_of(view).task(view)


def _can_be_told(view: TaskView) -> bool:
    """Tell whether `tasks/result` has something to answer."""
    return ttl_form.has_ended(view) or view.phase is Phase.WAITING


def _outcome(view: TaskView) -> dict[str, Any]:
    """Return what `tasks/result` answers now.

    Raises:
        RpcError: what the task came to, or that it has come to nothing yet.
    """
    if view.phase is Phase.WAITING and view.form != FIRST_FORM:
        return ttl_form.asking(view)
    return words_of(view).final_result(view)


_TTL_WORDS = TtlWords(with_progress=True)
