"""One leg of a call, on whichever wire: open → run → seal → encode."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from gateway.authoring.resources import Resource
from gateway.authoring.served import Served
from gateway.authoring.tools import Tool
from gateway.calls.failures import Failures, failed_result
from gateway.calls.ports import LegTrace, Shedding, Tracing
from gateway.calls.task_creation import AlreadyUsed, Repetition, TaskCalls, TaskOrder
from gateway.engine.driver import run_leg
from gateway.engine.host import Host, Notices
from gateway.engine.journal import Journal
from gateway.engine.leg import Detaching, Leg
from gateway.engine.outcomes import Completed, Detached, Failed, InputRequired, Outcome, Shed
from gateway.engine.questions import Answer, Question
from gateway.errors import CannotContinue, JournalTooLarge, MissingCapability, NotNow, RejectReason, TooManyAnswers
from gateway.observability.audit import AuditLog
from gateway.observability.logs import FLOW
from gateway.observability.metrics import Telemetry
from gateway.protocol import notifications
from gateway.protocol.caller import Caller
from gateway.protocol.capabilities import supports
from gateway.protocol.requests import Continuation, McpRequest
from gateway.protocol.result_format import Words
from gateway.protocol.strict_json import encode
from gateway.sealing.binding import request_state_binding
from gateway.sealing.digest import arguments_digest
from gateway.tasks.model import TaskView
from gateway.tokens.key_holder import KeyHolder
from gateway.tokens.request_state import SealedCarrier

MAX_ANSWERS = 100
"""How many answers one leg may bring unless told otherwise."""

Post = Callable[[bytes], None]
"""Sends one notification ahead of the answer. May be called from any thread."""

Told: TypeAlias = tuple[msgspec.Raw, str]
"""The result of a leg as JSON, and the name of its outcome."""


class Ran(msgspec.Struct, frozen=True):
    """What came of a leg.

    Attributes:
        result: what the client is to be told, as JSON.
        task: the task that the call has become, if it has.
    """

    result: msgspec.Raw
    task: TaskView | None = None


@dataclass(slots=True)
class Conversation:
    """A call that asks its client while its request is open: what it has learned rests here between two legs.

    Attributes:
        answers: those of the client to what the last leg asked, by the author's key.
        journal: what the call has learned so far, None before its first leg.
        questions: what the last leg asks, by the author's key; empty once the call is over.
        served: the tool, prompt or resource, None before the first leg.
        target: its name, or the URI, as the client gave it.
    """

    answers: Mapping[str, Answer] = field(default_factory=dict)
    journal: Journal | None = None
    questions: Mapping[str, Question] = field(default_factory=dict)
    served: Served | None = None
    target: str = ""

    @property
    def continuation(self) -> Continuation:
        """What the next leg goes on with; there is no state to bring."""
        return Continuation(dict(self.answers), None)


class Call:
    """One leg as a client asks for it.

    Args:
        request: the request that carries it.
        caller: who sent it.
        served: the tool, prompt or resource.
        target: its name, or the URI, as the client gave it.
        arguments: as parsed.
        continuation: the state and the answers that the client brings.
        post: where notifications about the request go, or None if the client takes none.
        words: how the result is told.
        order: the task that the call becomes where it can, or None if its client takes none.
        conversation: holds the journal where the client does not carry it; None where it does.
        forwarded_id: see `gateway.wires.ports.Client.forwarded_id`.
    """

    __slots__ = (
        "arguments",
        "caller",
        "continuation",
        "conversation",
        "forwarded_id",
        "order",
        "post",
        "request",
        "served",
        "target",
        "words",
    )

    def __init__(
        self,
        *,
        request: McpRequest,
        caller: Caller,
        served: Served,
        target: str,
        arguments: dict[str, Any],
        continuation: Continuation,
        post: Post | None,
        words: Words,
        order: TaskOrder | None = None,
        conversation: Conversation | None = None,
        forwarded_id: str = "",
    ) -> None:
        self.request: Final = request
        self.caller: Final = caller
        self.served: Final = served
        self.target: Final = target
        self.arguments: Final = arguments
        self.continuation: Final = continuation
        self.post: Final = post
        self.words: Final = words
        self.order: Final = order
        self.conversation: Final = conversation
        self.forwarded_id: Final = forwarded_id


class CallRunner:
    """Runs legs of ephemeral calls; holds nothing between two of them.

    Args:
        keys: seal and open.
        carrier: opens and seals the state of calls.
        host: runs legs.
        telemetry: counts legs.
        audit: notes each leg.
        max_answers: how many answers one leg may bring.
        tasks: makes tasks of calls, or None where there is no store for them.
        strict_asks: whether a function that declares its questions may ask only those.
        shedding: tells at checkpoints whether a leg should end so that another replica goes on.
        tracing: traces legs and steps, or None.
    """

    def __init__(
        self,
        *,
        keys: KeyHolder,
        carrier: SealedCarrier,
        host: Host,
        telemetry: Telemetry,
        audit: AuditLog,
        max_answers: int = MAX_ANSWERS,
        tasks: TaskCalls | None = None,
        strict_asks: bool = False,
        shedding: Shedding | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._keys = keys
        self._carrier = carrier
        self._host = host
        self._telemetry = telemetry
        self._failures = Failures(keys.random_bytes)
        self._tasks = tasks
        self._audit = audit
        self._max_answers = max_answers
        self._strict_asks = strict_asks
        self._shedding = shedding
        self._tracing = tracing
        self._stepping = None if tracing is None else tracing.step

    async def run(self, call: Call) -> Ran:
        """Run one leg and return what came of it.

        Raises:
            AuditLogDown: the call has not begun here, and its line could not be written.
            RpcError: the leg ends in a JSON-RPC error.
        """
        if call.conversation is None or call.conversation.journal is None:
            self._audit.require()
        began = time.perf_counter()
        served, method = call.served, call.request.method
        outcome = "failed"
        journal: Journal | None = None
        trace: LegTrace | None = None
        self._telemetry.leg_started()
        try:
            # The keys may be replaced while the leg runs: it seals with those it began with.
            passage = _Passage(self._carrier, self._keys, call, self._detaching(call))
            journal = passage.journal()
            flow_id = journal.flow_id
            FLOW.set(flow_id)
            if self._tracing is not None:
                trace = self._tracing.leg(journal, served.label, nested=call.conversation is not None)
            result, outcome = await self._running(call, passage, journal)
            return Ran(result, passage.task)
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            seconds = time.perf_counter() - began
            self._telemetry.leg_finished(method, served.label, outcome, call.words.wire, seconds)
            if journal is not None:
                legs = journal.legs
                lasted = seconds if legs <= 1 else passage.carrier.age_seconds(journal)
                self._telemetry.call_ended(method, outcome, lasted)
                self._audit.leg(
                    call.caller.principal,
                    method,
                    call.target,
                    flow=flow_id,
                    leg=legs,
                    outcome=outcome,
                    seconds=seconds,
                    task="" if passage.task is None else passage.task.task_id,
                )
            if trace is not None:
                trace.end(outcome, "" if passage.task is None else passage.task.task_id)
            FLOW.set("")

    def _detaching(self, call: Call) -> Detaching:
        """Tell whether the call can become a task."""
        served = call.served
        if not isinstance(served, Tool) or served.task == "forbidden":
            return Detaching.FORBIDDEN
        return Detaching.IMPOSSIBLE if call.order is None or self._tasks is None else Detaching.POSSIBLE

    def _running(self, call: Call, passage: _Passage, journal: Journal) -> Coroutine[Any, Any, Told]:
        """Run the leg; one of a tool for single use, only if its state was not used before.

        Raises:
            TooManyAnswers: it brings more answers than one leg may.
        """
        served, continuation = call.served, call.continuation
        answers = continuation.input_responses
        if len(answers) > self._max_answers:
            raise TooManyAnswers(self._max_answers)
        if not isinstance(served, Tool) or not served.single_use or call.conversation is not None:
            return self._leg(call, answers, passage, journal)
        if continuation.request_state is None:  # an answer without a state could be given any number of times
            return self._leg(call, {}, passage, journal)
        return self._once(call, served, passage, journal)

    async def _once(self, call: Call, tool: Tool, passage: _Passage, journal: Journal) -> Told:
        assert self._tasks is not None  # noqa: S101 - such a tool is not served without a store
        state, answers = call.continuation.request_state, call.continuation.input_responses
        try:
            return await self._tasks.once(
                journal,
                call.caller.principal,
                arguments_digest({"state": state, "answers": answers, "capabilities": call.request.capabilities}),
                passage.carrier.lifetime_ms(tool.state_ttl_seconds),
                lambda: self._leg(call, answers, passage, journal),
            )
        except AlreadyUsed:
            raise passage.carrier.reject(RejectReason.ALREADY_USED) from None

    async def _leg(self, call: Call, answers: Mapping[str, Any], passage: _Passage, journal: Journal) -> Told:
        # Who is asked on the stream that waits for this leg cannot go on elsewhere.
        sheds = self._sheds() if call.conversation is None else None
        outcome = await self._outcome(call, answers, passage, journal, sheds)
        if isinstance(outcome, Shed):
            try:
                return msgspec.Raw(encode(call.words.shed(passage.seal(journal)))), "shed"
            except CannotContinue:
                pass  # so nobody else can go on: it is finished here, from its checkpoint
            outcome = await self._outcome(call, {}, passage, journal, None)
        return await self._tell(call, outcome, journal, passage)

    def _sheds(self) -> Callable[[], bool] | None:
        """Return what tells a leg that begins now whether it should end at its next checkpoint."""
        shedding = self._shedding
        if shedding is None:
            return None
        began = time.perf_counter()
        return lambda: shedding.wants_shed(time.perf_counter() - began)

    async def _outcome(
        self,
        call: Call,
        answers: Mapping[str, Any],
        passage: _Passage,
        journal: Journal,
        sheds: Callable[[], bool] | None,
    ) -> Outcome:
        """Run the function from the top."""
        served, request = call.served, call.request
        capabilities = request.capabilities
        leg = Leg(
            journal,
            call.words.read_answers(answers) if answers else {},
            self._host,
            supports=lambda path: supports(capabilities, path),
            version=served.version,
            migrations=served.migrations,
            declared=served.asks if self._strict_asks else None,
            notices=_notices(request, call.post),
            detaching=passage.detaching,
            sheds=sheds,
            stepping=self._stepping,
        )
        try:
            function = served.bind(call.arguments, call.caller.principal, journal)
        except Exception as error:  # noqa: BLE001 - an argument's type may bring a validator of the author's
            return Failed(error)
        return Detached() if _starts_as_task(call, passage.detaching) else await run_leg(function, leg)

    async def _tell(self, call: Call, outcome: Outcome, journal: Journal, passage: _Passage) -> Told:
        try:
            if isinstance(outcome, Completed):
                fields = self._completed(call, outcome.value, journal)
                told, name = msgspec.Raw(encode(fields)), "completed"
            else:
                result, name = await self._result(call, outcome, journal, passage)
                return msgspec.Raw(encode(result)), name
        except Exception as error:  # noqa: BLE001 - what a function returns or asks may break whoever reads it
            fields = call.words.complete(_unable(call, error) or self._failures.result(call.served, error, journal))
            told, name = msgspec.Raw(encode(fields)), "failed"
        if call.order is None or call.order.otherwise is None or passage.detaching is not Detaching.POSSIBLE:
            return told, name
        return await self._end_as_task(call, fields, journal, passage), name

    async def _end_as_task(
        self, call: Call, result: dict[str, Any], journal: Journal, passage: _Passage
    ) -> msgspec.Raw:
        """Report a leg that has ended as a task that has; as itself where the store takes no task.

        The leg has run: to refuse the request now would make its client run it again.
        """
        try:
            passage.task = await self._create_task(call, journal, passage, result)
        except (NotNow, CannotContinue):
            assert call.order is not None  # noqa: S101 - seen to by `_tell`
            return msgspec.Raw(
                encode({**result, "_meta": {**(result.get("_meta") or {}), **(call.order.otherwise or {})}})
            )
        return msgspec.Raw(encode(call.words.task_created(passage.task)))

    async def _result(
        self, call: Call, outcome: Outcome, journal: Journal, passage: _Passage
    ) -> tuple[dict[str, Any], str]:
        """Return the result that tells an outcome other than completed, and the outcome's name.

        Raises:
            Exception: the tool's own, or what tells why there is no result.
        """
        if isinstance(outcome, InputRequired):
            return await self._ask(call, outcome, journal, passage)
        if isinstance(outcome, Detached):
            return await self._become_task(call, journal, passage)
        assert isinstance(outcome, Failed)  # noqa: S101 - the others end legs of tasks only
        raise outcome.error

    async def _ask(
        self, call: Call, outcome: InputRequired, journal: Journal, passage: _Passage
    ) -> tuple[dict[str, Any], str]:
        """Ask the client; a journal that it cannot carry becomes a task's, where that can be."""
        if call.conversation is not None:
            call.conversation.questions = outcome.questions
            return {}, "input_required"
        try:
            return call.words.input_required(outcome.questions, passage.seal(journal)), "input_required"
        except JournalTooLarge:
            if passage.detaching is not Detaching.POSSIBLE:
                raise
        return await self._become_task(call, journal, passage)

    async def _become_task(self, call: Call, journal: Journal, passage: _Passage) -> tuple[dict[str, Any], str]:
        passage.task = await self._create_task(call, journal, passage, None)
        return call.words.task_created(passage.task), "task_created"

    def _create_task(
        self, call: Call, journal: Journal, passage: _Passage, result: dict[str, Any] | None
    ) -> Coroutine[Any, Any, TaskView]:
        """Make a task of a call that can become one; with a result, one that has ended."""
        assert self._tasks is not None and isinstance(call.served, Tool) and call.order is not None  # noqa: S101, PT018 - seen to by `_detaching`
        return self._tasks.create(
            call.served,
            call.order,
            journal,
            principal=call.caller.principal,
            arguments=call.arguments,
            capabilities=call.request.capabilities,
            repetition=_repetition(call, call.order, passage.carrier.lifetime_ms(call.served.state_ttl_seconds)),
            result=result,
        )

    def _completed(self, call: Call, value: Any, journal: Journal) -> dict[str, Any]:
        fields = call.served.whole_result(value, call.target, journal)
        if not isinstance(call.served, Resource):
            return call.words.complete(fields)
        # A read that depended on answers must not be kept (MCP "Caching", Cache Key).
        is_retry = bool(call.continuation.input_responses) or call.continuation.request_state is not None
        ttl_ms = 0 if is_retry else call.served.ttl_ms
        return call.words.cacheable(fields, ttl_ms=ttl_ms, scope="private" if is_retry else call.served.cache)


