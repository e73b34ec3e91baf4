"""The answers to draft calls that have become tasks: the task, its result, or segments of the result.

In each case the task exists: a client that loses the connection can continue with `tasks/result` on any replica.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

from gateway.calls.task_access import TaskAccess
from gateway.calls.task_follower import TaskFollower
from gateway.errors import Overloaded, RpcError, TaskStoreDown, TooManyStreams
from gateway.protocol.caller import Caller
from gateway.protocol.draft import first_form
from gateway.protocol.draft.streaming import FALLBACK_META, AnswerMode, gone, response, segments_of
from gateway.protocol.error_codes import error_on
from gateway.protocol.handshake import tasks as ttl_form
from gateway.protocol.jsonrpc import error_response, result_response
from gateway.protocol.result_format import Words
from gateway.protocol.versions import Wire
from gateway.tasks.model import Phase, TaskView
from gateway.wires.handshake.tasks import HandshakeTasks, TaskStream, ask, notify
from gateway.wires.methods import Incoming
from gateway.wires.replies import Accepted, Listening, Reply

_STORE_RETRY_SECONDS: Final = 1.0
"""How long a stream waits before it asks the store again, if the store did not answer."""


@dataclass(frozen=True, slots=True)
class TaskAnswers:
    """Answers calls that have become tasks. An immediate result may take `immediate_seconds`."""

    access: TaskAccess
    follower: TaskFollower
    tasks: HandshakeTasks
    _: KW_ONLY
    words: Words
    immediate_seconds: float

    async def answer_later(self, incoming: Incoming, created: TaskView) -> Reply:
        """Report that a task of the first form exists, then its changes, and finally the result of the call.

        A client that does not want to wait can poll instead (proposal "Tasks", Graceful Degradation).

        Raises:
            RpcError: the call ended with this error.
            Overloaded: this replica shuts down, or the token has expired; another request can reach the task.
        """
        stream = self.tasks.stream(created, incoming)
        notify(incoming.client, [first_form.created_notification(created.task_id)])
        with incoming.client.waiting():
            async with contextlib.aclosing(self.follower.views(created, incoming.caller)) as views:
                async for view in views:
                    if view is None:
                        raise ttl_form.gone()
                    if view.withdrawn:
                        return Accepted()  # a request that its client has cancelled gets no answer
                    if ttl_form.has_ended(view):
                        return incoming.answered(first_form.call_result(view))
                    notify(incoming.client, stream.news(view))
                    ask(incoming.client, stream.questions(view))
        raise Overloaded

    async def answer(self, incoming: Incoming, created: TaskView, choice: AnswerMode, *, streams: bool) -> Reply:
        """Answer the request that created a task, in the chosen mode.

        A client with too many open streams gets the task instead: it runs already, and the client should not create it
        again. `streams` tells whether the tool is declared with `streams=True`. If the task ended with an error within
        the time for an immediate result, this raises that error.
        """
        view = created
        with contextlib.suppress(TooManyStreams):
            if choice.mode == "immediate":
                view = await self._soon(incoming, created)
                if ttl_form.has_ended(view):
                    return incoming.answered(ttl_form.final_result(view))
            if await self._streams(incoming, view, choice, streams):
                with incoming.client.streaming():  # the endpoint counts the stream again before another one can start
                    at_once = choice.mode == "streaming"
                    segments = self._segments(incoming, view, at_once=at_once)
                    return Listening(segments, incoming.request.id, self.words.wire)
        told = self.words.task_created(view)
        if choice.fallback:
            told["_meta"] = FALLBACK_META
        return incoming.answered(told)

    async def _streams(self, incoming: Incoming, view: TaskView, choice: AnswerMode, streams: bool) -> bool:
        """Return whether the answer is a stream: because that mode was chosen, or a part of the result is available.

        If the tool is declared to stream, the stream waits for the first part.
        """
        if incoming.client.post is None or not choice.may_stream:
            return False
        if choice.mode == "streaming" or streams:
            return True
        return bool(await self.access.segments(view.task_id, incoming.caller))

    async def _soon(self, incoming: Incoming, created: TaskView) -> TaskView:
        """Return the task once it has ended or asks a question, or after a short time."""
        with incoming.client.waiting():
            return await self.follower.soon(created, incoming.caller, self.immediate_seconds)

    async def _segments(self, incoming: Incoming, task: TaskView, *, at_once: bool) -> AsyncIterator[bytes]:
        """Yield a response with each batch of segments, until the last one, and the changes of the task between them.

        If the stream ends before the last batch, the replica shuts down, or the caller can no longer access the task.
        The client continues with another request, on another replica or with another token.

        With `at_once`, a first response goes out immediately, to report the id of the task. Otherwise it comes with the
        first segment or a question, or is the whole result if the task ends before.
        """
        task_id, sent, is_first = task.task_id, 0, True
        stream: TaskStream | None = None
        async with contextlib.aclosing(self.follower.views(task, incoming.caller)) as views:
            async for view in views:
                if view is None:
                    yield _encoded(incoming, gone(task_id))
                    return
                has_ended = ttl_form.has_ended(view)
                if has_ended and is_first and not at_once:
                    yield _whole(incoming, view)
                    return
                after = 0 if has_ended else sent
                stored = await self._stored(task, incoming.caller, after)
                if stored is None:
                    return
                segments = segments_of(view, stored, after)
                stream = stream or self.tasks.stream(view, incoming)
                if not segments.complete or segments.cancelled:
                    for message in stream.news(view):
                        yield message
                is_start = is_first and (at_once or view.phase is Phase.WAITING)
                if is_start or stored or segments.complete:
                    yield _encoded(incoming, response(segments, sent, task_id))
                    sent, is_first = segments.after + len(segments.blocks), False

    async def _stored(self, task: TaskView, caller: Caller, after: int) -> Sequence[Mapping[str, Any]] | None:
        """Return the blocks emitted after a segment, once the store answers; None if the caller lost access."""
        while self.follower.may_be_reported(task, caller):
            try:
                stored = await self.access.segments(task.task_id, caller, after)
            except TaskStoreDown:
                await asyncio.sleep(_STORE_RETRY_SECONDS)
            else:
                return stored if self.follower.may_be_reported(task, caller) else None
        return None


def _whole(incoming: Incoming, view: TaskView) -> bytes:
    """Return the only response of a stream: the outcome of a task that has ended, with the mark of the last one."""
    try:
        return _encoded(incoming, {**ttl_form.final_result(view), "isComplete": True})
    except RpcError as error:
        return error_response(incoming.request.id, error_on(Wire.DRAFT, error))


def _encoded(incoming: Incoming, result: Mapping[str, Any]) -> bytes:
    return result_response(incoming.request.id, result)
