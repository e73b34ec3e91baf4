"""`tasks/*` of the 2025-11-25 wire, where who waits for the result of a task is also asked its questions."""

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
"""For how long a stream has the right to ask. Each time that the task is read it is renewed: every 5 s at least."""


class LegacyTasks(HandshakeTasks):
    """Answers requests about tasks."""

    def handlers(self, *, has_identity: bool) -> Mapping[str, Handler]:
        """Return the handlers, by method.

        Args:
            has_identity: whether callers say who they are, so that a list of tasks is one caller's own.
        """
        lists: dict[str, Handler] = {"tasks/list": self.page} if has_identity else {}
        return {"tasks/get": self.get, "tasks/result": self.result, "tasks/cancel": self.cancel, **lists}

    async def result(self, incoming: Incoming) -> Reply:
        """Answer `tasks/result`, once the task has ended; what it asks until then goes to the client as requests.

        Raises:
            RpcError: what the task came to, or like `get`; or the answers never fit.
            InvalidRequest: the task asks something, and the client takes no stream.
            Overloaded: this replica leaves, or the token is over; another request reaches the task as well.
        """
        view = await self._find(incoming)
        if not ttl_form.has_ended(view):
            view = await self._ended(view, incoming)
        return incoming.answered(self.words_of(view).final_result(view))

    async def _ended(self, view: TaskView, incoming: Incoming) -> TaskView:
        """Wait for the end of a task, and ask what it asks meanwhile, unless another stream does."""
        stream, name, asks = self.stream(view, incoming), secrets.token_hex(8), False
        try:
            with incoming.client.waiting():
                async with contextlib.aclosing(self._follower.views(view, incoming.caller)) as views:
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
            if asks:  # another stream need not wait until the right ends
                await self._may_ask(view, name, incoming.caller, 0)
        raise Overloaded

    async def _may_ask(self, view: TaskView, stream: str, caller: Caller, ms: int) -> bool:
        """Take the right to ask, prolong it, or give it back; a store that is away gives it to nobody."""
        try:
            return await self._access.deliver(view.task_id, stream, ms, caller)
        except TaskStoreDown:
            return False


def _check_takes_questions(incoming: Incoming) -> None:
    if incoming.client.post is None:
        raise InvalidRequest(
            "The task asks a question, which requires a stream: send Accept: application/json, text/event-stream"
        )
