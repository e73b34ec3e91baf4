"""The session with a child process, as servers of 2024-11-05 to 2025-11-25 have it on their standard streams ("stdio").

Each message is one line. Requests run side by side, and answers name theirs. A program may write what is not a message
on the same stream: such lines are skipped, since no message can begin inside a line.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Unpack

from gateway.children.children import ChildProcess
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.protocol.strict_json import encode
from gateway.protocol.upstream.asking import ASKING_METHODS
from gateway.protocol.upstream.cleaning import clean_line
from gateway.protocol.upstream.earlier_requests import SPOKEN, encode_earlier_request
from gateway.protocol.upstream.introductions import MAX_INTRODUCTION_BYTES, SessionIntroduction
from gateway.protocol.upstream.json_lines import JsonLines, Line, LineTooLong, answered_at_start, answered_by, notice_of
from gateway.protocol.upstream.notices import LOG, PROGRESS
from gateway.protocol.upstream.requests import Envelope
from gateway.protocol.upstream.responses import (
    ErrorAnswer,
    Malformed,
    Message,
    Notice,
    Result,
    ServerRequest,
    read_numbered,
)
from gateway.protocol.versions import INITIALIZE
from gateway.runtime.sources import Clock
from gateway.runtime.turns import Turns
from gateway.sealing.principal import Principal
from gateway.upstreams.client.connections import Subscribers
from gateway.upstreams.client.decoding import Decoding, is_quick
from gateway.upstreams.client.hearing import KINDS, MAX_NOTICE_BYTES, Hearing
from gateway.upstreams.client.log_level import SessionLogLevel
from gateway.upstreams.client.measured import MeasuredRequests
from gateway.upstreams.client.portions import PORTION_BYTES, Portions
from gateway.upstreams.client.programs import Owner, UpstreamProgram, ended_how, kind_of_exit
from gateway.upstreams.client.replies import (
    SHARED,
    UNCLEAR,
    OpenQuestions,
    is_question,
    reply_to,
    withdrawn,
)
from gateway.upstreams.client.unfinished import UnfinishedLine
from gateway.upstreams.failures import LIMIT_OPTION, LostSession, Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.healing import Healing
from gateway.upstreams.ports import RequestOptions, UpstreamCaller
from gateway.upstreams.readings import CountAnswer, Keep, Readings, readings_of_answers

if TYPE_CHECKING:  # a process without traces never loads OpenTelemetry, which takes memory
    from gateway.observability.tracing import Traces

log = logging.getLogger(__name__)

MAX_NOTICES: Final = 10_000
"""How many notices one request may get."""
MAX_UNREAD_BYTES: Final = 1 << 20
"""How much a program may leave unread of the answers to its own requests."""
EXIT_SECONDS: Final = 0.5
"""How long to wait for the exit code of a program that has closed its output, and for its last words."""
SHOWN_CHARACTERS: Final = 200

_UNWANTED: Final = "nobody waits for it"

_OF_REQUESTS: Final = frozenset({PROGRESS, LOG})


class UnreadReplies(Exception):
    """A program asks, and does not read the answers."""


class _WaitingRequest:
    """A request of `caller` that waits for its answer, which may be a failure. `kept` releases what that takes."""

    def __init__(self, number: int, method: str, caller: Principal | None, max_bytes: int, hearing: Hearing) -> None:
        self.number = number
        self.is_initialize = method == INITIALIZE
        self.is_call = method in ASKING_METHODS or hearing.questions is not None
        self.caller = caller
        self.kept: Sequence[Callable[[], None]] = ()
        self.max_bytes = max_bytes
        self.hearing = hearing
        self.is_written = False
        self.notices = 0
        self.answer: asyncio.Future[Result | ErrorAnswer | UpstreamFailure] = asyncio.get_running_loop().create_future()

    def end(self, answer: Result | ErrorAnswer | UpstreamFailure) -> None:
        """Take the answer. Only the first one counts."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def hand_over(self, keep: Keep | None) -> None:
        """Let the memory of the answer be released when it is not used any more: now, if nobody wants to say when."""
        for release in self.kept:
            if keep is None:
                release()
            else:
                keep(release)


