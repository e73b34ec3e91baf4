"""A reference client of the draft wire: the seeds' own forms of asking, tasks and streaming, which no SDK speaks.

Each message goes to another replica than the one before it, and all of them are remembered in order: `DraftClient.log`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.wires.draft.messages import (
    CAPABILITIES,
    FIRST_FORM_RELATED_TASK,
    FIRST_FORM_TASK,
    MAX_LEGS,
    MODES,
    RELATED_TASK,
    TERMINAL,
    VERSION,
    Answers,
    Result,
    answer_to,
    call_params,
    ended_early,
    is_incomplete,
    is_response,
    read_response,
    read_task,
    related_task_id,
    retry_params,
    wrapped_answers,
)
from tests.wires.draft.racing import first_to_finish
from tests.wires.draft.streaming import OnResponse, StreamedCall, Streaming
from tests.wires.draft.transport import (
    ACCEPT_BOTH,
    BrokenError,
    Exchange,
    HttpError,
    Message,
    Policy,
    ProtocolError,
    RoundRobin,
    RpcError,
    Seen,
    Transport,
)


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request. Its `notices` are the notifications and the server's requests that came before it."""

    request_id: int
    url: str
    headers: Mapping[str, str]
    result: Result
    notices: Sequence[Message] = ()


@dataclass(frozen=True, slots=True)
class FinishedTask:
    """A task that has ended, as the last `tasks/get` showed it, and what `tasks/result` says: a result or an error."""

    task: Result
    result: Result | None = None
    error: RpcError | None = None

    @property
    def status(self) -> str:
        """How it ended."""
        return str(self.task["status"])


@dataclass(slots=True)
class FirstFormCall:
    """A call whose task was wished for with `_meta`. It was `won_by` the `response` to the request, or by `polling`."""

    task_id: str
    created: asyncio.Event = field(default_factory=asyncio.Event)
    won_by: str = ""
    result: Result | None = None
    error: RpcError | None = None
    task: Result = field(default_factory=dict)


