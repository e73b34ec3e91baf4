"""Calls of the 2025-11-25 wire, which send their questions to the client as requests, on the stream of the answer.

A call stays in the process where it started, and its journal stays in memory. The answers arrive in other requests of
the client, to this replica or through another one. So a call does not survive its process, and cannot move to another.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from gateway.authoring.tools import Tool
from gateway.calls.authority import Authority
from gateway.calls.failures import failed_result
from gateway.calls.runner import QUICK_BYTES, Conversation, Ran
from gateway.calls.task_creation import TaskOrder
from gateway.engine.questions import Answer, Question
from gateway.ensured import ensured
from gateway.errors import (
    CannotContinue,
    InternalError,
    MethodNotFound,
    NotAnswered,
    Overloaded,
    RejectReason,
    TooManyBodyBytes,
    TryAgain,
)
from gateway.protocol.handshake.questions import read_answer, request_params
from gateway.protocol.handshake.tasks import TaskWish, read_task_params
from gateway.protocol.jsonrpc import server_request
from gateway.protocol.legacy.results import LegacyResults
from gateway.protocol.param_headers import check_param_headers
from gateway.protocol.requests import read_tool_call
from gateway.protocol.versions import LEGACY
from gateway.registry.registry import Registry
from gateway.runtime.sources import Clock
from gateway.runtime.turns import Turns
from gateway.tokens.request_ids import RequestIds
from gateway.wires.handshake.tasks import TTL_FORM
from gateway.wires.legacy.pending_answers import (
    AnswersTooLarge,
    Lapsed,
    Leaving,
    Undelivered,
    WaitingCall,
    WaitingCalls,
)
from gateway.wires.methods import Incoming, Methods, RunLeg
from gateway.wires.replies import Reply


class Unanswered(CannotContinue):
    """The client can no longer answer a question, or cannot be asked. The problem is not on our side."""


@dataclass(frozen=True, slots=True)
class LegacyCalls:
    """Answers `tools/call`, `prompts/get` and `resources/read`.

    The client may take `answer_seconds`. The clock returns seconds since the epoch. The limits are for the body of an
    answer.
    """

    methods: Methods
    words: LegacyResults
    addresses: RequestIds
    waiting: WaitingCalls
    _: KW_ONLY
    answer_seconds: float
    clock: Clock
    takes_tasks: bool
    max_json_depth: int
    max_json_values: int
    _turns: Turns = field(default_factory=Turns, init=False)
    _ending: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    async def call(self, incoming: Incoming, /) -> Reply:
        """Answer `tools/call`.

        If the token does not grant the tool's scopes, this raises `InsufficientScope`; other errors are `RpcError`.
        """
        wanted = read_tool_call(incoming.request.params)
        tool = self.methods.tool(wanted, incoming.caller) or await self.methods.unlisted_tool(wanted, incoming)
        check_param_headers(tool.param_headers, wanted.arguments, incoming.headers, optional=True)
        wish = read_task_params(incoming.request.params) if self.takes_tasks else None
        order = _order(tool, wish, takes_tasks=self.takes_tasks)
        conversation = Conversation()

        async def leg(incoming: Incoming) -> Ran:
            return await self.methods.call_tool(incoming, tool, wanted, order)

        result: Any
        try:
            result = (await self._converse(incoming, conversation, leg)).result
        except CannotContinue as error:
            if order is not None:  # the client expects a task, and would take no other result
                raise InternalError(str(error)) from None
            emitted = [] if conversation.journal is None else conversation.journal.segments
            result = self.methods.words.complete(failed_result(str(error), emitted))
        return incoming.answered(result)

    async def run(self, incoming: Incoming, leg: RunLeg, /) -> Ran:
        """Run a prompt or a resource to its end, or raise the `RpcError` that ends the call."""
        try:
            return await self._converse(incoming, Conversation(), leg)
        except Unanswered as error:
            raise NotAnswered(error) from None
        except CannotContinue as error:
            raise InternalError(str(error)) from None

    async def _converse(self, incoming: Incoming, conversation: Conversation, leg: RunLeg) -> Ran:
        """Run leg after leg, and ask the questions between them.

        If the client cannot be asked, or no answer matches its question, this raises `CannotContinue`.
        """
        incoming = incoming.within(conversation)
        ran = await leg(incoming)
        if not conversation.questions:
            return ran
        with self._abandoning(incoming, conversation), self._open(incoming, conversation) as call:
            asked: Counter[str] = Counter()
            while conversation.questions:
                asked.update(conversation.questions.keys())
                conversation.answers = await self._ask(incoming, conversation, call, asked)
                # The answer's token may have come to another replica, so the call keeps the token of its request.
                incoming = incoming.by(replace(call.authority, exchange=incoming.caller.exchange))
                ran = await leg(incoming)
                conversation.answers = {}  # what the call still needs is in its journal
        return ran

    @contextlib.contextmanager
    def _abandoning(self, incoming: Incoming, conversation: Conversation) -> Iterator[None]:
        """If the context ends early, end what the call has begun elsewhere: nobody can continue it."""
        try:
            yield
        except BaseException:
            journal, served = conversation.journal, ensured(conversation.served, "its first leg has run")
            if journal is not None:
                ending = asyncio.create_task(served.abandon(incoming.requester, journal))
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)
            raise

    @contextlib.contextmanager
    def _open(self, incoming: Incoming, conversation: Conversation) -> Iterator[WaitingCall]:
        """Register a waiting call, or raise `CannotContinue` if too many calls wait in this process.

        Its first leg has run, so the client must not repeat the call if there is no room.
        """
        served, target = ensured(conversation.served, "its first leg has run"), conversation.target
        authority = Authority.of(incoming.caller, incoming.session)

        def needs(registry: Registry) -> frozenset[str]:
            return registry.scopes_of(served, target)

        with contextlib.ExitStack() as stack:
            try:
                held = stack.enter_context(incoming.client.holding())
                call = stack.enter_context(self.waiting.open(authority, needs, held))
            except TryAgain as error:
                raise CannotContinue(_why(error)) from None
            yield call

    async def _ask(
        self, incoming: Incoming, conversation: Conversation, call: WaitingCall, asked: Mapping[str, int]
    ) -> dict[str, Answer]:
        """Send the questions of a leg, and return the answers by the author's keys.

        Raises:
            Unanswered: the client cannot be asked, or does not answer.
            CannotContinue: the call cannot wait for the answers.
        """
        client = incoming.client
        if client.post is None:
            raise Unanswered(
                "This call asks a question, which requires a stream: send Accept: application/json, text/event-stream"
            )
        questions, seconds = conversation.questions, self._seconds_for(conversation)
        keys = {_wire_key(key, asked[key]): key for key in questions}
        journal = conversation.journal
        call.expect(keys, keeps=journal is not None and bool(journal.answers))
        try:
            with client.waiting():
                for wire_key, key in keys.items():
                    address = self.addresses.of_call(call.call_id, wire_key, seconds, incoming.caller)
                    client.ask(self._request(address, questions[key], f"{call.call_id.hex()}:{wire_key}"))
                bodies = await self._answers(call, seconds)
        except (Lapsed, AnswersTooLarge, TimeoutError) as error:
            raise Unanswered(_why(error)) from None
        except (Leaving, Undelivered, TryAgain) as error:
            raise CannotContinue(_why(error)) from None
        with contextlib.suppress(Overloaded):  # a user's answers are not discarded, however busy the replica is
            await client.enter()
        answers = {}
        for wire_key, body in bodies.items():
            if len(body) > QUICK_BYTES:
                await self._turns.begin(None, incoming.caller.principal)
            answers[keys[wire_key]] = self._read(body)
        return answers

    def _request(self, address: str, question: Question, name: str) -> bytes:
        params = request_params(question.method, self.words.question(question.params), name)
        return server_request(address, question.method, params)

    async def _answers(self, call: WaitingCall, seconds: float) -> dict[str, bytes]:
        """Wait for the bodies of the answers. Count an answer that ends its call because there is no room for it."""
        try:
            async with asyncio.timeout(seconds):
                return await call.answers()
        except (AnswersTooLarge, TooManyBodyBytes):
            self.addresses.reject(RejectReason.TOO_LARGE)
            raise

    def _read(self, body: bytes) -> Answer:
        """Return the answer in a body, which was checked when it arrived."""
        return read_answer(body, self.max_json_depth, self.max_json_values)

    def _seconds_for(self, conversation: Conversation) -> float:
        """Return how long an answer may take now: a call does not continue after its deadline."""
        journal = conversation.journal
        left = 0.0 if journal is None else journal.deadline_ms / 1000 - self.clock()
        return max(0.0, min(self.answer_seconds, left))


def _wire_key(key: str, asked: int) -> str:
    """Return the key for the n-th time that a question is asked, so that a repeated answer does not count again."""
    return key if asked == 1 else f"{key}~{asked}"


def _why(error: Exception) -> str:
    """Return why the call cannot wait for an answer, and what to do."""
    if isinstance(error, Leaving):
        return "The server is about to restart and cannot wait for the answer; call again"
    if isinstance(error, Undelivered):
        return "An answer reached another process of the server, which could not deliver it; call again"
    if isinstance(error, Lapsed):
        return "The access token is no longer valid for this call; call again with another token"
    if isinstance(error, AnswersTooLarge):
        return "The answers are too large: together they have more bytes than one request may; call again"
    if isinstance(error, TimeoutError):
        return "No answer came in time; call again"
    return f"{error}; call again later"


def _order(tool: Tool, wish: TaskWish | None, *, takes_tasks: bool) -> TaskOrder | None:
    """Return the task that a request asks for, or None (2025-11-25 "Tasks", Tool-Level Negotiation).

    The task starts immediately, because its client does not wait for an answer to the request.

    Raises:
        MethodNotFound: the request asks for a task and the tool does not support tasks, or it does not ask for one and
            the tool runs only as a task.
    """
    if wish is None:
        if tool.task == "required":
            how = "call it with params.task" if takes_tasks else f"that requires a client of {LEGACY} or newer"
            raise MethodNotFound(f"{tool.name} runs only as a task; {how}")
        return None
    if tool.task == "forbidden":
        raise MethodNotFound(f"{tool.name} does not support tasks; call it without params.task")
    return TaskOrder(TTL_FORM, retention_ms=wish.ttl_ms, at_once=True, otherwise={})