class _Passage:
    """How the journal of one leg comes in and goes out: by one carrier, bound to one call.

    Args:
        carrier: opens and seals.
        keys: what seals and opens is taken of them here, once.
        call: what the state is bound to.
        detaching: whether the call can become a task.

    Attributes:
        task: what the call has become in this leg, if it has.
    """

    def __init__(self, carrier: SealedCarrier, keys: KeyHolder, call: Call, detaching: Detaching) -> None:
        self.carrier = carrier
        self._sealer = keys.current
        self.detaching = detaching
        self.task: TaskView | None = None
        self._audience = keys.audience
        self._call = call
        self._bound: bytes | None = None

    def journal(self) -> Journal:
        """Return the journal that the client brings, or that of a new flow.

        Raises:
            InvalidRequestState: what the client brings is not accepted.
        """
        conversation = self._call.conversation
        if conversation is not None:
            conversation.questions = {}
            conversation.journal = conversation.journal or self.carrier.begin()
            return conversation.journal
        state = self._call.continuation.request_state
        return self.carrier.begin() if state is None else self.carrier.open(self._sealer, state, self._binding())

    def seal(self, journal: Journal) -> str:
        """Return the state that the client brings to the next leg.

        Raises:
            CannotContinue: there can be no next leg.
        """
        return self.carrier.seal(self._sealer, journal, self._binding(), self._call.served.state_ttl_seconds)

    def _binding(self) -> bytes:
        """Return what the state is bound to; worked out only if one is opened or sealed."""
        if self._bound is None:
            call = self._call
            digest = arguments_digest(call.arguments)
            self._bound = request_state_binding(
                self._audience, call.caller.principal, call.request.method, call.target, digest
            )
        return self._bound


