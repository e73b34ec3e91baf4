"""One leg of a call, on any wire: open → run → seal → encode."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import msgspec

from gateway.authoring.mistakes import drop_tracebacks
from gateway.authoring.resources import Resource
from gateway.authoring.served import Served
from gateway.authoring.tools import Tool
from gateway.calls.failures import Failures, failed_result
from gateway.calls.ports import Shedding
from gateway.calls.shown_headers import shown_headers
from gateway.calls.task_creation import (
    AlreadyUsed,
    Repetition,
    TaskCalls,
    TaskOrder,
)
from gateway.calls.unused_answers import warn_of_unused_answers
from gateway.engine.capabilities import supports
from gateway.engine.driver import run_leg
from gateway.engine.host import Host, Notices
from gateway.engine.journal import Journal
from gateway.engine.leg import Away, Detaching, Leg
from gateway.engine.leg_policy import LegPolicy
from gateway.engine.outcomes import Completed, Detached, Failed, NeedsInput, Outcome, Shed
from gateway.engine.questions import Answer, Question
from gateway.engine.values import exceeds
from gateway.ensured import ensured, ensured_type
from gateway.errors import (
    CannotContinue,
    JournalTooLarge,
    MissingCapability,
    NotNow,
    RejectReason,
    ResultTooLarge,
    TaskStoreAway,
    TaskStoreDown,
    TooManyAnswers,
)
from gateway.observability.audit import AuditLog
from gateway.observability.logs import FLOW
from gateway.observability.metrics import Telemetry
from gateway.protocol import notifications
from gateway.protocol.caller import Caller, RequesterOf
from gateway.protocol.requests import Continuation, McpRequest
from gateway.protocol.result_format import Words
from gateway.protocol.strict_json import encode
from gateway.runtime.turns import Turns
from gateway.sealing.binding import request_state_binding
from gateway.sealing.digest import arguments_digest
from gateway.tasks.model import TaskView
from gateway.tokens.key_holder import KeyHolder
from gateway.tokens.request_state import SealedCarrier

if TYPE_CHECKING:  # a process without traces never loads OpenTelemetry, which takes memory
    from gateway.observability.tracing import LegSpan, Traces

QUICK_BYTES: Final = 64 * 1024
"""Larger arguments that a relay has put aside are decoded again in turns: each takes long."""

STEPS_RAN: Final = "The task store is not available; steps of this call have run, and run again if it is repeated"

Post = Callable[[bytes], None]
"""Sends one notification before the answer. May be called from any thread."""

Reported: TypeAlias = tuple[msgspec.Raw, str]
"""The result of a leg as JSON, and the name of its outcome."""


@final
class Ran:
    """The result of a leg, as JSON for the client, and the task that the call has become, if it has."""

    def __init__(self, result: msgspec.Raw, task: TaskView | None) -> None:
        self.result: Final = result
        self.task: Final = task


@dataclass(slots=True)
class Conversation:
    """A call that asks its client while its request is open. The journal stays here between two legs.

    Attributes:
        journal: what the call has learned so far, None before its first leg.
        questions: the last leg's questions, by the keys in `NeedsInput`; empty once the call has ended.
        target: the name of the tool or prompt, or the URI, as the client sent it.
    """

    answers: Mapping[str, Answer] = field(default_factory=dict)
    journal: Journal | None = None
    questions: Mapping[str, Question] = field(default_factory=dict)
    served: Served | None = None
    target: str = ""

    @property
    def continuation(self) -> Continuation:
        """The input of the next leg; there is no state to open."""
        return Continuation(dict(self.answers), None)


@final
class LegRequest:
    """One leg as a client asks for it.

    Attributes:
        target: the name of the tool or prompt, or the URI, as the client sent it.
        post: sends notifications about the request, None if the client accepts none.
        order: the task that the call becomes if it can, None if its client does not support tasks.
        conversation: holds the journal if the client does not carry it; None if it does.
        forwarded_id: see `gateway.wires.ports.Client.forwarded_id`.
        requester: returns the part of the request that a relay may use.
    """

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
        requester: RequesterOf,
        order: TaskOrder | None,
        conversation: Conversation | None,
        forwarded_id: str,
    ) -> None:
        self.request: Final = request
        self.caller: Final = caller
        self.served: Final = served
        self.target: Final = target
        self.arguments: Final = arguments
        self.continuation: Final = continuation
        self.post: Final = post
        self.words: Final = words
        self.requester: Final = requester
        self.order: Final = order
        self.conversation: Final = conversation
        self.forwarded_id: Final = forwarded_id


class CallRunner:
    """Runs legs of ephemeral calls; holds nothing between two of them. A `RunningCall` uses its attributes.

    `tasks` is None without a task store. `shedding` decides at checkpoints whether a leg should end so another replica
    can continue.
    """

    def __init__(
        self,
        *,
        keys: KeyHolder,
        carrier: SealedCarrier,
        host: Host,
        telemetry: Telemetry,
        audit: AuditLog,
        policy: LegPolicy,
        tasks: TaskCalls | None = None,
        shedding: Shedding | None = None,
        tracing: Traces | None = None,
    ) -> None:
        self.keys: Final = keys
        self.carrier: Final = carrier
        self.host: Final = host
        self._telemetry = telemetry
        self.failures: Final = Failures(keys.random_bytes, policy)
        self.tasks: Final = tasks
        self._audit = audit
        self.policy: Final = policy
        self.shedding: Final = shedding
        self._tracing = tracing
        self.stepping: Final = None if tracing is None else tracing.step
        self.turns: Final = Turns()

    async def run(self, call: LegRequest) -> Ran:
        """Run one leg and return its result.

        Raises:
            AuditLogDown: the call has not begun in this request, and the audit log cannot be written.
            RpcError: the leg ends in a JSON-RPC error.
        """
        if call.conversation is None or call.conversation.journal is None:
            self._audit.require()
        began = time.perf_counter()
        outcome = "failed"
        leg: RunningCall | None = None
        trace: LegSpan | None = None
        self._telemetry.leg_started()
        try:
            leg = RunningCall(self, call)
            FLOW.set(leg.journal.flow_id)
            if self._tracing is not None:
                trace = self._tracing.leg(leg.journal, call.served.label, nested=call.conversation is not None)
            result, outcome = await leg.run()
            return Ran(result, leg.task)
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            seconds = time.perf_counter() - began
            self._telemetry.leg_finished(call.request.method, call.served.label, outcome, call.words.wire, seconds)
            if leg is not None:
                self._note(leg, outcome, seconds)
            if trace is not None:
                trace.end(outcome, "" if leg is None else leg.task_id)
            FLOW.set("")

    def _note(self, leg: RunningCall, outcome: str, seconds: float) -> None:
        """Count a call that has ended, and write the leg's line to the audit log."""
        call, journal = leg.call, leg.journal
        legs, method = journal.legs, call.request.method
        self._telemetry.call_ended(method, outcome, seconds if legs <= 1 else self.carrier.age_seconds(journal))
        self._audit.leg(
            call.caller.principal,
            method,
            call.target,
            flow=journal.flow_id,
            leg=legs,
            outcome=outcome,
            seconds=seconds,
            task=leg.task_id,
            upstream=call.served.upstream,
            away_seconds=leg.away_seconds,
            late_answer=leg.late_answer,
        )


