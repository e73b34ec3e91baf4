"""The client of upstreams over HTTP that need no session: those of 2026-07-28, and earlier ones that give none.

Each request has one of three ends: a result, the upstream's own JSON-RPC error (`UpstreamError`), or a failure that
says whether the upstream may have acted (`UpstreamFailure`). A request that may have been received is never sent again,
unless the upstream refused it and a repetition would do no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

import msgspec

from gateway.errors import Overloaded
from gateway.http_client.client import HttpClient, HttpResponse, RawHeaders
from gateway.http_client.failures import HttpFailure, HttpReason
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.protocol.upstream.asking import ASKING_METHODS
from gateway.protocol.upstream.cleaning import drop_reserved
from gateway.protocol.upstream.deviations import Deviation, Heal
from gateway.protocol.upstream.event_stream import EventStream, EventTooLarge
from gateway.protocol.upstream.requests import Envelope, relayed_capabilities
from gateway.protocol.upstream.responses import (
    ErrorAnswer,
    Malformed,
    Message,
    Notice,
    Result,
    ServerRequest,
    WrongId,
    read_message,
)
from gateway.protocol.versions import INITIALIZE, META_SUBSCRIPTION_ID
from gateway.runtime.sources import Clock
from gateway.runtime.turns import Turns
from gateway.upstreams.bulkhead import RESERVE, Bulkhead
from gateway.upstreams.client.decoding import Decoding
from gateway.upstreams.client.dialects import Dialect, Stateless
from gateway.upstreams.client.hearing import KINDS, MAX_NOTICE_BYTES, Hearing
from gateway.upstreams.client.measured import MeasuredRequests
from gateway.upstreams.client.portions import PORTION_BYTES, Portions
from gateway.upstreams.client.statuses import UNAVAILABLE, may_have_error, meaning_of
from gateway.upstreams.credentials import CredentialHeaders
from gateway.upstreams.failures import LIMIT_OPTION, Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.healing import Healing
from gateway.upstreams.ports import NOBODY, RequestOptions, UpstreamCaller
from gateway.upstreams.readings import CountAnswer, Readings, count_nothing, readings_of_answers

if TYPE_CHECKING:  # a process without traces never loads OpenTelemetry, which takes memory
    from gateway.observability.tracing import Traces

RETRY_SECONDS: Final = 0.1
"""The pause before a request that had no effect is sent once more."""
FINISH_SECONDS: Final = 0.05
"""How long a stream may take to end after its answer, so that its connection can be used again."""
FINISH_PIECES: Final = 4
"""How many further pieces of such a stream are read."""
MAX_ERROR_BYTES: Final = 256 * 1024
"""The largest body that is read of a response that is not 200."""
STREAM_FACTOR: Final = 8
"""How many times the largest answer the notices of one request may take in all."""

MAX_NOTICES: Final = 10_000
"""How many notices one request may get."""

END_SECONDS: Final = 2.0
"""How long ending a session, or cancelling a request, may take."""
MAX_CANCELS: Final = 16
"""How many requests are cancelled at once, at most. Further ones wait."""
LISTEN_SECONDS: Final = 3600.0
"""How long a stream of changes lasts before it must be opened again."""
LISTEN_IDLE_SECONDS: Final = 300.0
"""How long such a stream may send nothing, not even a comment; the connection may be dead."""
MAX_CHANGE_BYTES: Final = 64 * 1024
"""The largest event on a stream of changes."""
ACKNOWLEDGED_SECONDS: Final = 10.0
"""How long a stream of changes may take to open."""
CHANGE_BYTES_PER_SECOND: Final = 64 * 1024
CHANGE_BYTES_AT_ONCE: Final = 4 * CHANGE_BYTES_PER_SECOND
"""How much a stream of changes may send: on average, and more than that for a moment. Comments count too."""

_ACTING: Final = "tools/call"
"""The method whose requests may have effects. All others only read, so they can be sent again."""
_LISTEN: Final = "subscriptions/listen"
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"

_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_BRACE: Final = b"{"

_OK: Final = 200
_SERVER_ERRORS: Final = 500
_RETRIED: Final = frozenset({Reason.UNREACHABLE, Reason.CUT, Reason.SERVER_ERROR})

T = TypeVar("T")


class HttpJob(msgspec.Struct, frozen=True):
    """A request to send, once or twice.

    The deadline is on the clock of the event loop. A repeatable one may be sent twice.
    """

    request_id: int
    method: str
    headers: RawHeaders
    body: bytes
    caller: UpstreamCaller
    deadline: float
    max_bytes: int
    repeatable: bool
    hearing: Hearing

    def __repr__(self) -> str:
        """Return a text without the headers and the body, which are the caller's."""
        return f"HttpJob({self.request_id}, {self.method!r})"