class ChildConnection:
    """One child process of an upstream; a `SessionConnection`.

    `subscribers` hear what it sends outside of requests. `roots` are directories that the operator declares to it, and
    `capabilities` what else it may ask for. If it `is_of_one_caller`, a question belongs to the only call that runs,
    and its end keeps nobody else from starting the program.
    """

    def __init__(
        self,
        upstream: str,
        program: UpstreamProgram,
        telemetry: UpstreamMetrics,
        *,
        client_info: Mapping[str, Any],
        subscribers: Subscribers,
        max_line_bytes: int,
        is_of_one_caller: bool = False,
        roots: Sequence[str] = (),
        capabilities: Mapping[str, Any] = MappingProxyType({}),
        tracing: Traces | None = None,
        turns: Turns | None = None,
        readings: Readings | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._upstream = upstream
        self._program = program
        self._telemetry = telemetry
        self._heal = Healing(upstream, telemetry)
        self._decoding = Decoding(upstream, Turns() if turns is None else turns, self._heal)
        self._readings = readings_of_answers() if readings is None else readings
        self._client_info = client_info
        self._subscribers = subscribers
        self._max_line_bytes = max_line_bytes
        self._is_of_one_caller = is_of_one_caller
        self._owner: Owner = ()  # that is everyone, until it has opened
        self._roots = roots
        self._capabilities = {**capabilities, **({"roots": {}} if roots else {})}
        self._asked = OpenQuestions(self._send_answer, lambda: telemetry.dropped(self._upstream, "question"))
        self._unanswered: set[int] = set()
        self._clock = clock
        self._measured = MeasuredRequests(upstream, telemetry, tracing, clock)
        self._ids = itertools.count(1)
        self._calls: dict[int, _WaitingRequest] = {}
        self._by_token: dict[int, _WaitingRequest] = {}
        self._callers: set[Principal] = set()
        self._level = SessionLogLevel()
        self._child: ChildProcess | None = None
        self._began = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._is_closing = False
        self._has_ended = asyncio.Event()
        self._problem = ""
        self._has_logged_noise = False

    async def open(self, requester: UpstreamCaller, *, seconds: float) -> SessionIntroduction:
        """Start the program, and return the answer to `initialize`; see `SessionConnection.open`."""
        owner = (requester.principal,) if self._is_of_one_caller else ()
        try:
            child = self._child = await self._program.start(owner)
        except UpstreamFailure as failure:
            raise self._counted(failure) from None
        self._began = self._clock()
        errors = asyncio.create_task(self._program.log_errors(child.stderr))
        self._tasks = [errors, asyncio.create_task(self._read(child, errors))]
        try:
            result = await self.request(
                INITIALIZE,
                {"capabilities": self._capabilities},
                requester=requester,
                seconds=seconds,
                max_bytes=MAX_INTRODUCTION_BYTES,
            )
        except UpstreamFailure as failure:
            reason, detail = await self._why_not_open(failure)
            wrote = "; it wrote: " + " / ".join(self._program.last_lines) if self._program.last_lines else ""
            raise self._failure(reason, detail + wrote, sent=False) from None
        if result.get("protocolVersion") not in SPOKEN:
            detail = f"its answer to initialize names none of the versions {', '.join(SPOKEN)}"
            raise self._counted(self._failure(Reason.MALFORMED, detail, sent=False))
        self._owner = owner
        self._send({"method": "notifications/initialized", "params": {}})
        self._level.learn(result)
        self._subscribers.can_hear = True
        return SessionIntroduction(result)

    async def _why_not_open(self, failure: UpstreamFailure) -> tuple[Reason, str]:
        """Return why `initialize` has failed. If the program has ended, also before it was written, that is why."""
        if failure.reason not in (Reason.CUT, Reason.LOST_SESSION):
            return failure.reason, failure.detail
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * EXIT_SECONDS):
                await self._has_ended.wait()
        return Reason.UNREACHABLE, self._problem or failure.detail

    async def request(
        self, method: str, params: Mapping[str, Any], **options: Unpack[RequestOptions]
    ) -> dict[str, Any]:
        """Send a request and return its result; see `SessionConnection.request`.

        If this is cancelled, or takes too long, the upstream is notified. A late answer is dropped.
        """
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + options["seconds"]

        async def send(traceparent: str | None) -> Result:
            return await self._answered(method, params, {**options, "seconds": ends_at - loop.time()}, traceparent)

        async def set_level(setting: str, level: Mapping[str, Any]) -> None:
            await self.request(setting, level, **_without_notices(options))

        await self._level.sink(options.get("log_level"), set_level)

        return await self._measured.run(method, send, options.get("questions"))

    async def aclose(self) -> None:
        """End the program and everything that it has started."""
        self._is_closing = True
        self._subscribers.ended.set()
        if self._child is not None:
            await self._child.stop()
            await asyncio.wait(self._tasks)

    async def _answered(
        self, method: str, params: Mapping[str, Any], options: RequestOptions, traceparent: str | None
    ) -> Result:
        """Send a request, and wait for its result."""
        wants_progress, principal = options.get("wants_progress", False), options["requester"].principal
        if principal is not None and len(self._callers) <= 1:
            self._callers.add(principal)
        number = next(self._ids)
        token = options.get("progress_token", number)
        envelope = Envelope(self._client_info, {}, token if wants_progress else None, traceparent=traceparent)
        body = encode_earlier_request(number, method, params, envelope)
        hearing = Hearing(
            token,
            options.get("on_notice"),
            wants_progress,
            options.get("log_level"),
            questions=options.get("questions"),
        )
        call = _WaitingRequest(number, method, principal, options["max_bytes"], hearing)
        self._calls[number] = self._by_token[token] = call
        try:
            async with asyncio.timeout(options["seconds"]):
                await self._write(body, call)
                answer = await call.answer
        except TimeoutError:
            self._cancel(call)
            raise self._failure(Reason.TIMED_OUT, "it did not answer in time", sent=call.is_written) from None
        except asyncio.CancelledError:
            self._cancel(call)
            raise
        finally:
            del self._calls[number], self._by_token[token]
            self._asked.end(number)
            call.hand_over(options.get("keep"))
        return self._result_of(answer, method)

    def _result_of(self, answer: Result | ErrorAnswer | UpstreamFailure, method: str) -> Result:
        if isinstance(answer, UpstreamFailure):
            raise answer
        if isinstance(answer, ErrorAnswer):
            raise UpstreamError(self._upstream, answer.code, answer.message, answer.data)
        if answer.asks:
            self._telemetry.dropped(self._upstream, "question")
            raise self._failure(Reason.UNASKED, f"the answer to {method} asks for input")
        return answer

    async def _write(self, body: bytes, call: _WaitingRequest) -> None:
        """Write a request, once the program has read what others have written before.

        Raises:
            LostSession: the program has ended before.
        """
        if self._child is not None and not self._subscribers.ended.is_set():
            with contextlib.suppress(ConnectionError):
                await self._child.stdin.drain()
                if not self._subscribers.ended.is_set():
                    self._child.stdin.write(body + b"\n")
                    call.is_written = True
                    return
        raise LostSession(self._upstream)

    def _send(self, message: Mapping[str, Any]) -> None:
        """Write a message that nothing waits for."""
        if self._child is not None and not self._subscribers.ended.is_set():
            self._child.stdin.write(encode({"jsonrpc": "2.0", **message}) + b"\n")

    def _cancel(self, call: _WaitingRequest) -> None:
        """Notify the upstream that nobody waits any more. `initialize` must not be cancelled."""
        self._note_unanswered(call)
        if call.is_written and not call.is_initialize:
            self._send({"method": "notifications/cancelled", "params": {"requestId": call.number}})

    def _note_unanswered(self, call: _WaitingRequest) -> None:
        """Note that a call has ended although the upstream may work on it, and ask something."""
        if call.is_written and call.is_call:
            self._unanswered.add(call.number)
            self._subscribers.is_unsure = True

    async def _read(self, child: ChildProcess, errors: asyncio.Task[None]) -> None:
        """Read what the program writes until it ends, or writes what cannot be survived."""
        problem = ""
        try:
            await self._read_lines(child)
        except LineTooLong as error:
            self._telemetry.failed(self._upstream, Reason.TOO_LARGE)
            problem = f"{error}; {LIMIT_OPTION} sets the limit"
        except UnreadReplies:
            problem = "it does not read the answers to its requests"
        except Exception:  # the last line of defence: a bug must not leave all calls without an answer
            log.exception("output of an upstream cannot be read", extra={"upstream": self._upstream})
            problem = "its output cannot be read"
        self._subscribers.lose()
        await self._ended(child, errors, problem)

    async def _read_lines(self, child: ChildProcess) -> None:
        lines, portions = JsonLines(self._max_line_bytes), Portions()
        unfinished = UnfinishedLine(self._upstream, self._readings, lines)
        try:
            while piece := await child.stdout.read(PORTION_BYTES):
                for line in lines.feed(piece):
                    unfinished.release()
                    await self._take(line, child)
                    del line  # it may be large, and the next one may take long
                    await portions.read(events=1)
                self._skip_unwanted(lines)
                unfinished.count(next(iter(self._callers)) if len(self._callers) == 1 else None)
                await portions.read(size=len(piece))
        finally:
            unfinished.release()

    def _skip_unwanted(self, lines: JsonLines) -> None:
        """Skip the line that has not ended if it is larger than anything that is wanted."""
        if lines.unfinished <= MAX_NOTICE_BYTES:
            return
        start = lines.start
        number = answered_at_start(start)
        meant = self._calls.values() if number is None else [self._calls[number]] if number in self._calls else []
        if notice_of(start) is not None or not meant:
            lines.skip(_UNWANTED)
            return
        limit = max(call.max_bytes for call in meant)
        if lines.unfinished > limit:
            lines.skip(f"the answer has more than {limit} bytes")

    async def _ended(self, child: ChildProcess, errors: asyncio.Task[None], problem: str) -> None:
        """End all calls, and what is left of the program."""
        kind = "other"
        if not problem:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EXIT_SECONDS):
                    await child.exited.wait()
                    await asyncio.wait({errors})
            problem, kind = ended_how(child.exit_code), kind_of_exit(child.exit_code)
        self._problem = problem
        self._has_ended.set()
        if not self._is_closing:
            self._telemetry.program_ended(self._upstream, kind)
            self._program.has_ended(self._clock() - self._began, problem, self._owner)
            log.warning("program of an upstream ended", extra={"upstream": self._upstream, "reason": problem})
        for call in self._calls.values():
            call.end(self._failure(Reason.CUT, problem, sent=call.is_written))
        if not self._is_closing:
            await child.stop()

    async def _take(self, line: Line, child: ChildProcess) -> None:
        """Take one line."""
        kept: list[Callable[[], None]] = []
        try:
            number, message = await self._decoded(line, kept.append)
        except Malformed as error:
            self._skip(line, Reason.MALFORMED, str(error))
            return
        except UpstreamFailure as failure:
            self._skip(line, failure.reason, failure.detail)
            return
        if isinstance(message, Result | ErrorAnswer):
            self._answer(number, message, len(line.start), kept)
            return
        for release in kept:
            release()
        if isinstance(message, Notice):
            self._hear(message, len(line.start))
        else:
            self._reply(message, child)

    async def _decoded(self, line: Line, keep: Keep) -> tuple[int | None, Message]:
        """Read a message: a large one in a thread, in its turn. Its memory is counted until it is released.

        Raises:
            Malformed: it is not a message.
            UpstreamFailure: it is too large, or takes too much together with others.
        """
        if line.skipped:
            hint = "" if line.skipped == self._readings.problem else f"; {LIMIT_OPTION} sets the limit"
            raise self._failure(Reason.TOO_LARGE, line.skipped + hint)
        body = line.start
        if is_quick(body):
            return read_numbered(body, self._heal)
        call = self._calls.get(answered_by(line) or 0)
        caller = None if call is None else call.caller

        async def read(count: CountAnswer) -> tuple[int | None, Message]:
            count(len(body))
            return await self._decoding.run(body, lambda heal: read_numbered(body, heal), caller, count=count)

        return await self._readings.read(self._upstream, caller, read, keep)

    def _skip(self, line: Line, reason: Reason, detail: str) -> None:
        """Skip a line that is not a message, too large, or not wanted. The call that it seems to answer fails.

        Raises:
            LineTooLong: it may be the answer to any call.
        """
        if not line.skipped and not line.start.strip():
            return
        notice = notice_of(line.start)
        number = None if notice is not None else answered_by(line)
        call = None if number is None or line.skipped == _UNWANTED else self._calls.get(number)
        if call is not None:
            self._note_unanswered(call)
            call.end(self._failure(reason, detail))
        elif reason is not Reason.TOO_LARGE or line.start.lstrip()[:1] != b"{":
            self._note_noise(line, detail)
        elif line.skipped == _UNWANTED or number is not None or notice is not None or not self._calls:
            self._telemetry.dropped(self._upstream, "answer" if notice is None else KINDS.get(notice, "notification"))
        else:
            raise LineTooLong(detail)

    def _note_noise(self, line: Line, detail: str) -> None:
        self._telemetry.dropped(self._upstream, "noise")
        if not self._has_logged_noise:
            self._has_logged_noise = True
            text = clean_line(line.start.decode("utf-8", "replace"))[:SHOWN_CHARACTERS]
            extra = {"upstream": self._upstream, "line": text, "reason": detail}
            log.warning("an upstream writes lines to its standard output that are not messages", extra=extra)

    def _answer(
        self, number: int | None, answer: Result | ErrorAnswer, size: int, kept: Sequence[Callable[[], None]]
    ) -> None:
        """Give an answer to its call, with what releases its memory. Drop one that no call waits for."""
        call = None if number is None else self._calls.get(number)
        if call is None or call.answer.done():
            self._unanswered.discard(-1 if number is None else number)
            self._subscribers.is_unsure = bool(self._unanswered)
            self._telemetry.dropped(self._upstream, "answer")
            for release in kept:
                release()
            return
        call.kept = kept
        if size > call.max_bytes:
            detail = f"the answer has more than {call.max_bytes} bytes; {LIMIT_OPTION} sets the limit"
            call.end(self._failure(Reason.TOO_LARGE, detail))
        else:
            call.end(answer)

    def _reply(self, asked: ServerRequest, child: ChildProcess) -> None:
        """Answer a request of the upstream.

        Raises:
            UnreadReplies: it does not read the answers.
        """
        why = {}
        if is_question(asked):
            refused = self._refusal(asked)
            if refused is None:
                return
            why = {"why": refused} if refused else {}
            self._telemetry.dropped(self._upstream, "question")
        if asked.request_id is not None:
            if child.stdin.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
                raise UnreadReplies
            self._send(reply_to(asked, self._upstream, self._roots, **why))

    def _refusal(self, asked: ServerRequest) -> str | None:
        """Have a question answered, and return None; else why it is refused, or "".

        It names no call, so it is that of the only one that runs, where no other user could be asked.
        """
        self._subscribers.asks_outside()
        calls = [call for call in self._calls.values() if call.is_call]
        if not self._is_of_one_caller and any(call.caller is not None for call in calls):
            return SHARED
        if len(calls) > 1 or (calls and self._unanswered):
            return UNCLEAR
        questions = calls[0].hearing.questions if calls else None
        if questions is None or not self._asked.take(asked, questions, calls[0].number):
            return ""
        return None

    async def _send_answer(self, response: dict[str, Any]) -> bool:
        """Send the answer to a question, once the program has read what was written before."""
        if self._child is not None:
            with contextlib.suppress(ConnectionError):
                await self._child.stdin.drain()
            self._send(response)
        return True  # if the program has ended, its calls have, too

    def _hear(self, notice: Notice, size: int) -> None:
        """Pass on a notification, unless it is large."""
        withdrawn_id = withdrawn(notice)
        if withdrawn_id is not None and self._asked.withdraw(withdrawn_id):
            return
        call = self._meant(notice)
        if call is not None:
            call.notices += 1
            if call.notices > MAX_NOTICES:
                self._cancel(call)
                call.end(self._failure(Reason.TOO_LARGE, f"it sent more than {MAX_NOTICES} notices"))
            elif size <= MAX_NOTICE_BYTES and call.hearing.takes(notice):
                return
        elif notice.method not in _OF_REQUESTS and self._subscribers.notice(notice.method, notice.params):
            return
        self._telemetry.dropped(self._upstream, KINDS.get(notice.method, "notification"))

    def _meant(self, notice: Notice) -> _WaitingRequest | None:
        """Return the call that a notification is about, None if it is about none or that is unclear.

        A log message names no call. It may be about one that has ended, which must be of the same caller.
        """
        if notice.method == PROGRESS:
            token = notice.params.get("progressToken")
            return self._by_token.get(token) if type(token) is int else None
        if notice.method == LOG and len(self._calls) == 1 and len(self._callers) <= 1:
            return next(iter(self._calls.values()))
        return None

    def _failure(self, reason: Reason, detail: str, *, sent: bool = True) -> UpstreamFailure:
        return UpstreamFailure(self._upstream, reason, sent=sent, detail=detail)

    def _counted(self, failure: UpstreamFailure) -> UpstreamFailure:
        self._telemetry.failed(self._upstream, failure.reason)
        return failure


def _without_notices(options: RequestOptions) -> RequestOptions:
    """Return the options of another request that is made for the same caller."""
    return {"requester": options["requester"], "seconds": options["seconds"], "max_bytes": options["max_bytes"]}
