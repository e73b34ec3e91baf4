"""The parts of `tasks/*` that all handshake wires share. Each wire decides the format of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from gateway.calls.authority import Authority
from gateway.calls.task_access import TaskAccess, scopes_of
from gateway.calls.task_follower import TaskFollower, timeless
from gateway.errors import InvalidParams, RejectReason
from gateway.protocol.caller import Caller
from gateway.protocol.handshake import tasks as ttl_form
from gateway.protocol.handshake.questions import answer_of, request_params
from gateway.protocol.jsonrpc import Response, server_request
from gateway.protocol.notifications import progress
from gateway.protocol.requests import read_cursor
from gateway.sealing.request_id import TaskAddress
from gateway.tasks.model import Progress, TaskView
from gateway.tokens.cursors import TaskCursors
from gateway.tokens.request_ids import RequestIds
from gateway.wires.methods import Incoming, Methods
from gateway.wires.ports import Client
from gateway.wires.replies import Reply

TTL_FORM: Final = "ttl"
"""A task that a client requested with `params.task`."""

FIRST_FORM: Final = "first"
"""A task whose client chose its id."""

ANSWERED_ON_STREAM: Final = "response"
"""The method in the audit log for an answer that came without a request."""

PAGE_SIZE: Final = 100
"""The number of tasks on one page of `tasks/list`."""


@dataclass(frozen=True, slots=True)
class TaskWords:
    """The format of tasks of one form.

    Attributes:
        task: returns the task's entry in lists.
        status_notification: returns a `notifications/tasks/status`.
        related: returns a result with only the `_meta` that links it to a task.
        final_result: returns the result of a task that has ended, or raises its `RpcError`, or one if it has none.
    """

    task: Callable[[TaskView], dict[str, Any]]
    status_notification: Callable[[TaskView], bytes]
    related: Callable[[str], dict[str, Any]]
    final_result: Callable[[TaskView], dict[str, Any]]


def ttl_words(*, with_progress: bool) -> TaskWords:
    """Return the format of 2025-11-25. If `with_progress`, progress is reported in separate fields."""
    return TaskWords(
        partial(ttl_form.task, with_progress=with_progress),
        partial(ttl_form.status_notification, with_progress=with_progress),
        ttl_form.related,
        ttl_form.final_result,
    )


@dataclass(slots=True)
class TaskStream:
    """Writes the messages about a task on one stream: each change once, and each question once, as a request.

    The caller must answer the questions, in this session; b"" allows any or none. Without a progress token, the client
    wants no progress.
    """

    words: TaskWords
    addresses: RequestIds
    caller: Caller
    session: bytes
    progress_token: str | int | None
    _progress: Progress | None = field(default=None, init=False)
    _reported: dict[str, Any] | None = field(default=None, init=False)
    _asked: set[str] = field(default_factory=set, init=False)

    def news(self, view: TaskView) -> list[bytes]:
        """Return the notifications about what has changed since the last call."""
        messages = self._progress_of(view)
        told = timeless(self.words.task(view))
        if told != self._reported:
            self._reported = told
            messages.append(self.words.status_notification(view))
        return messages

    def _progress_of(self, view: TaskView) -> list[bytes]:
        if self.progress_token is None or view.progress is None or view.progress == self._progress:
            return []
        self._progress = view.progress
        return [progress(self.progress_token, *view.progress, self.words.related(view.task_id))]

    def questions(self, view: TaskView) -> list[bytes]:
        """Return the requests for the open questions that this stream has not asked yet."""
        requests = []
        for key, question in view.questions.items():
            if key not in self._asked:
                self._asked.add(key)
                ttl_ms = view.expires_ms - view.now_ms
                address = self.addresses.of_task(view.task_id, key, ttl_ms, self.caller, self.session)
                params = request_params(question.method, question.params, f"{view.task_id}:{key}")
                params = ttl_form.joined(params, self.words.related(view.task_id))
                requests.append(server_request(address, question.method, params))
        return requests


@dataclass(frozen=True, slots=True)
class HandshakeTasks:
    """Answers the requests about tasks that all handshake wires have, in the format of 2025-11-25.

    The current registry of `methods` decides who may access a task.
    """

    methods: Methods
    access: TaskAccess
    follower: TaskFollower
    addresses: RequestIds
    cursors: TaskCursors

    def words_of(self, _view: TaskView) -> TaskWords:
        """Return the format of a task."""
        return _TTL_WORDS

    def described(self, view: TaskView) -> dict[str, Any]:
        """Return a task as the answer to a request about it."""
        return self.words_of(view).task(view)

    def stream(self, view: TaskView, incoming: Incoming) -> TaskStream:
        """Return the writer of messages about a task, for the stream of this request."""
        token = incoming.request.progress_token
        return TaskStream(self.words_of(view), self.addresses, incoming.caller, incoming.session, token)

    async def get(self, incoming: Incoming) -> Reply:
        """Answer `tasks/get`.

        Raises:
            InvalidParams: the caller has no such task.
            InsufficientScope: the caller's token no longer grants the tool's scopes.
            TaskStoreDown: the store does not answer.
        """
        return incoming.answered(self.described(await self._find(incoming)))

    async def page(self, incoming: Incoming) -> Reply:
        """Answer `tasks/list`, or raise `TaskStoreDown`.

        A cursor that is not one of ours, or belongs to another caller, raises `InvalidParams`.
        """
        caller = incoming.caller
        after = self.cursors.read(read_cursor(incoming.request.params), caller)
        page = await self.access.page(after, PAGE_SIZE, caller, self.methods.registry)
        told: dict[str, Any] = {"tasks": [self.words_of(view).task(view) for view in page.views]}
        if page.last is not None:
            told["nextCursor"] = self.cursors.make(page.last, caller)
        return incoming.answered(told)

    async def cancel(self, incoming: Incoming) -> Reply:
        """Answer `tasks/cancel`. A task that has already ended raises `InvalidParams`; or see `get`."""
        view = await self._find(incoming)
        if view.phase.ended:
            status = self.words_of(view).task(view)["status"]
            raise InvalidParams(f"Cannot cancel task: already in terminal status '{status}'")
        after = await self.access.cancel(view.task_id, incoming.caller, incoming.request.method)
        if after is None:
            raise ttl_form.not_found()
        return incoming.answered(self.described(after))

    async def take_answer(self, response: Response, address: TaskAddress, authority: Authority) -> None:
        """Record the response to a question that was asked on a stream. A late response is ignored.

        A response that does not match the question is recorded too: the task then asks again under another key, on
        whichever stream there is.

        Raises:
            InvalidParams: the response is too large to be stored.
            InsufficientScope: the token does not grant the tool's scopes, or the response came in another session.
            TaskStoreDown: the store does not answer.
        """
        registry = self.methods.registry
        view = await self.access.find(address.task_id, authority, registry)
        if view is None or address.key not in view.questions:
            self.addresses.reject(RejectReason.LATE)
            return
        authority.check(scopes_of(view, registry), address.session)
        await self.access.answer(view, {address.key: answer_of(response)}, authority, ANSWERED_ON_STREAM)

    async def _find(self, incoming: Incoming) -> TaskView:
        return await self._found(ttl_form.read_task_id(incoming.request.params), incoming)

    async def _found(self, task_id: str, incoming: Incoming) -> TaskView:
        view = await self.access.find(task_id, incoming.caller, self.methods.registry)
        if view is None:
            raise ttl_form.not_found()
        return view


def notify(client: Client, notifications: Iterable[bytes]) -> None:
    """Send notifications before the answer, if the client accepts a stream."""
    if client.post is not None:
        for notification in notifications:
            client.post(notification)


def ask(client: Client, requests: Iterable[bytes]) -> None:
    """Send requests before the answer, if the client accepts a stream."""
    if client.post is not None:
        for request in requests:
            client.ask(request)


_TTL_WORDS = ttl_words(with_progress=False)
