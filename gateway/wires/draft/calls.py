"""`tools/call` of the draft wire: multi round-trip requests, and the ways in which a call can become a task."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from gateway.authoring.tools import Tool
from gateway.calls.runner import Ran
from gateway.calls.task_creation import TaskOrder
from gateway.engine.capabilities import supports
from gateway.errors import MethodNotFound, TaskIdTaken
from gateway.protocol.draft import first_form
from gateway.protocol.draft.first_form import FirstForm
from gateway.protocol.draft.streaming import KEPT_NOWHERE_META, MODES, AnswerMode, choose_mode
from gateway.protocol.handshake import tasks as ttl_form
from gateway.protocol.handshake.tasks import TaskWish
from gateway.protocol.param_headers import check_param_headers
from gateway.protocol.requests import read_tool_call
from gateway.wires.draft.task_results import TaskAnswers
from gateway.wires.handshake.tasks import FIRST_FORM, TTL_FORM
from gateway.wires.methods import Incoming, Methods, RunLeg
from gateway.wires.replies import Reply

MIN_KEEP_ALIVE_MS: Final = 1000
"""The shortest time that a task of the first form is kept after its end, so that waiting clients are notified."""


class DraftCalls:
    """Answers calls. Without `answers`, there are no tasks."""

    def __init__(self, methods: Methods, answers: TaskAnswers | None) -> None:
        self._methods = methods
        self._answers = answers

    async def run(self, incoming: Incoming, leg: RunLeg, /) -> Ran:
        """Run one leg of a prompt or a resource."""
        return await leg(incoming)

    async def call(self, incoming: Incoming, /) -> Reply:
        """Answer one `tools/call`.

        If the token does not grant the tool's scopes, this raises `InsufficientScope`; other errors are `RpcError`.
        """
        wanted = read_tool_call(incoming.request.params)
        tool = self._methods.tool(wanted, incoming.caller) or await self._methods.unlisted_tool(wanted, incoming)
        check_param_headers(tool.param_headers, wanted.arguments, incoming.headers, optional=True)
        first = first_form.read_first_form(incoming.request.meta)
        wish = ttl_form.read_task_params(incoming.request.params)
        choice = choose_mode(None if wish is None else wish.response_modes, _modes_of(incoming.request.capabilities))
        order = None if self._answers is None else _order(tool, first, wish, choice, incoming.cancel_name)
        answers_later = order is not None and order.form == FIRST_FORM
        # A client with too many streams is refused before the task exists: otherwise its id would be taken.
        with incoming.client.streaming() if answers_later else contextlib.nullcontext():
            try:
                ran = await self._methods.call_tool(incoming, tool, wanted, order)
            except TaskIdTaken:
                raise first_form.already_exists("" if first is None else first.task_id) from None
            if ran.task is None or self._answers is None:
                return incoming.answered(ran.result)
            if answers_later:
                return await self._answers.answer_later(incoming, ran.task)
        return await self._answers.answer(incoming, ran.task, choice, streams=tool.streams)


def _order(
    tool: Tool, first: FirstForm | None, wish: TaskWish | None, choice: AnswerMode, cancel_name: str
) -> TaskOrder | None:
    """Return the task that a request asks for, or None.

    It may ask in the first form (`first`), or as `params.task` (`wish`). An immediate answer needs no task. By
    `cancel_name`, the client can cancel a task of the first form.

    Raises:
        MethodNotFound: the request asks for a task and the tool does not support tasks, or it does not ask for one and
            the tool runs only as a task.
    """
    if tool.task == "forbidden":
        if wish is not None and choice.mode != "immediate":
            raise MethodNotFound(f"{tool.name} does not support tasks; call it without params.task")
        return None
    if first is not None:
        return TaskOrder(
            FIRST_FORM,
            counts_from="ended",
            retention_ms=None if first.keep_alive_ms is None else max(first.keep_alive_ms, MIN_KEEP_ALIVE_MS),
            task_id=first.task_id,
            request=cancel_name,
            at_once=True,
        )
    if wish is not None:
        # Before the task, only an incomplete result is allowed; a complete result needs a mode that is listed.
        otherwise = None if choice.mode == "immediate" else KEPT_NOWHERE_META
        return TaskOrder(TTL_FORM, retention_ms=wish.ttl_ms, otherwise=otherwise)
    if tool.task == "required":
        raise MethodNotFound(f"{tool.name} runs only as a task; call it with params.task")
    return None


def _modes_of(capabilities: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(mode for mode in MODES if supports(capabilities, ("tasks", "responses", "modes", mode)))
