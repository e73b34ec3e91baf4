"""`tools/call` of the draft wire: rounds, and the ways in which a call there can become a task."""

from __future__ import annotations

import contextlib

from gateway.authoring.tools import Tool
from gateway.errors import MethodNotFound, Overloaded, TaskIdTaken
from gateway.following import TaskFollower
from gateway.handshake_tasks import FIRST_FORM, TTL_FORM, HandshakeTasks
from gateway.methods import Incoming, Methods
from gateway.protocol.draft import first_form
from gateway.protocol.handshake import tasks as ttl_form
from gateway.protocol.jsonrpc import result_response
from gateway.protocol.requests import read_tool_call
from gateway.replies import Accepted, Answered, Reply
from gateway.task_calls import TaskOrder
from gateway.tasks.model import Phase, TaskView


class DraftCalls:
    """Answers `tools/call`.

    Args:
        methods: those that every wire has.
        tasks: answers what is asked about tasks, or None where there are none.
        follower: waits for tasks.
    """

    def __init__(self, methods: Methods, tasks: HandshakeTasks | None, follower: TaskFollower | None) -> None:
        self._methods = methods
        self._tasks = tasks
        self._follower = follower

    async def call(self, incoming: Incoming, request_name: str) -> Reply:
        """Answer one request.

        Args:
            incoming: the request.
            request_name: what its client may cancel a task by that it creates, "" for nothing.

        Raises:
            RpcError: it ends in an error.
            InsufficientScope: the caller's token does not grant what it takes.
        """
        wanted = read_tool_call(incoming.request.params)
        tool = self._methods.tool(wanted, incoming.caller)
        order = None if self._tasks is None else _order(tool, incoming, request_name)
        try:
            ran = await self._methods.call_tool(incoming, tool, wanted, order)
        except TaskIdTaken:
            raise first_form.already_exists(_chosen_id(order)) from None
        if ran.task is not None and ran.task.form == FIRST_FORM:
            return await self._answer_later(incoming, ran.task)
        return Answered(result_response(incoming.request.id, ran.result))

    async def _answer_later(self, incoming: Incoming, created: TaskView) -> Reply:
        """Tell that the task exists, then what becomes of it; the call's own result is the last that is told.

        A client that does not want to wait polls meanwhile (proposal "Tasks", Graceful Degradation).
        """
        assert self._tasks is not None and self._follower is not None  # noqa: S101, PT018 - or there was no order
        stream = self._tasks.stream(created, incoming.client, incoming.caller)
        if incoming.client.post is not None:
            incoming.client.post(first_form.created_notification(created.task_id))
        with incoming.client.waiting():
            async with contextlib.aclosing(self._follower.views(created.task_id, incoming.caller)) as views:
                async for view in views:
                    if view is None:
                        raise ttl_form.not_found()
                    if ttl_form.has_ended(view):
                        return _final(incoming, view)
                    stream.tell(view)
                    stream.ask(view)
        raise Overloaded


def _order(tool: Tool, incoming: Incoming, request_name: str) -> TaskOrder | None:
    """Return the task that the request asks for, None for none.

    Raises:
        MethodNotFound: the tool takes no tasks but one is asked for, or it takes nothing else and none is.
        InvalidParams: what is asked for is malformed.
    """
    first = first_form.read_first_form(incoming.request.meta)
    wish = ttl_form.read_task_params(incoming.request.params)
    if tool.task == "forbidden":
        if wish is not None:
            raise MethodNotFound(f"{tool.name} takes no tasks; call it without params.task")
        return None
    if first is not None:
        return TaskOrder(
            FIRST_FORM,
            counts_from="ended",
            retention_ms=first.keep_alive_ms,
            task_id=first.task_id,
            request=request_name,
            at_once=True,
        )
    if wish is not None:
        return TaskOrder(TTL_FORM, retention_ms=wish.ttl_ms)
    if tool.task == "required":
        raise MethodNotFound(f"{tool.name} runs as a task only; call it with params.task")
    return None


def _chosen_id(order: TaskOrder | None) -> str:
    return "" if order is None or order.task_id is None else order.task_id


def _final(incoming: Incoming, view: TaskView) -> Reply:
    """Return what the call came to, as it would have been told without a task."""
    if view.phase is Phase.CANCELLED:
        return Accepted()  # a request that its client has cancelled is not answered
    return Answered(result_response(incoming.request.id, first_form.call_result(view)))