class StatelessClient:
    """Sends requests to one upstream, and reads its answers strictly.

    `upstream` is its name for errors and metrics. `client_info` is the `Implementation` of the gateway. `tracing` makes
    a span for each request, which the upstream can join. Clients with the same `turns` handle their large answers one
    after the other; those with the same `readings` share the memory for answers that are being read. The `dialect` is
    that of 2026-07-28 by default. The places of `cancels` limit how many cancellations are sent at once.

    Not thread-safe: it belongs to one event loop.
    """

    def __init__(
        self,
        upstream: str,
        http: HttpClient,
        credentials: CredentialHeaders,
        telemetry: UpstreamMetrics,
        *,
        client_info: Mapping[str, Any],
        tracing: Traces | None = None,
        turns: Turns | None = None,
        readings: Readings | None = None,
        clock: Clock = time.monotonic,
        dialect: Dialect | None = None,
        cancels: Bulkhead | None = None,
    ) -> None:
        self._upstream = upstream
        self._http = self._telling = http
        self._credentials = credentials
        self._telemetry = telemetry
        self._heal = Healing(upstream, telemetry)
        self._client_info = client_info
        self._measured = MeasuredRequests(upstream, telemetry, tracing, clock)
        self._decoding = Decoding(upstream, Turns() if turns is None else turns, self._heal)
        self._readings = readings_of_answers() if readings is None else readings
        self._clock = clock
        self._dialect = Stateless() if dialect is None else dialect
        self._ids = itertools.count(self._dialect.first_id)
        self._cancels = cancels or places_of_cancels(RESERVE * MAX_CANCELS)
        self._cancelling: set[asyncio.Task[None]] = set()

    async def request(
        self, method: str, params: Mapping[str, Any], **options: Unpack[RequestOptions]
    ) -> dict[str, Any]:
        """Send a request and return its result, without the reserved keys of its `_meta`.

        Cancelling this closes the connection, which cancels the request at the upstream. Reserved keys of the `_meta`
        of `params` are replaced by ours.

        Raises:
            UpstreamError: the upstream answered with a JSON-RPC error.
            UpstreamFailure: the answer is not valid, or missing.
        """

        async def send(traceparent: str | None) -> Result:
            return await self._cancellable(self._job(method, params, options, traceparent))

        return await self._measured.run(method, send, options.get("questions"))

    @contextlib.asynccontextmanager
    async def listen(
        self, wanted: Mapping[str, Any], *, requester: UpstreamCaller = NOBODY, seconds: float = ACKNOWLEDGED_SECONDS
    ) -> AsyncIterator[AsyncIterator[tuple[str, dict[str, Any]]]]:
        """Open a stream of changes (`subscriptions/listen`), which the context yields once it is acknowledged.

        The stream yields methods and parameters of notifications. It ends when the upstream ends it, when it lasted
        `LISTEN_SECONDS`, or after `LISTEN_IDLE_SECONDS` of silence; then lists may have changed unnoticed. `wanted` is
        the filter, such as `{"toolsListChanged": True}`. `seconds` limits the wait for the acknowledgement.

        Raises:
            UpstreamError: the upstream answered with a JSON-RPC error; from the stream too.
            UpstreamFailure: the answer is not valid, or the stream fails.
        """
        options = RequestOptions(requester=requester, seconds=LISTEN_SECONDS, max_bytes=MAX_CHANGE_BYTES)
        job = self._job(_LISTEN, {"notifications": wanted}, options)
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(seconds):
                    response = await self._open(job, stack)
                    if _media_type(response) != _EVENTS:
                        self._raise_if_error(await self._read_json(response, job))
                        raise self._failure(
                            Reason.MALFORMED, "the answer to subscriptions/listen is not an event stream"
                        )
                    messages = self._messages(self._kept(response), job, limit=None)
                    stack.push_async_callback(messages.aclose)
                    await self._acknowledged(messages)
            except TimeoutError:
                raise self._counted(
                    self._failure(Reason.TIMED_OUT, "subscriptions/listen was not acknowledged")
                ) from None
            except UpstreamFailure as failure:
                raise self._counted(failure) from None
            changes = self._changes(messages, job)
            stack.push_async_callback(changes.aclose)
            yield changes

    async def end_session(self, session: str, requester: UpstreamCaller) -> None:
        """End a session that nobody wanted, if the upstream lets its clients do that."""
        deadline = asyncio.get_running_loop().time() + END_SECONDS
        with contextlib.suppress(HttpFailure, UpstreamFailure, ValueError):
            headers = [(b"mcp-session-id", session.encode("latin-1")), *await self._credentials.headers(requester)]
            async with self._http.delete(headers, deadline=deadline):
                pass

    def _job(
        self,
        method: str,
        params: Mapping[str, Any],
        options: RequestOptions,
        traceparent: str | None = None,
    ) -> HttpJob:
        request_id = next(self._ids)
        caller, log_level = options["requester"], options.get("log_level")
        wants_progress = options.get("wants_progress", False)
        token = options.get("progress_token", request_id)
        envelope = Envelope(
            self._client_info,
            relayed_capabilities(caller.capabilities),
            token if wants_progress else None,
            log_level,
            traceparent,
        )
        headers, body = self._dialect.written(request_id, method, params, options.get("param_headers", ()), envelope)
        return HttpJob(
            request_id,
            method,
            headers,
            body,
            caller,
            asyncio.get_running_loop().time() + options["seconds"],
            options["max_bytes"],
            options.get("repeatable", False) or method != _ACTING,
            Hearing(
                token,
                options.get("on_notice"),
                wants_progress,
                log_level,
                options.get("on_headers"),
                options.get("keep"),
                options.get("questions"),
            ),
        )

    async def _cancellable(self, job: HttpJob) -> Result:
        """Send a request and return its result. If this is cancelled, so is the request at the upstream."""
        try:
            return await self._send(job)
        except asyncio.CancelledError:
            notification = None if job.method == INITIALIZE else self._dialect.cancelling(job.request_id)
            if notification is not None:
                task = asyncio.create_task(self._cancel(job, *notification))
                self._cancelling.add(task)
                task.add_done_callback(self._cancelling.discard)
            raise

    async def _cancel(self, job: HttpJob, headers: RawHeaders, body: bytes) -> None:
        with contextlib.suppress(HttpFailure, UpstreamFailure, Overloaded):
            async with self._cancels.place(job.caller.principal):
                await self._tell(headers, body, job.caller, END_SECONDS)

    async def _tell(self, headers: RawHeaders, body: bytes, caller: UpstreamCaller, seconds: float) -> int:
        """Send what gets no answer, and return the HTTP status."""
        deadline = asyncio.get_running_loop().time() + seconds
        credentials = await self._credentials.headers(caller)
        async with self._telling.post([*headers, *credentials], body, deadline=deadline) as response:
            return response.status

    async def _send(self, job: HttpJob) -> Result:
        """Send a request, and return its result."""
        async with contextlib.AsyncExitStack() as stack:
            response = await self._open(job, stack)
            if job.hearing.on_headers is not None:
                job.hearing.on_headers(response.headers)
            if response.has_arrived:  # what is in the buffer of a connection is little
                answer = await self._read(response, job, count_nothing)
            else:
                answer = await self._readings.read(
                    self._upstream,
                    job.caller.principal,
                    lambda count: self._read(response, job, count),
                    job.hearing.keep,
                )
            return self._result_of(answer, job)

    async def _open(self, job: HttpJob, stack: contextlib.AsyncExitStack) -> HttpResponse:
        """Send a request and return its response, which has the status 200. `stack` closes it.

        A credential is renewed once if the upstream refuses it. A request that was not sent is sent once more, and one
        that the upstream refused if it is repeatable: a server that says so may have acted nevertheless.
        """
        renewed = retried = refused = False
        while True:
            credentials = await self._authorized(job, self._credentials.headers(job.caller))
            try:
                return await self._attempt(job, credentials, stack)
            except UpstreamFailure as failure:
                refused = failure.refused = not failure.sent and (refused or failure.refused)
                if failure.reason is Reason.UNAUTHORIZED and not renewed:
                    renewed = await self._authorized(job, self._credentials.renew(job.caller, credentials))
                    if not renewed:
                        raise
                elif retried or not _may_repeat(failure, job) or not self._has_time(job):
                    raise
                else:
                    retried = True
                    await asyncio.sleep(RETRY_SECONDS)

    async def _attempt(self, job: HttpJob, credentials: RawHeaders, stack: contextlib.AsyncExitStack) -> HttpResponse:
        posting = self._http.post([*job.headers, *credentials], job.body, deadline=job.deadline)
        try:
            response = await stack.enter_async_context(posting)
        except HttpFailure as failure:
            raise self._http_failure(failure) from None
        if response.status == _OK:
            return response
        try:
            raise await self._refusal(response, job)
        finally:
            await stack.aclose()

    async def _refusal(self, response: HttpResponse, job: HttpJob) -> UpstreamFailure | UpstreamError:
        """Return what a status other than 200 means.

        Servers send most JSON-RPC errors with such a status ("Streamable HTTP"), so a valid one counts.
        """
        if may_have_error(response.status):
            error = await self._error_in(response, job)
            if error is not None:
                return self._error(error, response.status)
        acts = job.method == _ACTING and "retry-after" not in response.headers
        meaning = meaning_of(response.status, acts=acts, location=response.headers.get("location", ""))
        return UpstreamFailure(
            self._upstream,
            meaning.reason,
            sent=meaning.sent,
            refused=not meaning.sent,
            detail=meaning.detail,
            is_unavailable=response.status == UNAVAILABLE,
        )

    async def _error_in(self, response: HttpResponse, job: HttpJob) -> ErrorAnswer | None:
        """Return the JSON-RPC error in a response. A server that fails must name our request in it.

        Others need not: servers of earlier revisions refuse with ids of their own, such as `"server-error"`.
        """
        if _media_type(response) != _JSON:
            return None
        try:
            body = await response.body(min(MAX_ERROR_BYTES, job.max_bytes))
            message = await self._message(body, job, any_id=True)
        except (UpstreamFailure, HttpFailure):
            return None
        is_answer = isinstance(message, ErrorAnswer) and (message.has_id or response.status < _SERVER_ERRORS)
        return message if isinstance(message, ErrorAnswer) and is_answer else None

    async def _read(self, response: HttpResponse, job: HttpJob, count: CountAnswer) -> Result | ErrorAnswer:
        """Return the answer in a response, and pass on the notices before it."""
        kind = _media_type(response)
        if kind == _JSON:
            return await self._read_json(response, job, count)
        if kind != _EVENTS:
            raise self._failure(Reason.MALFORMED, "the answer is neither JSON nor an event stream")
        pieces = response.chunks()
        messages = self._events(pieces, job, count)
        notices = 0
        async with contextlib.aclosing(messages):
            async for message in messages:
                if isinstance(message, Notice) or await self._replies(message, job):
                    notices += 1
                    if notices > MAX_NOTICES:
                        raise self._failure(Reason.TOO_LARGE, f"it sent more than {MAX_NOTICES} notices")
                    if isinstance(message, Notice):
                        self._notify(message, job)
                else:
                    answer = self._answer(message)
                    await _finish(pieces)
                    return answer
        raise self._failure(Reason.CUT, "the event stream ended before the answer")

    async def _read_json(
        self, response: HttpResponse, job: HttpJob, count: CountAnswer = count_nothing
    ) -> Result | ErrorAnswer:
        if _media_type(response) != _JSON:
            raise self._failure(Reason.MALFORMED, "the answer is neither JSON nor an event stream")
        try:
            body = await response.body(job.max_bytes, count)
        except HttpFailure as failure:
            if failure.reason is HttpReason.TOO_LARGE:
                raise self._too_large(failure.detail) from None
            raise self._http_failure(failure) from None
        message = await self._message(body, job, count)
        if isinstance(message, Notice):
            raise self._failure(Reason.MALFORMED, "the answer is a notification")
        return self._answer(message)

    def _events(self, pieces: AsyncIterator[bytes], job: HttpJob, count: CountAnswer) -> AsyncGenerator[Message, None]:
        """Yield the messages of the event stream that answers a request."""
        return self._messages(pieces, job, count, limit=STREAM_FACTOR * job.max_bytes)

    async def _replies(self, _message: Message, _job: HttpJob) -> bool:
        """Answer a request of the upstream, and return whether it may send one."""
        return False

    async def _messages(
        self,
        pieces: AsyncIterator[bytes],
        job: HttpJob,
        count: CountAnswer = count_nothing,
        *,
        limit: int | None,
        events: EventStream | None = None,
    ) -> AsyncGenerator[Message, None]:
        """Yield the messages of an event stream, of which at most `limit` bytes are read. `events` reads it."""
        events, portions = events or EventStream(job.max_bytes), Portions()
        received = counted = 0
        try:
            async for piece in pieces:
                if not received and piece.lstrip()[:1] == _BRACE:
                    yield await self._message(await self._unframed(piece, pieces, job, count), job, count)
                    return
                received += len(piece)
                if limit is not None and received > limit:
                    raise self._too_large(f"the event stream is larger than {limit} bytes")
                for start in range(0, len(piece), PORTION_BYTES):
                    portion = piece[start : start + PORTION_BYTES]
                    for event in events.feed(portion):
                        count(len(event) - counted)
                        counted = len(event)
                        message = await self._message(event, job, count)
                        if isinstance(message, Notice) and len(event) > MAX_NOTICE_BYTES:
                            self._telemetry.dropped(self._upstream, KINDS.get(message.method, "notification"))
                        else:
                            yield message
                        del event, message  # they may be large, and the next one may take long to come
                        await portions.read(events=1)
                    if events.unfinished_bytes != counted:
                        count(events.unfinished_bytes - counted)
                        counted = events.unfinished_bytes
                    await portions.read(size=len(portion))
        except EventTooLarge as error:
            raise self._too_large(str(error)) from None
        except HttpFailure as failure:
            raise self._http_failure(failure) from None

    async def _unframed(self, first: bytes, pieces: AsyncIterator[bytes], job: HttpJob, count: CountAnswer) -> bytes:
        """Return a body that is JSON although it should be an event stream."""
        body = bytearray(first)
        count(len(first))
        async for piece in pieces:
            count(len(piece))
            body += piece
            if len(body) > job.max_bytes:
                break
        if len(body) > job.max_bytes:
            raise self._too_large(f"the body has more than {job.max_bytes} bytes")
        self._heal(Deviation.MEDIA_TYPE)
        return bytes(body)

    async def _message(
        self, body: bytes, job: HttpJob, count: CountAnswer = count_nothing, *, any_id: bool = False
    ) -> Message:
        """Decode a message: a large one in a thread, in its turn. Other work has its turn before the result is used."""
        try:
            return await self._decoding.run(
                body,
                lambda heal: self._decoded(body, job, any_id, heal),
                job.caller.principal,
                deadline=job.deadline,
                count=count,
            )
        except TimeoutError:
            raise self._failure(Reason.TIMED_OUT, "its answer was not read in time") from None

    def _decoded(self, body: bytes, job: HttpJob, any_id: bool, heal: Heal) -> Message:
        try:
            return read_message(body, job.request_id, any_id=any_id, heal=heal)
        except WrongId as error:
            raise self._failure(Reason.WRONG_ID, str(error)) from None
        except Malformed as error:
            raise self._failure(Reason.MALFORMED, str(error)) from None

    def _answer(self, message: Result | ErrorAnswer | ServerRequest) -> Result | ErrorAnswer:
        if isinstance(message, ServerRequest):
            self._telemetry.dropped(self._upstream, "question")
            raise self._failure(self._dialect.asked, "it sent a request on the answer to ours")
        return message

    def _result_of(self, answer: Result | ErrorAnswer, job: HttpJob) -> Result:
        if isinstance(answer, ErrorAnswer):
            raise self._error(answer)
        if answer.asks and not (self._dialect.may_ask and job.method in ASKING_METHODS):
            self._telemetry.dropped(self._upstream, "question")
            raise self._failure(self._dialect.asked, f"the answer to {job.method} asks for input")
        return answer

    def _notify(self, notice: Notice, job: HttpJob) -> None:
        """Pass on a notice that was asked for; count another one."""
        if not job.hearing.takes(notice):
            self._telemetry.dropped(self._upstream, KINDS.get(notice.method, "notification"))

    async def _kept(self, response: HttpResponse) -> AsyncIterator[bytes]:
        """Yield the pieces of a stream of changes until it is silent. If they are too many, fail."""
        pieces, budget = response.chunks(), _Budget(self._clock)
        while True:
            try:
                async with asyncio.timeout(LISTEN_IDLE_SECONDS):
                    piece = await anext(pieces, None)
            except TimeoutError:
                return
            if piece is None:
                return
            if not budget.covers(len(piece)):
                limit = f"{CHANGE_BYTES_PER_SECOND} bytes per second"
                raise self._failure(Reason.MALFORMED, f"the stream of changes sends more than {limit}")
            yield piece

    async def _acknowledged(self, messages: AsyncIterator[Message]) -> None:
        """Wait for the acknowledgement, which must come first."""
        message = await anext(messages, None)
        if message is None:
            raise self._failure(Reason.CUT, "the event stream ended before its acknowledgement")
        if isinstance(message, Notice):
            if message.method == _ACKNOWLEDGED:
                return
            raise self._failure(Reason.MALFORMED, "the event stream does not begin with its acknowledgement")
        self._raise_if_error(self._answer(message))
        raise self._failure(Reason.CUT, "the event stream ended before its acknowledgement")

    async def _changes(
        self, messages: AsyncIterator[Message], job: HttpJob
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        try:
            async for message in messages:
                if not isinstance(message, Notice):
                    self._raise_if_error(self._answer(message))
                    return
                if _is_of(message, job.request_id):
                    drop_reserved(message.params)
                    yield message.method, message.params
                else:
                    self._telemetry.dropped(self._upstream, "notification")
        except UpstreamFailure as failure:
            if failure.reason is not Reason.TIMED_OUT:  # it lasted as long as it may
                raise self._counted(failure) from None

    async def _authorized(self, job: HttpJob, working: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout_at(job.deadline):
                return await working
        except TimeoutError:
            detail = "no credential was issued in time"
            raise self._failure(Reason.CREDENTIALS, detail, sent=False) from None

    @staticmethod
    def _has_time(job: HttpJob) -> bool:
        return asyncio.get_running_loop().time() + RETRY_SECONDS < job.deadline

    def _raise_if_error(self, answer: Result | ErrorAnswer) -> None:
        if isinstance(answer, ErrorAnswer):
            raise self._error(answer)

    def _error(self, error: ErrorAnswer, status: int = _OK) -> UpstreamError:
        return UpstreamError(self._upstream, error.code, error.message, error.data, status=status, has_id=error.has_id)

    def _failure(self, reason: Reason, detail: str, *, sent: bool = True) -> UpstreamFailure:
        return UpstreamFailure(self._upstream, reason, sent=sent, detail=detail)

    def _too_large(self, detail: str) -> UpstreamFailure:
        return self._failure(Reason.TOO_LARGE, f"{detail}; {LIMIT_OPTION} sets the limit")

    def _http_failure(self, failure: HttpFailure) -> UpstreamFailure:
        return self._failure(Reason(failure.reason.value), failure.detail, sent=failure.sent)

    def _counted(self, failure: UpstreamFailure) -> UpstreamFailure:
        self._telemetry.failed(self._upstream, failure.reason)
        return failure


def places_of_cancels(connections: int) -> Bulkhead:
    """Return places in which cancelled requests are reported. They take few of the connections, however slow that is.

    These requests have given their own places back.
    """
    places = max(1, min(MAX_CANCELS, connections // RESERVE))
    return Bulkhead(places, None, lambda _count: None, wait_seconds=END_SECONDS)


def _media_type(response: HttpResponse) -> str:
    """Return the media type of a body, in lower case."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _finish(pieces: AsyncIterator[bytes]) -> None:
    """Read the end of a stream after its answer, if it comes at once."""
    with contextlib.suppress(TimeoutError, HttpFailure):
        async with asyncio.timeout(FINISH_SECONDS):
            for _ in range(FINISH_PIECES):
                if await anext(pieces, None) is None:
                    return


class _Budget:
    """The bytes that a stream of changes may still send. They grow with time, up to `CHANGE_BYTES_AT_ONCE`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._room = float(CHANGE_BYTES_AT_ONCE)
        self._counted_at = clock()

    def covers(self, size: int) -> bool:
        """Count a piece, and return whether there was room for it."""
        earlier, self._counted_at = self._counted_at, self._clock()
        grown = self._room + (self._counted_at - earlier) * CHANGE_BYTES_PER_SECOND
        self._room = min(grown, CHANGE_BYTES_AT_ONCE) - size
        return self._room >= 0


def _may_repeat(failure: UpstreamFailure, job: HttpJob) -> bool:
    """Return whether to send a request again: it did not arrive, or it was refused and may arrive twice."""
    return failure.reason in _RETRIED and not failure.sent and (job.repeatable or not failure.refused)


def _is_of(notice: Notice, request_id: int) -> bool:
    """Return whether a notification names our subscription, or none."""
    meta = notice.params.get("_meta")
    given = meta.get(META_SUBSCRIPTION_ID, request_id) if type(meta) is dict else request_id
    return type(given) is int and given == request_id
