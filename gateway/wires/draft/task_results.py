"""What a call of the draft wire is answered with that has become a task: the task, its result, or segments of it.

Whichever it is, the task is there: whoever loses the connection goes on with `tasks/result` at any replica.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from gateway.calls.task_access import TaskAccess
from gateway.calls.task_follower import TaskFollower
from gateway.errors import Overloaded, RpcError, TaskStoreDown, TooManyStreams
from gateway.protocol.caller import Caller
from gateway.protocol.draft import first_form
from gateway.protocol.draft.streaming import FALLBACK_META, Choice, gone, response, segments_of
from gateway.protocol.handshake import tasks as ttl_form
from gateway.protocol.jsonrpc import error_response, result_response
from gateway.protocol.result_format import Words
from gateway.tasks.model import Phase, TaskView
from gateway.wires.handshake.tasks import HandshakeTasks, TaskStream, ask, notify
from gateway.wires.methods import Incoming
from gateway.wires.replies import Accepted, Listening, Reply

_STORE_RETRY_SECONDS: Final = 1.0
"""How long until a stream asks a store again that did not answer."""


class TaskAnswers:
    """Answers calls that have become tasks.

    Args:
        access: reaches the tasks.
        follower: waits for them.
        tasks: tells of them.
        words: the wire's.
        immediate_seconds: how long a result that is wanted at once may take.
    """

    def __init__(
        self,
        access: TaskAccess,
        follower: TaskFollower,
        tasks: HandshakeTasks,
        *,
        words: Words,
        immediate_seconds: float,
    ) -> None:
        self._access = access
        self._follower = follower
        self._tasks = tasks
        self._words = words
        self._immediate_seconds = immediate_seconds

    async def answer_later(self, incoming: Incoming, created: TaskView) -> Reply:
        """Tell that a task of the first form exists, then what becomes of it; what the call came to is told last.

        A client that does not want to wait polls meanwhile (proposal "Tasks", Graceful Degradation).

        Raises:
            RpcError: what the call came to.
            Overloaded: this replica leaves, or the token is over; another request reaches the task as well.
        """
        stream = self._tasks.stream(created, incoming)
        notify(incoming.client, [first_form.created_notification(created.task_id)])
        with incoming.client.waiting():
            async with contextlib.aclosing(self._follower.views(created, incoming.caller)) as views:
                async for view in views:
                    if view is None:
                        raise ttl_form.gone()
                    if view.withdrawn:
                        return Accepted()  # a request that its client has cancelled is not answered
                    if ttl_form.has_ended(view):
                        return incoming.answered(first_form.call_result(view))
                    notify(incoming.client, stream.news(view))
                    ask(incoming.client, stream.questions(view))
        raise Overloaded

    async def answer(self, incoming: Incoming, created: TaskView, choice: Choice, *, streams: bool) -> Reply:
        """Answer the request that created a task, in the mode that was chosen for it.

        A client that may have no further stream is told the task: it runs already, and is not to be ordered again.

        Args:
            incoming: the request.
            created: the task.
            choice: the mode.
            streams: whether the author of the tool says that it streams.

        Raises:
            RpcError: what the task came to at once.
        """
        view = created
        with contextlib.suppress(TooManyStreams):
            if choice.mode == "immediate":
                view = await self._soon(incoming, created)
                if ttl_form.has_ended(view):
                    return incoming.answered(ttl_form.final_result(view))
            if await self._streams(incoming, view, choice, streams):
                with incoming.client.streaming():  # whoever sends the segments counts it again, before anybody else can
                    at_once = choice.mode == "streaming"
                    return Listening(self._segments(incoming, view, at_once=at_once), incoming.request.id)
        told = self._words.task_created(view)
        if choice.fallback:
            told["_meta"] = FALLBACK_META
        return incoming.answered(told)

    async def _streams(self, incoming: Incoming, view: TaskView, choice: Choice, streams: bool) -> bool:
        """Tell whether the answer is a stream: if that was chosen, or there is no result at once but a part of it.

        Where the author says that there will be parts, the first one is waited for, on the stream.
        """
        if incoming.client.post is None or not choice.may_stream:
            return False
        if choice.mode == "streaming" or streams:
            return True
        return bool(await self._access.segments(view.task_id, incoming.caller))

    async def _soon(self, incoming: Incoming, created: TaskView) -> TaskView:
        """Return the task as it is when there is something to tell of it, or a short time later at the latest."""
        latest = created
        with incoming.client.waiting(), contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(self._immediate_seconds),
                contextlib.aclosing(self._follower.views(created, incoming.caller)) as views,
            ):
                async for view in views:
                    latest = view or latest
                    if ttl_form.has_ended(latest) or latest.phase is Phase.WAITING:
                        break
        return latest

    async def _segments(self, incoming: Incoming, task: TaskView, *, at_once: bool) -> AsyncIterator[bytes]:
        """Yield a response with each lot of segments, the last of them complete, and what else there is to tell.

        A stream that ends before the complete one has been cut off, by a replica that leaves or since the caller may
        not reach the task any more: the client goes on with another request, elsewhere or with another token.

        Args:
            incoming: the request.
            task: its task.
            at_once: whether the first response comes at once, to tell which task it is. Otherwise it comes with the
                first segment or a question, or is the whole result if the task ends before.
        """
        task_id, sent = task.task_id, None
        stream: TaskStream | None = None
        async with contextlib.aclosing(self._follower.views(task, incoming.caller)) as views:
            async for view in views:
                if view is None:
                    yield _encoded(incoming, response(gone(sent or 0), sent or 0, task_id))
                    return
                if sent is None and not at_once and ttl_form.has_ended(view):
                    yield _whole(incoming, view)
                    return
                after = 0 if ttl_form.has_ended(view) else sent or 0
                stored = await self._stored(task, incoming.caller, after)
                if stored is None:
                    return
                segments = segments_of(view, stored, after)
                stream = stream or self._tasks.stream(view, incoming)
                for message in () if segments.complete else stream.news(view):
                    yield message
                first = sent is None and (at_once or view.phase is Phase.WAITING)
                if segments.complete or stored or first:
                    yield _encoded(incoming, response(segments, sent or 0, task_id))
                    sent = segments.after + len(segments.blocks)

    async def _stored(self, task: TaskView, caller: Caller, after: int) -> Sequence[Mapping[str, Any]] | None:
        """Return what a task has emitted after a segment, as soon as the store answers; None if it may not be told."""
        while self._follower.may_be_reported(task, caller):
            try:
                stored = await self._access.segments(task.task_id, caller, after)
            except TaskStoreDown:
                await asyncio.sleep(_STORE_RETRY_SECONDS)
            else:
                return stored if self._follower.may_be_reported(task, caller) else None
        return None


def _whole(incoming: Incoming, view: TaskView) -> bytes:
    """Return the response with what a task that has ended came to."""
    try:
        return _encoded(incoming, ttl_form.final_result(view))
    except RpcError as error:
        return error_response(incoming.request.id, error)


def _encoded(incoming: Incoming, result: Mapping[str, Any]) -> bytes:
    return result_response(incoming.request.id, result)
