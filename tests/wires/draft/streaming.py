"""One call whose result may come in segments: read from the stream, watched by polling, and resumed after a break."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tests.wires.draft.messages import (
    MAX_LEGS,
    TERMINAL,
    Answers,
    Result,
    is_incomplete,
    is_response,
    read_response,
    related_task_id,
    retry_params,
)
from tests.wires.draft.racing import first_to_finish
from tests.wires.draft.segments import SegmentTracker
from tests.wires.draft.transport import BrokenError, Exchange, Message, ProtocolError, RpcError

if TYPE_CHECKING:
    from tests.wires.draft.client import DraftClient

FALLBACK_MODE: Final = "io.modelcontextprotocol/fallback-mode"
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
GRACE_SECONDS: Final = 5.0
"""How long a stream may stay open after polling has shown that its task has ended."""


@dataclass(slots=True)
class StreamedCall:
    """A call as its client sees it.

    Attributes:
        mode: how the server has answered: `immediate`, `streaming` or `task`.
        fallback: whether it says that it has fallen back to `task`.
        tracker: the segments; None unless they were streamed.
        result: the tool's result in the ordinary form; None if it is incomplete or an error.
        error: the JSON-RPC error with which the task has failed.
        ending: `completed`, `failed`, `cancelled`, or `expired`, when the task was gone before its result was complete.
        resumed_after: each `lastSeqNr` that was sent.
    """

    mode: str = ""
    fallback: bool = False
    task_id: str = ""
    request_id: int = 0
    tracker: SegmentTracker | None = None
    result: Result | None = None
    error: RpcError | None = None
    ending: str = ""
    resumed_after: list[int] = field(default_factory=list)

    @property
    def is_told(self) -> bool:
        """Whether the server has said that nothing more comes."""
        return self.result is not None or (self.tracker is not None and self.tracker.is_complete)


OnResponse: TypeAlias = Callable[[StreamedCall], Awaitable[None]]


class Streaming:
    """Runs one call for the client; its arguments are those of `DraftClient.stream_tool`."""

    def __init__(
        self, client: DraftClient, answers: Answers | None, break_after: int | None, on_response: OnResponse | None
    ) -> None:
        self._client = client
        self._answers = answers
        self._break_after = break_after
        self._on_response = on_response
        self._call = StreamedCall()
        self._task_is_known = asyncio.Event()
        self._url: str | None = None

    async def run(self, params: Mapping[str, Any]) -> StreamedCall:
        """Send the legs of the call, then fetch what they have not brought."""
        retry: Mapping[str, Any] = {}
        for _ in range(MAX_LEGS):
            incomplete = await first_to_finish(self._read({**params, **retry}), self._watch())
            if incomplete is None:
                await self._end()
                return self._call
            retry = await retry_params(incomplete, self._answers or {})
        raise ProtocolError(f"no end after {MAX_LEGS} legs")

    # The stream.

    async def _read(self, params: Mapping[str, Any]) -> Result | None:
        """Take in what one leg's answer brings; return its incomplete result, if that is what it is."""
        incomplete: Result | None = None
        try:
            async with self._client.asking("tools/call", params, after=self._url) as (request_id, exchange):
                self._call.request_id, self._url = request_id, exchange.url
                async for message in exchange.messages:
                    if self._call.is_told or incomplete is not None:
                        raise ProtocolError(f"after the last response comes {message}")
                    incomplete = await self._read_message(exchange, message)
                    if self._has_to_break():
                        return None
        except BrokenError:
            if not self._call.task_id:
                raise
        if not (incomplete or self._call.mode):
            raise BrokenError(f"{self._url} has ended the answer without a response")
        return incomplete

    async def _read_message(self, exchange: Exchange, message: Message) -> Result | None:
        if not is_response(message):
            await self._client.hear(message, exchange, self._answers)
            return None
        result = read_response(exchange, message, self._call.request_id)
        if is_incomplete(result):
            return result
        self._take(result)
        if self._on_response is not None:
            await self._on_response(self._call)
        return None

    def _take(self, result: Result) -> None:
        call = self._call
        call.fallback = call.fallback or result.get("_meta", {}).get(FALLBACK_MODE) == "task"
        self._learn_task(result)
        if "partial-content" in result:
            call.mode = "streaming"
            call.tracker = call.tracker or SegmentTracker(call.task_id)
            call.tracker.add(self._cut(result, call.tracker))
        elif "task" in result:
            call.mode = call.mode or "task"
        elif "content" not in result:
            raise ProtocolError(f"neither content nor segments nor a task: {result}")
        else:
            self._take_content(result)

    def _learn_task(self, result: Result) -> None:
        task_id = result.get("task", {}).get("taskId") or related_task_id(result)
        if self._call.task_id and task_id not in (None, self._call.task_id):
            raise ProtocolError(f"the response belongs to another task: {result}")
        if task_id is not None:
            self._call.task_id = task_id
            self._task_is_known.set()
        elif not self._call.task_id and "partial-content" in result:
            raise ProtocolError(f"nobody knows the task of this streaming response: {result}")

    def _take_content(self, result: Result) -> None:
        """Take a complete result, which ends a stream only as the error of a task that has no segments to show."""
        if self._call.mode and not (result.get("isComplete") is True and result.get("isError") is True):
            raise ProtocolError(f"`content` in a streaming answer that is no error, or not the last: {result}")
        self._call.mode = self._call.mode or "immediate"
        self._call.result = result

    def _cut(self, result: Result, tracker: SegmentTracker) -> Result:
        """Drop what comes after the segment after which the connection has to break."""
        blocks = result["partial-content"]
        if self._break_after is None or not isinstance(blocks, list):
            return result
        room = max(0, self._break_after - len(tracker.segments))
        return result if len(blocks) <= room else {**result, "partial-content": blocks[:room], "isComplete": False}

    def _has_to_break(self) -> bool:
        call = self._call
        if self._break_after is None or not call.task_id:
            return False
        return (len(call.tracker.segments) if call.tracker else 0) >= self._break_after

    # Polling.

    async def _watch(self) -> None:
        """Watch the task while the stream is open, and return when there is no need to read on."""
        await self._task_is_known.wait()
        while True:
            task = await self._look()
            if task is None:
                return
            if task["status"] in TERMINAL:
                await asyncio.sleep(GRACE_SECONDS)
                return
            await self._client.wait_between_polls(task)

    async def _look(self) -> Result | None:
        """Return how the task is, having answered what it asks; None if it is gone."""
        task = await self._task()
        if task is not None and task["status"] == "input_required" and self._answers is not None:
            await self._client.answer_pending(self._call.task_id, self._answers)
        return task

    async def _task(self) -> Result | None:
        try:
            return await self._client.get_task(self._call.task_id)
        except RpcError as error:
            if error.code != INVALID_PARAMS:
                raise
            return None

    # What the stream has not brought.

    async def _end(self) -> None:
        """Fetch what is missing, and find out how the call has ended."""
        try:
            await self._fetch()
        except RpcError:
            if await self._task() is not None:
                raise
            self._call.ending = "expired"
            return
        await self._find_ending()

    async def _fetch(self) -> None:
        call = self._call
        if call.result is not None:
            return
        if call.tracker is None:
            await self._fetch_final()
            return
        while not call.tracker.whole and call.result is None:
            await self._resume(call.tracker)
        if call.result is None:
            call.result = {"content": call.tracker.merged(), "isError": call.tracker.is_error}

    async def _resume(self, tracker: SegmentTracker) -> None:
        """Ask for the segments that come after the last one before a gap."""
        if not tracker.last_seq_nr:
            await self._fetch_final()  # there is no number to continue from
            return
        was_complete = tracker.is_complete
        self._call.resumed_after.append(tracker.last_seq_nr)
        try:
            reply = await self._client.task_result(self._call.task_id, last_seq_nr=tracker.last_seq_nr, after=self._url)
        except BrokenError:
            self._url = None
            await self._client.wait_between_polls({})
            return
        except RpcError as error:
            if error.code != INTERNAL_ERROR:
                raise
            await self._fetch_final()  # this server cannot resume
            return
        self._url = reply.url
        if "partial-content" not in reply.result:
            self._take_content(reply.result)
        elif not tracker.add(reply.result) and was_complete:
            raise ProtocolError(f"the segments {tracker.missing} are missing for good")
        elif not tracker.is_complete and (task := await self._look()) is not None:
            await self._client.wait_between_polls(task)

    async def _fetch_final(self) -> None:
        """Wait for the end of the task, and fetch its whole result."""
        finished = await self._client.finish_task(self._call.task_id, self._answers)
        self._call.result, self._call.error, self._call.ending = finished.result, finished.error, finished.status

    async def _find_ending(self) -> None:
        """Ask how the task has ended: its status may become terminal a little after its last response."""
        call = self._call
        if not call.ending and call.task_id and (task := await self._task()) is not None:
            while task is not None and task["status"] not in TERMINAL:
                await self._client.wait_between_polls(task)
                task = await self._task()
            call.ending = "" if task is None else task["status"]
        if not call.ending:
            call.ending = "failed" if call.result and call.result.get("isError") else "completed"
