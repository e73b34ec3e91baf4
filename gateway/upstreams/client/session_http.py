"""A session over HTTP, as servers of 2024-11-05 to 2025-11-25 have it ("Streamable HTTP", "Session Management").

A server sends on the stream of a GET request whatever is not part of an answer. The stream is opened before the first
call, since servers of the TypeScript SDK send progress, logs and questions of calls there. A stream whose events have
ids is resumed if it breaks.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from typing_extensions import override

from gateway.ensured import ensured
from gateway.http_client.client import HttpClient, HttpResponse
from gateway.http_client.failures import HttpFailure
from gateway.protocol.strict_json import encode
from gateway.protocol.upstream.asking import ASKING_METHODS
from gateway.protocol.upstream.earlier_requests import SPOKEN
from gateway.protocol.upstream.event_stream import EventStream
from gateway.protocol.upstream.introductions import MAX_INTRODUCTION_BYTES, SessionIntroduction
from gateway.protocol.upstream.notices import LOG, PROGRESS
from gateway.protocol.upstream.responses import Message, Notice, Result, ServerRequest
from gateway.protocol.versions import INITIALIZE
from gateway.runtime.jitter import varied
from gateway.upstreams.client.connections import Subscribers
from gateway.upstreams.client.dialects import InSession
from gateway.upstreams.client.hearing import KINDS
from gateway.upstreams.client.log_level import SessionLogLevel
from gateway.upstreams.client.replies import (
    SHARED,
    UNCLEAR,
    OpenQuestions,
    is_question,
    reply_to,
    withdrawn,
)
from gateway.upstreams.client.stateless import (
    END_SECONDS,
    LISTEN_SECONDS,
    MAX_CHANGE_BYTES,
    STREAM_FACTOR,
    HttpJob,
    StatelessClient,
)
from gateway.upstreams.failures import LostSession, Reason, UpstreamError, UpstreamFailure, ended_without_answer
from gateway.upstreams.ports import UpstreamCaller
from gateway.upstreams.readings import CountAnswer

ANSWER_SECONDS: Final = 10.0
"""How long sending the answer to a question may take."""

MAX_REPLIES: Final = 4
"""How many answers to requests of an upstream are under way at once in a session."""

STREAM_SECONDS: Final = 1.0
"""How long a new session waits for its stream: some servers answer only when they have something to send."""

SEEN_SECONDS: Final = 1.0
"""How long an answer shows that a session without a stream has not ended."""

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 60.0
"""How long to wait before a stream is opened again. The pauses grow while that fails."""

MAX_RESUMED: Final = 100
"""How often the stream of one request is resumed."""

_SESSION: Final = "mcp-session-id"
_SESSION_ID: Final = re.compile(r"[!-~]{1,1024}", re.ASCII)
_OK: Final = 200
_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404
_NO_STREAM: Final = 405
_PING: Final = "ping"
_NO_SUCH_METHOD: Final = -32601
_LOST_CODES: Final = frozenset({-32000, -32600})
"""Errors with which servers refuse the id of a session with status 400, whatever they should send."""


class HttpSession(StatelessClient):
    """One session with an upstream; a `SessionConnection`. The arguments of `StatelessClient` apply.

    `streams` has the connections of streams of GET requests, and `answers` those of answers to questions, so that these
    and calls take none from each other. `subscribers` hear what the upstream sends outside of requests. `capabilities`
    are declared. If the session `is_of_one_caller`, a log message or question that names no request belongs to the only
    call that runs.
    """

    def __init__(
        self,
        *args: Any,
        streams: HttpClient,
        answers: HttpClient,
        subscribers: Subscribers,
        is_of_one_caller: bool,
        capabilities: Mapping[str, Any] = MappingProxyType({}),
        **kwargs: Any,
    ) -> None:
        self._said = InSession()
        super().__init__(*args, dialect=self._said, **kwargs)
        self._streams, self._telling = streams, answers
        self._subscribers = subscribers
        self._is_of_one_caller = is_of_one_caller
        self._capabilities = dict(capabilities)
        self._asked = OpenQuestions(self._send_answer, lambda: self._telemetry.dropped(self._upstream, "question"))
        self._requester: UpstreamCaller | None = None
        self._given = ""
        self._seen_at = -math.inf
        self._is_streaming = False
        self._beginning: asyncio.Task[dict[str, Any]] | None = None
        self._running: dict[int, HttpJob] = {}
        self._listening: asyncio.Task[None] | None = None
        self._tells: set[asyncio.Task[None]] = set()
        self._level = SessionLogLevel()

    async def open(self, requester: UpstreamCaller, *, seconds: float) -> SessionIntroduction:
        """Begin the session, and return the answer to `initialize`; see `SessionConnection.open`."""
        self._requester = requester
        self._beginning = asyncio.create_task(self._begin(requester, seconds))
        result = await asyncio.shield(self._beginning)
        version = result.get("protocolVersion")
        if version not in SPOKEN or (self._given and not self._said.session):
            detail = f"its answer to initialize names none of the versions {', '.join(SPOKEN)}, or no valid session"
            raise self._counted(self._failure(Reason.MALFORMED, detail, sent=False))
        self._said.version = version
        self._level.learn(result)
        try:
            await self._tell(*self._said.notifying("notifications/initialized", {}), requester, END_SECONDS)
        except HttpFailure as failure:
            raise self._counted(self._http_failure(failure)) from None
        if self._said.session:
            await self._listen_from_now_on(requester)
        return SessionIntroduction(result)

    async def aclose(self) -> None:
        """End the session, once it has an id, if the upstream lets its clients do that."""
        self._subscribers.ended.set()
        if self._beginning is not None:
            await asyncio.gather(self._beginning, return_exceptions=True)
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait({self._listening})
        if self._said.session and self._requester is not None:
            await self.end_session(self._said.session, self._requester)

    async def _begin(self, requester: UpstreamCaller, seconds: float) -> dict[str, Any]:
        """Send `initialize`, and learn the id of the session."""

        def learn(headers: Mapping[str, str]) -> None:
            self._given = headers.get(_SESSION, "")
            self._said.session = self._given if _SESSION_ID.fullmatch(self._given) else ""

        return await self.request(
            INITIALIZE,
            {"capabilities": self._capabilities},
            requester=requester,
            seconds=seconds,
            max_bytes=MAX_INTRODUCTION_BYTES,
            on_headers=learn,
        )

    @override
    async def _cancellable(self, job: HttpJob) -> Result:
        await self._set_level(job)
        await self._see_session(job)
        self._running[job.hearing.token] = job
        try:
            result = await super()._cancellable(job)
        except BaseException as problem:
            if job.method in ASKING_METHODS and ended_without_answer(problem):
                self._subscribers.is_unsure = True
            raise
        else:
            self._seen_at = asyncio.get_running_loop().time()
            return result
        finally:
            del self._running[job.hearing.token]
            self._asked.end(job.hearing.token)

    async def _see_session(self, job: HttpJob) -> None:
        """Make sure that the session has not ended, before a request that must not be sent twice.

        Raises:
            LostSession: it has ended.
        """
        if job.repeatable or not self._said.session:
            return
        is_seen = self._is_streaming or asyncio.get_running_loop().time() < self._seen_at + SEEN_SECONDS
        if self._subscribers.ended.is_set() or (not is_seen and await self._has_ended(job)):
            raise LostSession(self._upstream)

    async def _set_level(self, job: HttpJob) -> None:
        async def send(method: str, params: Mapping[str, Any]) -> None:
            seconds = job.deadline - asyncio.get_running_loop().time()
            await self.request(method, params, requester=job.caller, seconds=seconds, max_bytes=MAX_INTRODUCTION_BYTES)

        await self._level.sink(job.hearing.log_level, send)

    @override
    async def _refusal(self, response: HttpResponse, job: HttpJob) -> UpstreamFailure | UpstreamError:
        refusal = await super()._refusal(response, job)
        if not self._said.session or not _names_session(refusal, response.status):
            return refusal
        if job.method != _PING and not await self._has_ended(job):
            detail = f"it answered with status {response.status}, and still has the session"
            return refusal if isinstance(refusal, UpstreamError) else self._failure(Reason.MALFORMED, detail)
        self._subscribers.lose()
        if job.repeatable:
            return LostSession(self._upstream)
        is_answer = isinstance(refusal, UpstreamError) and refusal.has_id
        return refusal if is_answer else self._failure(Reason.LOST_SESSION, "it has ended the session meanwhile")

    async def _has_ended(self, job: HttpJob) -> bool:
        """Ask whether the session has ended. The answer to a request may look like that, and be about its effect."""
        seconds = min(END_SECONDS, job.deadline - asyncio.get_running_loop().time())
        try:
            await self.request(_PING, {}, requester=job.caller, seconds=seconds, max_bytes=MAX_INTRODUCTION_BYTES)
        except LostSession:
            return True
        except (UpstreamError, UpstreamFailure):
            pass
        return False

    @override
    async def _replies(self, message: Message, job: HttpJob) -> bool:
        if not isinstance(message, ServerRequest):
            return False
        if is_question(message) and self._takes(message, job):
            return True
        try:
            async with asyncio.timeout_at(job.deadline):
                await self._reply(message, job.caller)
        except TimeoutError:
            raise self._failure(Reason.TIMED_OUT, "it did not answer in time") from None
        return True

    def _takes(self, asked: ServerRequest, job: HttpJob) -> bool:
        """Have a question answered that belongs to a request. Return False if it is to be refused."""
        questions = job.hearing.questions
        return questions is not None and self._asked.take(asked, questions, job.hearing.token)

    async def _send_answer(self, response: dict[str, Any]) -> bool:
        """Send the answer to a question, and return whether it arrived. If it was not sent, try once more."""
        requester, body = ensured(self._requester, "the session is open"), encode(response)
        for _ in range(2):
            try:
                return await self._tell(self._said.headers(), body, requester, ANSWER_SECONDS) < _BAD_REQUEST
            except UpstreamFailure:
                return False
            except HttpFailure as failure:
                if failure.sent:
                    return False
        return False

    async def _reply(self, asked: ServerRequest, caller: UpstreamCaller, **why: str) -> None:
        """Answer a request of the upstream, once there is not too much to answer. Its stream waits meanwhile."""
        if is_question(asked):
            self._telemetry.dropped(self._upstream, "question")
        if asked.request_id is None:
            return
        while len(self._tells) >= MAX_REPLIES:
            await asyncio.wait(self._tells, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(self._sent_back(reply_to(asked, self._upstream, **why), caller))
        self._tells.add(task)
        task.add_done_callback(self._tells.discard)

    async def _sent_back(self, response: Mapping[str, Any], caller: UpstreamCaller) -> None:
        with contextlib.suppress(HttpFailure, UpstreamFailure):
            await self._tell(self._said.headers(), encode(response), caller, END_SECONDS)

    @override
    async def _events(
        self, pieces: AsyncIterator[bytes], job: HttpJob, count: CountAnswer
    ) -> AsyncGenerator[Message, None]:
        events = EventStream(job.max_bytes)
        limit = STREAM_FACTOR * job.max_bytes
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(MAX_RESUMED):
                try:
                    async for message in self._messages(pieces, job, count, limit=limit, events=events):
                        yield message
                except UpstreamFailure as failure:
                    if failure.reason is not Reason.CUT or not events.last_id:
                        raise
                if not events.last_id:
                    return
                await stack.aclose()
                await self._paused((events.retry_ms or 0) / 1000, job)
                resumed = await self._resumed(events.last_id, job, stack)
                if resumed is None:
                    return
                events, pieces = _resuming(events, job.max_bytes), resumed.chunks()

    async def _paused(self, seconds: float, job: HttpJob) -> None:
        """Wait before a stream is resumed, if its request has as much time."""
        if asyncio.get_running_loop().time() + seconds >= job.deadline:
            detail = "the event stream ended before the answer, and is to be resumed too late"
            raise self._failure(Reason.CUT, detail)
        await asyncio.sleep(seconds)

    async def _resumed(self, last_id: bytes, job: HttpJob, stack: contextlib.AsyncExitStack) -> HttpResponse | None:
        """Open the stream of a request again; None if the upstream does not let that happen."""
        headers = [*self._said.headers(), (b"last-event-id", last_id)]
        credentials = await self._authorized(job, self._credentials.headers(job.caller))
        try:
            getting = self._http.get([*headers, *credentials], deadline=job.deadline)
            response = await stack.enter_async_context(getting)
        except HttpFailure as failure:
            raise self._failure(Reason.CUT, failure.detail) from None
        return response if response.status == _OK else None

    async def _listen_from_now_on(self, requester: UpstreamCaller) -> None:
        """Open the stream of the session, and wait a moment until the upstream has it."""
        opened = asyncio.Event()
        self._listening = asyncio.create_task(self._keep_listening(requester, opened))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STREAM_SECONDS):
                await opened.wait()

    async def _keep_listening(self, requester: UpstreamCaller, opened: asyncio.Event) -> None:
        events, pause = EventStream(MAX_CHANGE_BYTES), FIRST_PAUSE_SECONDS
        while not self._subscribers.ended.is_set():
            began = asyncio.get_running_loop().time()
            with contextlib.suppress(UpstreamFailure, UpstreamError, HttpFailure):
                if not await self._listened(requester, opened, events):
                    return
            opened.set()
            is_steady = asyncio.get_running_loop().time() - began > pause
            pause = FIRST_PAUSE_SECONDS if is_steady else min(2 * pause, LONGEST_PAUSE_SECONDS)
            await asyncio.sleep(varied(max(pause, (events.retry_ms or 0) / 1000)))
            events = _resuming(events, MAX_CHANGE_BYTES)

    async def _listened(self, requester: UpstreamCaller, opened: asyncio.Event, events: EventStream) -> bool:
        """Hear what comes on one stream. Return whether to open another one."""
        job = self._job("", {}, {"requester": requester, "seconds": LISTEN_SECONDS, "max_bytes": MAX_CHANGE_BYTES})
        headers = [*self._said.headers(), *await self._credentials.headers(requester)]
        if events.last_id:
            headers.append((b"last-event-id", events.last_id))
        async with self._streams.get(headers, deadline=job.deadline) as response:
            self._subscribers.can_hear = response.status == _OK
            opened.set()
            if response.status == _NOT_FOUND:
                self._subscribers.lose()
            if response.status in (_NOT_FOUND, _NO_STREAM):
                return False
            if response.status == _OK:
                self._is_streaming = True
                try:
                    async for message in self._messages(self._kept(response), job, limit=None, events=events):
                        await self._hear(message, requester)
                finally:
                    self._is_streaming = False
                    self._seen_at = -math.inf
        return True

    async def _hear(self, message: Message, requester: UpstreamCaller) -> None:
        """Take what came on the stream of the session."""
        if isinstance(message, ServerRequest):
            await self._hear_request(message, requester)
        elif isinstance(message, Notice):
            job = self._meant(message)
            if job is not None or message.method not in KINDS:
                self._notify(message, job)
            else:
                self._telemetry.dropped(self._upstream, KINDS[message.method])

    async def _hear_request(self, asked: ServerRequest, requester: UpstreamCaller) -> None:
        """Answer a request that names none of ours. A question is the only call's, where no other user could be."""
        if not is_question(asked):
            await self._reply(asked, requester)
            return
        self._subscribers.asks_outside()
        calls = [job for job in self._running.values() if job.method in ASKING_METHODS or job.hearing.questions]
        why = {}
        if not self._is_of_one_caller and any(job.caller.principal is not None for job in calls):
            why = {"why": SHARED}
        elif len(calls) > 1 or (calls and self._subscribers.is_unsure):
            why = {"why": UNCLEAR}
        elif calls and self._takes(asked, calls[0]):
            return
        await self._reply(asked, requester, **why)

    @override
    def _notify(self, notice: Notice, job: HttpJob | None) -> None:
        withdrawn_id = withdrawn(notice)
        if withdrawn_id is not None and self._asked.withdraw(withdrawn_id):
            return
        if notice.method in KINDS and job is not None:
            super()._notify(notice, job)
        elif not self._subscribers.notice(notice.method, notice.params):
            self._telemetry.dropped(self._upstream, "notification")

    def _meant(self, notice: Notice) -> HttpJob | None:
        """Return the running request that a notification is about, None if it is about none or that is unclear."""
        if notice.method == PROGRESS:
            token = notice.params.get("progressToken")
            return self._running.get(token) if type(token) is int else None
        if notice.method == LOG and self._is_of_one_caller and len(self._running) == 1:
            return next(iter(self._running.values()))
        return None


def _resuming(events: EventStream, max_bytes: int) -> EventStream:
    """Return a reader of the stream that continues another one."""
    resuming = EventStream(max_bytes)
    resuming.last_id, resuming.retry_ms = events.last_id, events.retry_ms
    return resuming


def _names_session(refusal: UpstreamFailure | UpstreamError, status: int) -> bool:
    """Return whether a refusal seems to say that the session has ended. Most servers say so without our id."""
    if isinstance(refusal, UpstreamError):
        if status == _NOT_FOUND:
            return refusal.code != _NO_SUCH_METHOD
        return status == _BAD_REQUEST and refusal.code in _LOST_CODES and "session" in refusal.message.lower()
    return status == _NOT_FOUND