class RunningCall:
    """One leg of a call: open the journal, run the function, and return what the client should get.

    Attributes:
        away_seconds: how long another server worked on it, if `served` is a relay.
        late_answer: whether that server had withdrawn a question whose answer came with it.

    Raises:
        InvalidRequestState: the client's state was rejected.
    """

    task: TaskView | None = None
    away_seconds = 0.0
    late_answer = False
    _bound: bytes | None = None
    _away: Away | None = None
    _steps_before: int | None = None

    def __init__(self, runner: CallRunner, call: LegRequest) -> None:
        self.call: Final = call
        self._runner: Final = runner
        # The keys may be replaced while the leg runs; it seals with those it started with.
        self._sealer: Final = runner.keys.current
        self._detaching: Final = _what_detach_does(call.served, None if runner.tasks is None else call.order)
        self.journal: Final = self._open()

    @property
    def task_id(self) -> str:
        """The id of the task that the call has become, "" if it has not."""
        return "" if self.task is None else self.task.task_id

    def _open(self) -> Journal:
        """Return the journal that the client sent, or that of a new flow.

        A new flow is the same one in all attempts of a request that a trusted proxy repeats.

        Raises:
            InvalidRequestState: the client's state was rejected.
            InvalidRequest: a header that the function may see is repeated or too long.
        """
        call, carrier = self.call, self._runner.carrier
        conversation, forwarded_id = call.conversation, call.forwarded_id
        if conversation is not None:
            conversation.questions = {}
            if conversation.journal is not None:
                return conversation.journal
        elif call.continuation.request_state is not None:
            return carrier.open(self._sealer, call.continuation.request_state, self._binding())
        journal = carrier.begin(forwarded_id, self._binding()) if forwarded_id else carrier.begin()
        names = self._runner.policy.tool_headers
        if names and not call.served.upstream:
            journal.headers = shown_headers(call.requester().headers, names)
        if conversation is not None:
            conversation.journal = journal
        return journal

    def _seal(self) -> str:
        """Return the state that the client sends back for the next leg.

        Raises:
            CannotContinue: the call cannot have another leg.
        """
        ttl_seconds = self.call.served.state_ttl_seconds
        return self._runner.carrier.seal(self._sealer, self.journal, self._binding(), ttl_seconds)

    def _binding(self) -> bytes:
        """Return what the call is bound to, computed when it is first needed."""
        if self._bound is None:
            call = self.call
            digest = arguments_digest(self._arguments())
            self._bound = request_state_binding(
                self._runner.keys.audience, call.caller.principal, call.request.method, call.target, digest
            )
        return self._bound

    def _arguments(self) -> dict[str, Any]:
        """Return the arguments of the call, also if a relay has emptied them."""
        if self._away is not None and self._away.restore_arguments is not None:
            self._away.restore_arguments()
            self._away.restore_arguments = None
        return self.call.arguments

    def run(self) -> Coroutine[Any, Any, Reported]:
        """Run the leg; for a single-use tool, only if its state was not used before.

        Raises:
            TooManyAnswers: it carries more answers than one leg may.
        """
        served, continuation = self.call.served, self.call.continuation
        answers = continuation.input_responses
        if len(answers) > self._runner.policy.max_answers:
            raise TooManyAnswers(self._runner.policy.max_answers)
        if not served.single_use or self.call.conversation is not None:
            return self._run(answers)
        if continuation.request_state is None:  # answers without a state could be sent any number of times
            return self._run({})
        return self._run_once()

    async def _run_once(self) -> Reported:
        tasks = ensured(self._runner.tasks, "without a store, single-use tools are not served")
        call, carrier = self.call, self._runner.carrier
        state, answers = call.continuation.request_state, call.continuation.input_responses
        try:
            return await tasks.once(
                self.journal,
                call.caller.principal,
                arguments_digest({"state": state, "answers": answers, "capabilities": call.request.capabilities}),
                carrier.lifetime_ms(call.served.state_ttl_seconds),
                lambda: self._run(answers),
            )
        except AlreadyUsed:
            raise carrier.reject(RejectReason.ALREADY_USED) from None

    async def _run(self, answers: Mapping[str, Any]) -> Reported:
        shedding = self._runner.shedding
        sheds: Callable[[], bool] | None = None
        # A client that is asked on the stream of this leg cannot continue on another replica.
        if shedding is not None and self.call.conversation is None:
            sheds = partial(shedding.wants_shed, time.monotonic())
        outcome = await self._outcome(answers, sheds)
        if not isinstance(outcome, Completed) and isinstance(outcome, Shed):
            try:
                return msgspec.Raw(encode(self.call.words.shed(self._seal()))), "shed"
            except CannotContinue:
                pass  # no other replica can continue, so the leg resumes here from its checkpoint
            outcome = await self._outcome({}, None)
        return await self._report(outcome)

    async def _outcome(self, answers: Mapping[str, Any], sheds: Callable[[], bool] | None) -> Outcome:
        """Run the function from the top."""
        call, runner, served = self.call, self._runner, self.call.served
        leg = Leg(
            self.journal,
            call.words.read_answers(answers) if answers else {},
            runner.host,
            runner.policy,
            supports=partial(supports, call.request.capabilities),
            version=served.version,
            migrations=served.migrations,
            declared=served.asks,
            notices=_notices(call.request, call.post),
            detaching=self._detaching,
            sheds=sheds,
            stepping=runner.stepping,
        )
        try:
            function = served.begin(call.target, call.arguments, call.caller, call.requester, self.journal)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the outcome of the call
            return Failed(error)
        if self._detaching is Detaching.POSSIBLE:
            if self._steps_before is None:
                self._steps_before = len(self.journal.steps)
            if _starts_as_task(served, call.order):
                return Detached()
        try:
            outcome = await run_leg(function, leg, limited=served.limited, seconds=served.leg_seconds)
        finally:
            self._away = leg.away
            if leg.away is not None:
                self.away_seconds += leg.away.seconds
                self.late_answer |= leg.away.late_answer
                asyncio.get_running_loop().call_soon(leg.away.drop_result)  # it is encoded before this task waits
        if isinstance(outcome, Completed):  # the first test, as most have
            return outcome
        if isinstance(outcome, NeedsInput):
            warn_of_unused_answers(served, leg, outcome)
        if leg.away is not None and not isinstance(outcome, Failed):
            if leg.away.aside_bytes > QUICK_BYTES:  # it may take long to decode them
                await runner.turns.begin(None, call.caller.principal)
            self._arguments()  # the next leg may run within this request
            self._binding()
        return outcome

    async def _report(self, outcome: Outcome) -> Reported:
        call = self.call
        try:
            if isinstance(outcome, Completed):
                fields = self._completed(outcome.value)
                encoded = encode(fields)
                if len(encoded) > self._runner.policy.max_result_bytes:
                    self._refuse_own("The result")
                told, name = msgspec.Raw(encoded), "completed"
            else:
                result, name = await self._result(outcome)
                encoded = encode(result)
                if len(encoded) > self._runner.policy.max_result_bytes:
                    self._refuse_own("The question")
                return msgspec.Raw(encoded), name
        except Exception as error:  # noqa: BLE001 - a result or question may fail to encode
            try:
                failed = self._unable(error) or self._runner.failures.result(call.served, error, self.journal)
            finally:
                drop_tracebacks(error)
            fields = call.words.complete(failed)
            told, name = msgspec.Raw(encode(fields)), "failed"
        if call.order is None or call.order.otherwise is None or self._detaching is not Detaching.POSSIBLE:
            return told, name
        return await self._end_as_task(fields, call.order.otherwise), name

    async def _end_as_task(self, result: dict[str, Any], otherwise: Mapping[str, Any]) -> msgspec.Raw:
        """Report a leg that has ended as an ended task, or as its own result if the store accepts no task.

        If the function has run, refusing the request now would make its client run it again.
        """
        try:
            return msgspec.Raw(encode(await self._become_task(result)))
        except (NotNow, CannotContinue):
            if ensured(self.call.order, "`_what_detach_does` has checked it").at_once:  # the function has not run
                raise
            return msgspec.Raw(encode({**result, "_meta": {**(result.get("_meta") or {}), **otherwise}}))

    async def _result(self, outcome: Outcome) -> tuple[dict[str, Any], str]:
        """Return the result for any outcome but completed, and the outcome's name.

        Raises:
            Exception: the tool's own, or the reason why there is no result.
        """
        if isinstance(outcome, NeedsInput):
            return await self._ask(outcome)
        if isinstance(outcome, Detached):
            return await self._become_task(), "task_created"
        raise ensured_type(outcome, Failed).error  # the others end legs of tasks only

    async def _ask(self, outcome: NeedsInput) -> tuple[dict[str, Any], str]:
        """Ask the client. If the journal is too large for it to carry, the call becomes a task where possible."""
        call = self.call
        if call.conversation is not None:
            asked = {key: (question.method, question.params) for key, question in outcome.questions.items()}
            if len(encode(asked)) > self._runner.policy.max_result_bytes:
                self._refuse_own("The question")
            call.conversation.questions = outcome.questions
            return {}, "input_required"
        try:
            return call.words.input_required(outcome.questions, self._seal()), "input_required"
        except JournalTooLarge:
            if self._detaching is not Detaching.POSSIBLE:
                raise
        return await self._become_task(), "task_created"

    async def _become_task(self, result: dict[str, Any] | None = None) -> dict[str, Any]:
        """Make the call a task and return the client's result; given a result, the task has already ended.

        Raises:
            TaskStoreAway: the store is not available, and nothing ran.
            TaskStoreDown: the store did not answer, or steps of this leg have run. They run again if it is repeated.
        """
        call, why = self.call, "`_what_detach_does` has checked it"
        tasks, order = ensured(self._runner.tasks, why), ensured(call.order, why)
        served = ensured_type(call.served, Tool)
        if result is None:
            await served.prepare_task(call.requester, self.journal)
        try:
            self.task = await tasks.create(
                served,
                order,
                self.journal,
                principal=call.caller.principal,
                arguments=self._arguments(),
                capabilities=call.request.capabilities,
                repetition=self._repetition(order),
                result=result,
            )
        except TaskStoreAway:
            if len(self.journal.steps) == self._steps_before:
                raise
            raise TaskStoreDown(text=STEPS_RAN) from None
        return call.words.task_created(self.task)

    def _repetition(self, order: TaskOrder) -> Repetition | None:
        """Return what identifies a repetition of the request as an order for the same task."""
        call = self.call
        continuation, request = call.continuation, call.request
        if call.conversation is None and continuation.request_state is not None:
            # Other wishes in the repetition do not matter: it is the same leg, and becomes the same task.
            same = {"state": continuation.request_state, "answers": continuation.input_responses, "id": order.task_id}
            state_ms = self._runner.carrier.lifetime_ms(call.served.state_ttl_seconds)
            return Repetition(same, state_ms, continues=True)
        name = order.request or call.forwarded_id
        return Repetition({"name": name, "method": request.method, "params": request.params}) if name else None

    def _refuse_own(self, what: str) -> None:
        """Refuse what is too large, unless it comes from an upstream: that has a limit of its own.

        Raises:
            ResultTooLarge: it is the author's.
        """
        if not self.call.served.upstream:
            raise ResultTooLarge(what, self._runner.policy.max_result_bytes)

    def _completed(self, value: Any) -> dict[str, Any]:
        call = self.call
        segments, limit = self.journal.segments, self._runner.policy.max_result_bytes
        # Most results are short texts. Those of upstreams have a limit of their own.
        may_be_large = not call.served.upstream and (type(value) is not str or segments or len(value) > limit)
        if may_be_large and exceeds([value, segments], limit):
            raise ResultTooLarge("The result", limit)
        fields = call.served.whole_result(value, call.target, self.journal)
        if not isinstance(call.served, Resource):
            return call.words.complete(fields)
        # A read that depended on answers must not be cached (MCP "Caching", Cache Key).
        is_retry = bool(call.continuation.input_responses) or call.continuation.request_state is not None
        ttl_ms = 0 if is_retry else call.served.ttl_ms
        return call.words.cacheable(fields, ttl_ms=ttl_ms, scope="private" if is_retry else call.served.cache)

    def _unable(self, error: Exception) -> dict[str, Any] | None:
        """Return the result of a tool that needs a missing capability, on wires that have no error for it."""
        if not isinstance(error, MissingCapability) or not isinstance(self.call.served, Tool):
            return None
        message = self.call.words.unable(error)
        return None if message is None else failed_result(message)


class _RequestNotices:
    """Sends a leg's progress and log messages on the response to its request, if the client asked for them."""

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


def _notices(request: McpRequest, post: Post | None) -> Notices | None:
    asked = request.progress_token is not None or request.log_level is not None
    return _RequestNotices(request, post) if asked and post is not None else None


def _what_detach_does(served: Served, order: TaskOrder | None) -> Detaching:
    """Return whether a call may become a task; the order is None if its client or the deployment has no tasks."""
    if served.task == "forbidden":
        return Detaching.FORBIDDEN
    return Detaching.IMPOSSIBLE if order is None else Detaching.POSSIBLE


def _starts_as_task(served: Served, order: TaskOrder | None) -> bool:
    """Return whether a call that may become a task does so before its function runs."""
    return served.starts_as_task or (order is not None and order.at_once)
