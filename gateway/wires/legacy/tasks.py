"""`tasks/*` of the 2025-11-25 wire, where a client that waits for a task's result also gets its questions."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping
from typing import Final

from gateway.errors import InvalidRequest, Overloaded, TaskStoreDown
from gateway.protocol.caller import Caller
from gateway.protocol.handshake import tasks as ttl_form
from gateway.tasks.model import Phase, TaskView
from gateway.wires.handshake.tasks import HandshakeTasks, ask, notify
from gateway.wires.methods import Handler, Incoming
from gateway.wires.replies import Reply

DELIVERY_MS: Final = 12_000
"""How long a stream has the right to ask questions. The right is renewed each time the task is read, within 5 s."""


class LegacyTasks(HandshakeTasks):
    """Answers requests about tasks."""

    def handlers(self, *, has_identity: bool) -> Mapping[str, Handler]:
        """Return the handlers, by method. If callers are authenticated, a list of tasks belongs to one caller."""
        lists: dict[str, Handler] = {"tasks/list": self.page} if has_identity else {}
        return {"tasks/get": self.get, "tasks/result": self.result, "tasks/cancel": self.cancel, **lists}

    async def result(self, incoming: Incoming) -> Reply:
        """Answer `tasks/result` once the task has ended. Until then, its questions go to the client as requests.

        Raises:
            RpcError: the task ended with this error, or no answer matches a question; or see `get`.
            InvalidRequest: the task asks a question, and the client does not accept a stream.
            Overloaded: this replica shuts down, or the token has expired; another request can reach the task.
        """
        view = await self._find(incoming)
        if not ttl_form.has_ended(view):
            view = await self._ended(view, incoming)
        return incoming.answered(self.words_of(view).final_result(view))

    async def _ended(self, view: TaskView, incoming: Incoming) -> TaskView:
        """Wait for the end of a task, and ask its questions unless another stream does."""
        stream, name, asks = self.stream(view, incoming), secrets.token_hex(8), False
        try:
            with incoming.client.waiting():
                async with contextlib.aclosing(self.follower.views(view, incoming.caller)) as views:
                    async for now in views:
                        if now is None:
                            raise ttl_form.gone()
                        if ttl_form.has_ended(now):
                            return now
                        notify(incoming.client, stream.news(now))
                        if now.phase is Phase.WAITING:
                            _check_takes_questions(incoming)
                            asks = await self._may_ask(view, name, incoming.caller, DELIVERY_MS)
                            ask(incoming.client, stream.questions(now) if asks else ())
        finally:
            if asks:  # so that another stream need not wait until the right expires
                await self._may_ask(view, name, incoming.caller, 0)
        raise Overloaded

    async def _may_ask(self, view: TaskView, stream: str, caller: Caller, ms: int) -> bool:
        """Take, renew or give back the right to ask, and return whether this stream has it. It needs the store."""
        try:
            return await self.access.deliver(view.task_id, stream, ms, caller)
        except TaskStoreDown:
            return False


def _check_takes_questions(incoming: Incoming) -> None:
    if incoming.client.post is None:
        raise InvalidRequest(
            "The task asks a question, which requires a stream: send Accept: application/json, text/event-stream"
        )
