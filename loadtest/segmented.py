"""A call whose result comes in segments: read as they come, resumed after a break, compared with the whole result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import gevent

from loadtest import draft_wire
from loadtest.draft_wire import DraftRequest
from loadtest.legs import Legs
from loadtest.segments import Segments
from loadtest.wire import Answer, Reply

RESUME_SECONDS: Final = 0.5
"""The wait before the next request for further segments."""


class SegmentedCall:
    """One such call. If its stream breaks, `tasks/result` on any replica resumes it, and finally gets the whole result.

    Args:
        flow: the call's legs.
        breaks: called after each response with segments; returns whether to break the connection.
    """

    def __init__(self, flow: Legs, breaks: Callable[[], bool]) -> None:
        self._flow = flow
        self._breaks = breaks
        self._segments = Segments()
        self._state = ""
        self._problem: str | None = None

    def run(self) -> Answer:
        """Call the tool, and return the whole result. Without a task store that is the answer itself."""
        while True:
            answer = self._flow.leg(self._next(), "first", self._read, self._hear, again=self._next)
            if answer.outcome == "shed":
                self._state = answer.state
            elif "content" in answer.result:
                return answer
            elif answer.result and not self._segments.complete:
                self._flow.give_up_late_task()
                gevent.sleep(RESUME_SECONDS)

    def _next(self) -> DraftRequest:
        """Return the request that resumes after the segments read so far."""
        segments, errand = self._segments, self._flow.errand
        if not segments.task_id:
            return draft_wire.call_tool(errand.tool, errand.arguments, state=self._state)
        if segments.complete or not segments.blocks:
            return draft_wire.task_result(segments.task_id)
        self._flow.counts.resumes += 1
        return draft_wire.task_result(segments.task_id, after=len(segments.blocks))

    def _hear(self, message: Mapping[str, Any]) -> bool:
        """Handle a response that is not the last one; return whether to stop reading."""
        if isinstance(message.get("result"), dict) and self._take(message["result"]) and self._breaks():
            self._flow.counts.breaks += 1
            return True
        return self._problem is not None

    def _take(self, result: Mapping[str, Any]) -> bool:
        """Handle a response with segments; return whether it had any."""
        known, counts = len(self._segments.blocks), self._flow.counts
        self._problem = self._segments.add(result)
        counts.segments = len(self._segments.blocks)
        if counts.segments and counts.first_segment is None:
            counts.first_segment = self._flow.elapsed()
        self._flow.begin_task()
        return counts.segments > known

    def _read(self, reply: Reply) -> Answer:
        """Return the meaning of a reply, including the messages before its last one."""
        ended_early = reply.status == 200 and not reply.body and self._segments.task_id != ""
        answer = Answer("completed", reply) if ended_early else draft_wire.read_answer(reply)
        if self._problem is None and any(of_another(notice, reply.request_id) for notice in reply.notices):
            self._problem = "a response to another request"
        if self._problem is None and answer.outcome == "completed":
            if draft_wire.SEGMENTS in answer.result:
                self._take(answer.result)
            elif "content" in answer.result:
                self._problem = self._segments.differ_from(answer.result["content"])
                answer = self._flow.checked(answer)
        return answer if self._problem is None else Answer("wrong", reply, self._problem, answer.result)


def of_another(message: Mapping[str, Any], request_id: int) -> bool:
    """Whether a message is a response, but not to this request."""
    return "result" in message and message.get("id") != request_id