class _RequestNotices:
    """Sends what a leg tells of itself on the answer to its request, as far as the client asked for it."""

    def __init__(self, request: McpRequest, post: Post) -> None:
        self._request = request
        self._post = post

    def progress(self, done: Any, total: Any, message: Any) -> None:
        token = self._request.progress_token
        if token is not None:
            self._post(notifications.progress(token, done, total, message))

    def log(self, level: Any, data: Any, logger: Any) -> None:
        if notifications.is_logged(level, self._request.log_level):
            self._post(notifications.log_message(level, data, logger))


def _repetition(call: Call, order: TaskOrder, state_ms: int) -> Repetition | None:
    """Return what a repetition of the request would be known by as the order of the same task."""
    continuation, request = call.continuation, call.request
    if call.conversation is None and continuation.request_state is not None:
        # Whatever else is wished for the second time: the leg is the same one, and becomes the same task.
        same = {"state": continuation.request_state, "answers": continuation.input_responses, "id": order.task_id}
        return Repetition(same, state_ms, continues=True)
    name = order.request or call.forwarded_id
    return Repetition({"name": name, "method": request.method, "params": request.params}) if name else None


def _notices(request: McpRequest, post: Post | None) -> Notices | None:
    asked = request.progress_token is not None or request.log_level is not None
    return _RequestNotices(request, post) if asked and post is not None else None


def _unable(call: Call, error: Exception) -> dict[str, Any] | None:
    """Return the result of a tool that needs more than the client can, on wires that have no error for it."""
    if not isinstance(error, MissingCapability) or not isinstance(call.served, Tool):
        return None
    message = call.words.unable(error)
    return None if message is None else failed_result(message)


def _starts_as_task(call: Call, detaching: Detaching) -> bool:
    if detaching is not Detaching.POSSIBLE or call.order is None or not isinstance(call.served, Tool):
        return False
    return call.order.at_once or call.served.starts_as_task
