"""The answers of the gateway to requests of upstreams: to questions those of users, to other requests its own."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Final

from gateway.protocol.jsonrpc import RequestId
from gateway.protocol.upstream.responses import Notice, ServerRequest, usable_id
from gateway.upstreams.ports import Questions
from gateway.upstreams.texts import NOT_PASSED_ON

CANCELLED: Final = "notifications/cancelled"
"""How an upstream withdraws a question."""

MAX_QUESTIONS: Final = 1000
"""How many questions of one call are looked at. Those that no user gets count, too."""

_METHOD_NOT_FOUND: Final = -32601
_NO_USER: Final = (
    "no user is asked outside of a call, by a client that declares no questions,"
    ' where the option "ask" is refuse, or in a task without GATEWAY_HOLDERS'
)
"""Why a question is refused that belongs to no call, or to one without `Questions`."""
SHARED: Final = 'callers share this connection; the option "scope" of the upstream, set to caller, gives each their own'
UNCLEAR: Final = "it is not clear which call it belongs to; call again when no other call runs"
"""Why a question is refused that names no call, if it could be shown to the wrong user."""


def reply_to(asked: ServerRequest, upstream: str, roots: Sequence[str] = (), why: str = _NO_USER) -> dict[str, Any]:
    """Return the JSON-RPC response to a request of an upstream.

    Only directories that the operator declares are `roots`, as URIs: some servers replace what they may read by these,
    so those of a caller must never be sent. Questions to users are refused, with the reason.
    """
    response: dict[str, Any] = {"jsonrpc": "2.0", "id": asked.request_id}
    if asked.method == "ping":
        return {**response, "result": {}}
    if asked.method == "roots/list":
        return {**response, "result": {"roots": [{"uri": uri} for uri in roots]}}
    text = f"{NOT_PASSED_ON} {upstream!r} on: {why}."
    return {**response, "error": {"code": _METHOD_NOT_FOUND, "message": text}}


def is_question(asked: ServerRequest) -> bool:
    """Return whether a request wants something of a user."""
    return asked.method not in ("ping", "roots/list")


def withdrawn(notice: Notice) -> RequestId | None:
    """Return the id of the question that a notification withdraws; None if it is about something else."""
    return usable_id(notice.params.get("requestId")) if notice.method == CANCELLED else None


class OpenQuestions:
    """The questions of an upstream that wait for their answers in one connection.

    `send` sends an answer, and returns whether it arrived. `drop` counts a question that gets none, because
    nobody waits for it any longer.
    """

    def __init__(self, send: Callable[[dict[str, Any]], Awaitable[bool]], drop: Callable[[], None]) -> None:
        self._send = send
        self._drop = drop
        self._taken: Counter[Hashable] = Counter()
        self._open: dict[RequestId, tuple[Hashable, asyncio.Task[None]]] = {}

    def take(self, asked: ServerRequest, questions: Questions, call: Hashable) -> bool:
        """Have a question answered that belongs to a call. Return False if it is to be refused.

        If the same one is open, as on a stream that is resumed, it is not asked again.
        """
        request_id = asked.request_id
        if request_id in self._open:
            return self._open[request_id][0] == call
        if request_id is None or self._taken[call] >= MAX_QUESTIONS:
            return False
        self._taken[call] += 1
        task = asyncio.create_task(self._answered(request_id, asked, questions))
        self._open[request_id] = call, task
        task.add_done_callback(functools.partial(self._closed, request_id))
        return True

    def withdraw(self, request_id: RequestId) -> bool:
        """Ask a question no longer, because the upstream does not wait. Return whether it was open."""
        open_question = self._open.pop(request_id, None)  # the upstream may use its id again at once
        if open_question is None:
            return False
        open_question[1].cancel()
        return True

    def end(self, call: Hashable) -> None:
        """Ask none of a call any longer, because it has ended."""
        del self._taken[call]
        for request_id in [each for each, (belongs_to, _) in self._open.items() if belongs_to == call]:
            self.withdraw(request_id)

    async def _answered(self, request_id: RequestId, asked: ServerRequest, questions: Questions) -> None:
        answer = await questions.answer(asked)
        if not await self._send({"jsonrpc": "2.0", "id": request_id, **answer}):
            questions.lose()

    def _closed(self, request_id: RequestId, task: asyncio.Task[None]) -> None:
        if request_id in self._open and self._open[request_id][1] is task:
            del self._open[request_id]
        if task.cancelled():
            self._drop()
