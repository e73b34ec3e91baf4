"""The held calls of this process: each runs in a task of its own, which no request owns.

`HeldLife` decides; this carries it out: it sends what is to be sent, keeps the time, and counts.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from gateway.engine.capabilities import supports
from gateway.engine.forwarded import forwarded
from gateway.engine.questions import Answer, Question
from gateway.ensured import ensured
from gateway.errors import Overloaded
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.protocol.strict_json import decode, encode
from gateway.protocol.upstream.asking import MAX_CARRIED_BYTES, MAX_TASK_BYTES, Misasked, clean_question
from gateway.protocol.upstream.responses import ServerRequest
from gateway.runtime.sources import RandomBytes
from gateway.upstreams.failures import HeldFailure, Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.held.actions import (
    Ended,
    EndUpstream,
    Forget,
    Give,
    HeldAction,
    HeldEvent,
    HeldLimits,
    Refuse,
    RefuseReason,
    Reply,
    Withdrawn,
)
from gateway.upstreams.held.life import HeldLife
from gateway.upstreams.ports import LATE_ANSWER, OnNotice, Questions
from gateway.upstreams.readings import Keep
from gateway.upstreams.texts import NOT_PASSED_ON

log = logging.getLogger(__name__)

CALL_BYTES: Final = 16
MAX_HELD: Final = 1000
"""How many calls may wait for their users in one process at a time."""
MAX_HELD_BY_CALLER: Final = 32
"""How many of these one caller may have. Calls that run already may ask all the same, up to as many again."""
MAX_QUESTION_BYTES: Final = MAX_TASK_BYTES
"""How many bytes the questions of one call may have. A call is only begun where so much is free."""
SPARE_BYTES: Final = 256
"""How much longer a question may be for clients than what the upstream sent: its key, its method and its params."""
MAX_HELD_BYTES: Final = 64 << 20
"""How many bytes the questions of all calls may have that are kept."""

MAX_ENDED: Final = 4096
"""Of how many calls that have ended the last event is kept."""

MAX_KEPT_BYTES: Final = 4 << 20
"""How much is kept of a call that has ended: a larger result is given once."""

RESENT_SECONDS: Final = 10.0
MAX_RESENT: Final = 256
"""How long, and for how many calls, a result is kept that another process has got: it may be cut off, and ask again."""
SPENT_SECONDS: Final = 60.0
"""How long the id of a call is known that is forgotten, so that a request that comes again does not begin it again."""

_INVALID_PARAMS: Final = -32602
_METHOD_NOT_FOUND: Final = -32601
_INTERNAL_ERROR: Final = -32603

Send: TypeAlias = Callable[[Questions, OnNotice, Keep], Coroutine[Any, Any, dict[str, Any]]]
"""Sends the request of a call upstream, and returns its result."""


@dataclass(frozen=True, slots=True)
class HeldTarget:
    """The function that is called, and the caller. Each request that continues a call must name the same."""

    upstream: bytes
    method: str
    name: str
    caller: Hashable


@dataclass(frozen=True, slots=True)
class HeldUpstream:
    """The upstream of a call, and what its calls may take."""

    name: str
    limits: HeldLimits
    telemetry: UpstreamMetrics


@dataclass(eq=False, slots=True)
class Waiter:
    """A request that waits for the event of its round.

    If it `is_remote`, another process sent it, which may be cut off and send it again.
    """

    round: int
    digest: bytes
    answers: Mapping[str, Answer]
    capabilities: Mapping[str, Any]
    on_notice: OnNotice | None = None
    keep: Keep | None = None
    is_remote: bool = False
    event: asyncio.Future[HeldEvent] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class KeptResult:
    """The result of a call, of which each request that waits for it takes its own."""

    def __init__(self, result: dict[str, Any]) -> None:
        self._result: dict[str, Any] | None = result
        self._encoded: bytes | None = None

    def keep(self) -> int:
        """Have it taken again later, and return how many more bytes it takes until then."""
        if self._encoded is not None or self._result is None:
            return 0
        self._encoded = encode(self._result)
        return len(self._encoded)

    def take(self) -> dict[str, Any]:
        """Return the result. It is kept encoded: decoded values can take 25 times as much memory."""
        result, self._result = self._result, None
        if result is None:
            result = decode(ensured(self._encoded, "it is kept"), sys.maxsize, sys.maxsize)
        return result


class HeldCalls:
    """Has the held calls of one process, and limits them.

    Not thread-safe: it belongs to one event loop.
    """

    def __init__(self, *, random_bytes: RandomBytes, limit: int = MAX_HELD) -> None:
        self._random_bytes = random_bytes
        self._limit = limit
        self._calls: dict[bytes, HeldCall] = {}
        self._asked: Counter[Hashable] = Counter()
        self._bytes = 0
        self._is_draining = False
        self._ended: dict[bytes, HeldCall] = {}  # the oldest come first
        self._delivered: dict[bytes, HeldCall] = {}  # the same
        self._spent: dict[bytes, float] = {}  # the same

    def __len__(self) -> int:
        """Return how many calls wait for their users."""
        return self._asked.total()

    def new_id(self) -> bytes:
        """Return the id of a new call."""
        return self._random_bytes(CALL_BYTES)

    def find(self, call_id: bytes, target: HeldTarget) -> HeldCall | None:
        """Return a call that is known here, if it is this one."""
        call = self._calls.get(call_id)
        return call if call is not None and call.target == target else None

    def knows(self, call_id: bytes) -> bool:
        """Return whether a call began here, and is not forgotten."""
        return call_id in self._calls

    @property
    def open(self) -> int:
        """How many calls have not ended."""
        return sum(call.is_open for call in self._calls.values())

    def begin(self, call_id: bytes, target: HeldTarget, upstream: HeldUpstream) -> HeldCall:
        """Return a new call, which does not run yet.

        Raises:
            Overloaded: the process is about to end, or has too much to keep.
            HeldFailure: the caller has too many calls that wait for them, or this call has been here before.
        """
        if call_id in self._calls or call_id in self._spent:
            raise HeldFailure(upstream.name, Reason.HELD_LOST, call_id=call_id)
        if self._is_draining:
            raise Overloaded
        limit = self._reached(target.caller)
        if limit is not None:
            upstream.telemetry.held_refused(upstream.name, limit)
            if limit != "caller":
                raise Overloaded
            upstream.telemetry.failed(upstream.name, Reason.HELD_TOO_MANY)
            raise HeldFailure(upstream.name, Reason.HELD_TOO_MANY, sent=False)
        call = self._calls[call_id] = HeldCall(self, call_id, target, upstream)
        return call

    def _reached(self, caller: Hashable) -> str | None:
        """Return the limit that keeps a caller from beginning another call, or None."""
        if len(self) >= self._limit:
            return "process"
        if not self._has_room(MAX_QUESTION_BYTES):
            return "bytes"
        return "caller" if self._asked[caller] >= MAX_HELD_BY_CALLER else None

    def limit_of(self, caller: Hashable, size: int) -> str | None:
        """Return the limit that keeps one more question of a caller from being kept, or None."""
        if self._asked[caller] >= 2 * MAX_HELD_BY_CALLER:
            return "caller"
        return None if self._has_room(size) else "bytes"

    def _has_room(self, size: int) -> bool:
        """Return whether so many more bytes may be kept. Calls that have ended give way, the oldest ones first."""
        while self._bytes + size > MAX_HELD_BYTES and self._ended:
            next(iter(self._ended.values())).forget()
        return self._bytes + size <= MAX_HELD_BYTES

    def ended(self, call: HeldCall) -> None:
        """Keep the last event of a call for a while, but of not too many."""
        self._ended[call.call_id] = call
        if len(self._ended) > MAX_ENDED:
            next(iter(self._ended.values())).forget()

    def count(self, call: HeldCall, asked: int = 0, size: int = 0) -> None:
        """Count a call that begins to wait for its user (1) or no longer does (-1), and what is kept of it."""
        self._asked[call.target.caller] += asked
        self._bytes += size
        if not self._asked[call.target.caller]:
            del self._asked[call.target.caller]

    def delivered(self, call: HeldCall) -> None:
        """Keep a call whose result another process has got, until that surely has it, or many others came after it."""
        self._delivered[call.call_id] = call
        asyncio.get_running_loop().call_later(RESENT_SECONDS, call.forget)
        if len(self._delivered) > MAX_RESENT:
            next(iter(self._delivered.values())).forget()

    def forget(self, call: HeldCall, *, is_spent: bool) -> None:
        """Drop a call that has ended. Its id is `is_spent` if a request could come again that would begin it again."""
        self._ended.pop(call.call_id, None)
        self._delivered.pop(call.call_id, None)
        if self._calls.pop(call.call_id, None) is None or not is_spent:
            return
        now = asyncio.get_running_loop().time()
        self._spent[call.call_id] = now
        while self._spent[oldest := next(iter(self._spent))] < now - SPENT_SECONDS:
            del self._spent[oldest]

    def drain(self) -> None:
        """Begin no further call."""
        self._is_draining = True

    async def aclose(self) -> None:
        """End all calls, because the process ends."""
        self.drain()
        calls = list(self._calls.values())
        for call in calls:
            call.cancel()
        tasks = [call.task for call in calls if call.task is not None]
        if tasks:
            await asyncio.wait(tasks)


class HeldCall:
    """One call that may wait for its user. It implements `Questions` for the connection that it uses."""

    def __init__(self, calls: HeldCalls, call_id: bytes, target: HeldTarget, upstream: HeldUpstream) -> None:
        self.call_id = call_id
        self.target = target
        self.task: asyncio.Task[None] | None = None
        self.has_begun = self.is_asked = False
        self._has_asked = self._has_ended = self._is_remote = False
        self._asked_seconds = 0.0
        self._is_shown = False
        self._how = "completed"
        self.on_change: Callable[[], None] = lambda: None
        self._calls = calls
        self._limits = upstream.limits
        self._telemetry = upstream.telemetry
        self._upstream = upstream.name
        self._loop = asyncio.get_running_loop()
        self._life: HeldLife | None = None
        self._numbers = itertools.count(1)
        self._waiters: dict[int, Waiter] = {}
        self._capabilities: Mapping[str, Any] = {}
        self._withdrawn_rounds: set[int] = set()  # their answers come too late
        self._replies: dict[Hashable, asyncio.Future[Answer]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._asked_at = 0.0
        self._bytes = self._open_bytes = 0
        self._releases: list[Callable[[], None]] = []

    async def result(self, waiter: Waiter, send: Send) -> HeldEvent:
        """Wait for the event of a request's round. The first request has the call sent.

        If this is cancelled, the request leaves: the client itself, if the call has not asked before.

        Raises:
            HeldFailure: the request is refused.
        """
        if self._life is None:
            self._life = HeldLife(self._limits, waiter.digest, self._loop.time())
            self.task = asyncio.create_task(self._run(send))
        number = next(self._numbers)
        self._waiters[number] = waiter
        self._is_remote |= waiter.is_remote
        self._capabilities = waiter.capabilities
        try:
            self._do(
                self._life.join(number, waiter.round, waiter.digest, waiter.answers, self._loop.time()), self._life
            )
            event = await waiter.event
        except asyncio.CancelledError:
            self._do(
                self._life.leave(number, self._loop.time(), for_good=waiter.round == 0 and not waiter.is_remote),
                self._life,
            )
            raise
        finally:
            self._waiters.pop(number, None)
        if waiter.round in self._withdrawn_rounds and waiter.on_notice is not None:
            waiter.on_notice(LATE_ANSWER, {})
        self._hand_over(waiter, event)
        return event

    @property
    def asked_seconds(self) -> float:
        """How long the call has waited for its user so far."""
        return self._asked_seconds + (self._loop.time() - self._asked_at if self.is_asked else 0.0)

    @property
    def is_open(self) -> bool:
        """Whether the call has begun, and not ended."""
        return self._life is not None and self._life.state != "ended"

    def cancel(self) -> None:
        """End the call, because its client does not want it, or can no longer answer."""
        if self._life is not None:
            self._do(self._life.cancel(self._loop.time()), self._life)

    async def answer(self, asked: ServerRequest) -> Answer:
        """Return what the user answers; see `Questions`."""
        life = ensured(self._life, "a call asks once it is sent")
        try:
            question, size = self._readable(asked)
        except Misasked as problem:
            code = _METHOD_NOT_FOUND if problem.refused else _INVALID_PARAMS
            return self._refused(code, str(problem))
        if not all(supports(self._capabilities, path) for path in question.capabilities):
            return self._refused(_METHOD_NOT_FOUND, f"the client of this call does not support {asked.method}")
        limit = self._calls.limit_of(self.target.caller, size)
        if limit is not None:
            self._telemetry.held_refused(self._upstream, limit)
            return self._refused(_INTERNAL_ERROR, "too many questions wait for this user")
        number = next(self._numbers)
        reply: asyncio.Future[Answer] = self._loop.create_future()
        self._replies[number] = reply
        self._has_asked = True
        self._open_bytes += size + SPARE_BYTES
        self._add_bytes(size)
        self._do(life.asks(number, {"method": question.method, "params": question.params}, self._loop.time()), life)
        try:
            return await reply
        finally:
            self._open_bytes -= size + SPARE_BYTES
            if self._replies.pop(number, None) is not None:
                self._do(life.withdraws(number), life)

    def lose(self) -> None:
        """End the call, because an answer did not reach the upstream: it may wait for it without an end."""
        if self._life is not None and self.task is not None and self.is_open:
            detail = "an answer to its question could not be sent"
            failure = UpstreamFailure(self._upstream, Reason.CUT, sent=True, detail=detail)
            self._telemetry.failed(self._upstream, failure.reason)
            self._do(self._life.ends(failure, self._loop.time()), self._life)
            self.task.cancel()

    def _readable(self, asked: ServerRequest) -> tuple[Question, int]:
        """Return a question as clients get it, and its size, or raise `Misasked`."""
        size = len(encode(asked.params))
        if self._bytes + size > MAX_QUESTION_BYTES:
            self._telemetry.held_refused(self._upstream, "bytes")
            raise Misasked(f"all its questions have more than {MAX_QUESTION_BYTES} bytes", too_large=True)
        if self._open_bytes + size + SPARE_BYTES > MAX_CARRIED_BYTES:
            raise Misasked(f"its open questions have more than {MAX_CARRIED_BYTES} bytes", too_large=True)
        try:
            return forwarded(asked.method, clean_question(asked.method, asked.params)), size
        except ValueError as problem:
            raise problem if isinstance(problem, Misasked) else Misasked("it is not valid") from None

    def _refused(self, code: int, why: str) -> Answer:
        self._telemetry.dropped(self._upstream, "question")
        return {"error": {"code": code, "message": f"{NOT_PASSED_ON} {self._upstream!r} on: {why}."}}

    def _refusal(self, reason: RefuseReason) -> HeldFailure:
        known = Reason.HELD_ANSWERED if reason == "other_answers" else Reason.HELD_LOST
        self._telemetry.failed(self._upstream, known)
        return HeldFailure(self._upstream, known, call_id=self.call_id)

    async def _run(self, send: Send) -> None:
        life = self._life
        outcome: object
        try:
            outcome = KeptResult(await send(self, self._notice, self._releases.append))
        except (UpstreamError, UpstreamFailure, Overloaded) as problem:
            outcome = problem.with_traceback(None)  # its frames would be kept as long as the outcome
        except asyncio.CancelledError:
            return  # the life of the call has ended it
        except Exception:  # the last line of defence: a bug must not leave a request without an answer
            log.exception("a call to an upstream has failed", extra={"upstream": self._upstream})
            outcome = UpstreamFailure(self._upstream, Reason.MALFORMED, sent=True)
        if life is not None:
            self._do(life.ends(outcome, self._loop.time()), life)

    def _notice(self, method: str, told: dict[str, Any]) -> None:
        for waiter in list(self._waiters.values()):
            if waiter.on_notice is not None:
                waiter.on_notice(method, told)

    def _do(self, actions: list[HeldAction], life: HeldLife) -> None:
        """Carry out what the life of the call has decided."""
        is_answered = False
        for action in actions:
            match action:
                case Give(number, event):
                    _settle(self._waiters[number].event, event)
                case Refuse(number, reason):
                    if not self._waiters[number].event.done():
                        self._waiters[number].event.set_exception(self._refusal(reason))
                case Reply(number, answer):
                    _settle(self._replies.pop(number), answer)
                    is_answered = True
                case EndUpstream(reason):
                    self._how = reason
                    if self.task is not None:
                        self.task.cancel()
                case Withdrawn(keys):
                    self._withdrawn_rounds.add(life.round)
                    self._report("an upstream has withdrawn a question", questions=len(keys))
                case Forget():
                    self.forget()
        if self._is_shown or life.state == "asked":
            self._note(life, is_answered=is_answered)
        if life.state == "ended" and not self._has_ended:
            self._has_ended = True
            self._calls.ended(self)
        self._keep_time(life)

    def _note(self, life: HeldLife, *, is_answered: bool) -> None:
        """Count whether the call waits for its user, how long that took, and its end."""
        now, was_asked = self._loop.time(), self.is_asked
        self.is_asked = life.state == "asked"
        if was_asked and (is_answered or not self.is_asked):
            self._asked_seconds += now - self._asked_at
        if was_asked and is_answered:
            self._telemetry.user_answered(self._upstream, now - self._asked_at)
        if self.is_asked and (is_answered or not was_asked):
            self._asked_at = now
        if self.is_asked != was_asked:
            more = 1 if self.is_asked else -1
            self._calls.count(self, asked=more)
            self._telemetry.held(self._upstream, more)
            self.on_change()
        self._is_shown = life.state != "ended"
        if not self._is_shown:
            self._telemetry.held_ended(self._upstream, self._how)

    def _keep_time(self, life: HeldLife) -> None:
        """Have what is due done."""
        if self._timer is not None:
            self._timer.cancel()
        due = life.due
        self._timer = None if due is None else self._loop.call_at(due, self._tick, life)

    def _tick(self, life: HeldLife) -> None:
        self._do(life.tick(self._loop.time()), life)

    def _hand_over(self, waiter: Waiter, event: HeldEvent) -> None:
        """Forget a call that nobody will ask for again, and let the one who got its result release its memory."""
        if not isinstance(event, Ended):
            return
        releases, self._releases = self._releases, []
        is_kept = self._has_asked or waiter.is_remote
        if is_kept and isinstance(event.outcome, KeptResult):
            self._add_bytes(event.outcome.keep())
        if not is_kept or self._bytes > MAX_KEPT_BYTES:
            self.forget()
        elif not self._has_asked:
            self._calls.delivered(self)
        for release in releases:
            if waiter.keep is None:
                release()
            else:
                waiter.keep(release)

    def forget(self) -> None:
        """Drop the call and all that is kept of it. It has ended."""
        for release in self._releases:
            release()
        self._releases = []
        self._calls.forget(self, is_spent=self._is_remote)
        self._calls.count(self, size=-self._bytes)
        self._bytes = 0
        if self._timer is not None:
            self._timer.cancel()

    def _add_bytes(self, size: int) -> None:
        self._bytes += size
        self._calls.count(self, size=size)

    def _report(self, event: str, **fields: object) -> None:
        log.info(event, extra={"upstream": self._upstream, "call": self.call_id.hex(), **fields})


def _settle(future: asyncio.Future[Any], value: object) -> None:
    """Set a result, unless nobody waits for it any more."""
    if not future.done():
        future.set_result(value)