class DraftClient:
    """Speaks the draft wire with one or several replicas, with a session after `initialize` and without one before.

    Use it as an async context manager.

    Args:
        urls: the MCP endpoints of the replicas.
        policy: which replica gets which message; None takes them in turn.
        token: a bearer token.
        capabilities: what `initialize` declares.
        seconds: after which any one request, and any call or task that is followed to its end, fails with
            `TimeoutError` (or `httpx.TimeoutException`).
        longest_poll_seconds: shortens the server's poll interval; None respects it.

    Attributes:
        server: the result of `initialize`.
        session_id: the session, if there is one.
    """

    def __init__(
        self,
        urls: Sequence[str],
        policy: Policy | None = None,
        *,
        token: str | None = None,
        capabilities: Mapping[str, Any] = CAPABILITIES,
        seconds: float = 30.0,
        longest_poll_seconds: float | None = None,
    ) -> None:
        headers = {"Content-Type": "application/json", "Accept": ACCEPT_BOTH, "MCP-Protocol-Version": VERSION}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self.transport = Transport(urls, headers, policy or RoundRobin(), seconds)
        self.capabilities = capabilities
        self.seconds = seconds
        self.server: Result = {}
        self._longest_poll_seconds = longest_poll_seconds
        self._ids = itertools.count(1)
        self._first_form_ids: set[str] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.transport.aclose()

    # What went over the wire.

    @property
    def log(self) -> list[Seen]:
        """Everything that went over the wire, in order."""
        return self.transport.log

    @property
    def session_id(self) -> str | None:
        return self.transport.headers.get("Mcp-Session-Id")

    def sent(self, method: str | None = None) -> list[Message]:
        """Return what was sent: everything, or the requests and notifications of one method."""
        return [seen.message for seen in self._sent(method)]

    def urls_of(self, method: str | None = None) -> list[str]:
        """Return the replicas that these messages went to."""
        return [seen.url for seen in self._sent(method)]

    def received(self, request_id: int | None = None) -> list[Message]:
        """Return what was received: everything, or what came on the answer to one request."""
        exchanges = {seen.exchange for seen in self._sent() if request_id in (None, seen.message.get("id"))}
        return [seen.message for seen in self.log if seen.kind == "received" and seen.exchange in exchanges]

    def _sent(self, method: str | None = None) -> list[Seen]:
        return [s for s in self.log if s.kind == "sent" and method in (None, s.message.get("method"))]

    # Messages.

    async def initialize(self, version: str = VERSION) -> Result:
        """Begin a session: what the server says is kept in `server`.

        Raises:
            ProtocolError: the server answers with another version, or without a session.
        """
        client = {"name": "draft-reference", "version": "1"}
        params = {"protocolVersion": version, "capabilities": dict(self.capabilities), "clientInfo": client}
        reply = await self.send("initialize", params)
        if reply.result.get("protocolVersion") != version or "mcp-session-id" not in reply.headers:
            raise ProtocolError(f"no session of {version}: {reply.result}")
        self.server = reply.result
        self.transport.headers["Mcp-Session-Id"] = reply.headers["mcp-session-id"]
        await self.notify("notifications/initialized")
        return reply.result

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        await self._hand_in(
            {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": dict(params)})}
        )

    async def respond(self, request_id: int | str, response: Mapping[str, Any], *, after: str | None = None) -> None:
        """Answer a request of the server's, with `{"result": …}` or `{"error": …}`."""
        await self._hand_in({"jsonrpc": "2.0", "id": request_id, **response}, after)

    async def _hand_in(self, message: Message, after: str | None = None) -> None:
        """Send a message that is acknowledged and not answered."""
        async with asyncio.timeout(self.seconds), self.transport.post(message, after=after) as exchange:
            async for received in exchange.messages:
                read_response(exchange, received)
            if exchange.status != 202:
                raise HttpError(exchange.status)

    def next_id(self) -> int:
        return next(self._ids)

    @contextlib.asynccontextmanager
    async def asking(
        self, method: str, params: Mapping[str, Any] | None = None, *, after: str | None = None
    ) -> AsyncIterator[tuple[int, Exchange]]:
        """Send a request; its id and its answer under way are the context's value. Leaving closes the connection.

        Raises:
            HttpError, RpcError: the server refuses the request with nothing but an HTTP status or an error.
        """
        request_id = self.next_id()
        message: Message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        if params is not None:
            message["params"] = dict(params)
        async with self.transport.post(message, after=after) as exchange:
            yield request_id, exchange

    async def send(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        answers: Answers | None = None,
        after: str | None = None,
    ) -> Reply:
        """Send a request, answer what the server asks meanwhile, and return its answer: one leg.

        Args:
            answers: to the server's requests on the stream; None leaves them unanswered.

        Raises:
            RpcError: the answer is an error.
            HttpError: the answer is not a JSON-RPC message.
            BrokenError: the connection ended before the answer.
            ProtocolError: the answer belongs to another request, or something follows it.
        """
        reply: Reply | None = None
        notices: list[Message] = []
        async with asyncio.timeout(self.seconds), self.asking(method, params, after=after) as (request_id, exchange):
            async for message in exchange.messages:
                if reply is not None:
                    raise ProtocolError(f"after the answer comes {message}")
                if is_response(message):
                    result = read_response(exchange, message, request_id)
                    reply = Reply(request_id, exchange.url, exchange.headers, result, notices)
                else:
                    notices.append(message)
                    await self.hear(message, exchange, answers)
        if reply is None:
            raise ended_early(exchange)
        return reply

    async def request(self, method: str, params: Mapping[str, Any] | None = None, **options: Any) -> Result:
        """Send a request and return its result. Options and errors are those of `send`."""
        return (await self.send(method, params, **options)).result

    async def hear(self, message: Message, exchange: Exchange, answers: Answers | None) -> None:
        """Answer a request that came on a stream, at the next replica; notifications need no answer."""
        if "id" in message and answers is not None:
            await self.respond(message["id"], await answer_to(message, answers), after=exchange.url)

    # Calls.

    async def complete(self, method: str, params: Mapping[str, Any], *, answers: Answers | None = None) -> Reply:
        """Send a request, and again with the answers and the state of its incomplete result, until it is complete."""
        reply = await self.send(method, params, answers=answers)
        for _ in range(MAX_LEGS):
            if not is_incomplete(reply.result):
                return reply
            retry = await retry_params(reply.result, answers or {})
            reply = await self.send(method, {**params, **retry}, answers=answers, after=reply.url)
        raise ProtocolError(f"no end after {MAX_LEGS} legs")

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        answers: Answers | None = None,
        task: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Result:
        """Call a tool to its end, and return its result, or `{"task": …}`."""
        return (await self.complete("tools/call", call_params(name, arguments, task, meta), answers=answers)).result

    # Tasks.

    async def create_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        ttl: float | None = None,
        answers: Answers | None = None,
    ) -> Result:
        """Call a tool as a task and return the task. Questions before its creation are answered."""
        result = await self.call_tool(name, arguments, answers=answers, task={} if ttl is None else {"ttl": ttl})
        return read_task(result["task"])

    async def get_task(self, task_id: str) -> Result:
        """Return how a task is, or raise the error that says that it is unknown."""
        return read_task(await self.request("tasks/get", self._task_params(task_id)))

    async def task_result(
        self,
        task_id: str,
        *,
        last_seq_nr: Any = None,
        answers: Answers | None = None,
        after: str | None = None,
    ) -> Reply:
        """Ask for a task's result; with `last_seq_nr` for the segments after that one."""
        more = {} if last_seq_nr is None else {"lastSeqNr": last_seq_nr}
        return await self.send("tasks/result", {**self._task_params(task_id), **more}, answers=answers, after=after)

    async def answer_task(self, task_id: str, responses: Mapping[str, Any]) -> Result:
        """Hand in `inputResponses`, and return the acknowledgement, which must name the task."""
        related = {"taskId": task_id}
        meta = {RELATED_TASK: related, **self._task_params(task_id).get("_meta", {})}
        acknowledged = await self.request("tasks/input_response", {"inputResponses": dict(responses), "_meta": meta})
        if task_id not in (related_task_id(acknowledged), related_task_id(acknowledged, FIRST_FORM_RELATED_TASK)):
            raise ProtocolError(f"the acknowledgement does not name the task: {acknowledged}")
        return acknowledged

    async def list_tasks(self, cursor: str | None = None) -> Result:
        return await self.request("tasks/list", {} if cursor is None else {"cursor": cursor})

    async def all_tasks(self) -> list[Result]:
        page = await self.list_tasks()
        tasks = list(page["tasks"])
        while "nextCursor" in page:
            page = await self.list_tasks(page["nextCursor"])
            tasks += page["tasks"]
        return [read_task(task) for task in tasks]

    async def delete_task(self, task_id: str) -> Result:
        return await self.request("tasks/delete", self._task_params(task_id))

    async def cancel_task(self, task_id: str) -> Result:
        return read_task(await self.request("tasks/cancel", self._task_params(task_id)))

    async def stream_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        modes: Sequence[str] | None = MODES,
        ttl: float | None = None,
        answers: Answers | None = None,
        break_after: int | None = None,
        on_response: OnResponse | None = None,
    ) -> StreamedCall:
        """Call a tool as a task, and take its result as the server gives it: at once, in segments, or at the end.

        The client fetches segments that a broken stream did not deliver with `lastSeqNr` from the next replica.

        Args:
            modes: the `responseModes`; None sends none.
            answers: what the user says, see `answer_to`.
            break_after: break the connection as soon as so many segments have been taken; what more the last response
                brought is dropped, as if it had not arrived.
            on_response: awaited with the call after each streaming response of the call that was taken.

        Raises:
            RpcError: the call is refused.
            BrokenError: the connection ended before the task was known.
            ProtocolError: a gap cannot be filled, or the answer has no form that is allowed.
            SegmentError: a segment has no number.
        """
        wish = {**({} if ttl is None else {"ttl": ttl}), **({} if modes is None else {"responseModes": list(modes)})}
        streaming = Streaming(self, answers, break_after, on_response)
        async with asyncio.timeout(self.seconds):
            return await streaming.run(call_params(name, arguments, task=wish))

    async def cancel_request(self, request_id: int) -> None:
        """Cancel a request by notification."""
        await self.notify("notifications/cancelled", {"requestId": request_id})

    async def wait_between_polls(self, task: Mapping[str, Any]) -> None:
        """Wait as long as the server wants between two looks at a task, or less if tests shall be quick."""
        seconds = task.get("pollInterval", task.get("pollFrequency", 1000)) / 1000
        await asyncio.sleep(min(seconds, self._longest_poll_seconds or seconds))

    async def poll(self, task_id: str, until: Callable[[Result], bool]) -> Result:
        """Look at a task until it is as wished for, or has ended."""
        async with asyncio.timeout(self.seconds):
            while True:
                task = await self.get_task(task_id)
                if until(task) or task["status"] in TERMINAL:
                    return task
                await self.wait_between_polls(task)

    async def finish_task(self, task_id: str, answers: Answers | None = None) -> FinishedTask:
        """Follow a task to its end, answer what it asks by `tasks/input_response`, and fetch its result.

        Without answers questions are left to somebody else.
        """
        return await self._finish_task(task_id, answers, lambda: answers is not None)

    async def _finish_task(self, task_id: str, answers: Answers | None, may_answer: Callable[[], bool]) -> FinishedTask:
        async with asyncio.timeout(self.seconds):
            while True:
                task = await self.poll(task_id, lambda task: task["status"] == "input_required" and may_answer())
                if task["status"] in TERMINAL:
                    return await self._fetch(task)
                await self.answer_pending(task_id, answers or {})
                await self.wait_between_polls(task)

    async def _fetch(self, task: Result) -> FinishedTask:
        try:
            reply = await self.task_result(task["taskId"])
        except RpcError as error:
            return FinishedTask(task, error=error)
        return FinishedTask(task, reply.result)

    async def answer_pending(self, task_id: str, answers: Answers) -> None:
        """Ask what a task that is `input_required` needs, and hand it in. Somebody else may have been quicker."""
        questions = await self.pending_questions(task_id)
        if questions:
            await self.answer_task(task_id, await wrapped_answers(questions, answers))

    async def pending_questions(self, task_id: str) -> Mapping[str, Any]:
        """Return the `inputRequests` of a task; none if it has moved on.

        The words of the first form have them in the error that says that there is no result yet.
        """
        try:
            result = (await self.task_result(task_id)).result
        except RpcError as error:
            result = error.data if isinstance(error.data, dict) else {}
        questions: Mapping[str, Any] = result.get("inputRequests", {})
        return questions

    def _task_params(self, task_id: str) -> dict[str, Any]:
        """Return what names a task; in the first form's words `_meta` names it too."""
        params: dict[str, Any] = {"taskId": task_id}
        if task_id in self._first_form_ids:
            params["_meta"] = {FIRST_FORM_RELATED_TASK: {"taskId": task_id}}
        return params

    # The first form of tasks.

    def speak_first_form(self, task_id: str) -> None:
        """Use the first form's words for a task that another client has made."""
        self._first_form_ids.add(task_id)

    async def call_first_form(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        task_id: str | None = None,
        keep_alive: float | None = None,
        answers: Answers | None = None,
        answer_by_polling: bool = False,
        leave_when_created: bool = False,
    ) -> FirstFormCall:
        """Call a tool with task metadata, and take the result that comes first: the response's, or that of polling.

        Polling begins with `notifications/tasks/created`. A server without tasks never sends it: its response counts.

        Args:
            task_id: of the task; None makes one up.
            keep_alive: how many milliseconds the result is wanted after the end.
            answers: what the user says, see `answer_to`.
            answer_by_polling: answer with `tasks/input_response` and leave the requests on the stream unanswered. That
                is what happens anyway when the stream has ended.
            leave_when_created: break the connection as soon as there is a task.

        Raises:
            BrokenError: the connection ended before there was a task.
            RpcError: `tasks/get` refuses.
        """
        call = FirstFormCall(task_id or str(uuid.uuid4()))
        self._first_form_ids.add(call.task_id)
        wish = {"taskId": call.task_id, **({} if keep_alive is None else {"keepAlive": keep_alive})}
        params = call_params(name, arguments, meta={FIRST_FORM_TASK: wish})
        stream_answers = None if answer_by_polling else answers
        stream_is_gone = asyncio.Event()

        async def read_stream() -> None:
            try:
                await self._read_first_form(call, params, stream_answers, leave_when_created)
            except BrokenError:
                if not call.created.is_set():
                    raise
            if not call.won_by:
                stream_is_gone.set()
                await asyncio.Event().wait()

        async def poll() -> None:
            await call.created.wait()
            finished = await self._finish_task(
                call.task_id, answers, lambda: answers is not None and (answer_by_polling or stream_is_gone.is_set())
            )
            call.won_by, call.task = "polling", finished.task
            call.result, call.error = finished.result, finished.error

        async with asyncio.timeout(self.seconds):
            await first_to_finish(read_stream(), poll())
        return call

    async def _read_first_form(
        self, call: FirstFormCall, params: Mapping[str, Any], answers: Answers | None, leave_when_created: bool
    ) -> None:
        """Read the stream to the response, or until it is time to break it."""
        async with self.asking("tools/call", params) as (request_id, exchange):
            async for message in exchange.messages:
                if is_response(message):
                    call.won_by = "response"
                    try:
                        call.result = read_response(exchange, message, request_id)
                    except RpcError as error:
                        call.error = error
                    return
                if message["method"] == "notifications/tasks/created":
                    if related_task_id(message["params"], FIRST_FORM_RELATED_TASK) != call.task_id:
                        raise ProtocolError(f"the task created is another one: {message}")
                    call.created.set()
                    if leave_when_created:
                        return
                await self.hear(message, exchange, answers)
        raise ended_early(exchange)
