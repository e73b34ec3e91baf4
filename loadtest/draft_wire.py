"""The draft wire's results in segments, as a client sees them: requests and the meaning of answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from loadtest import wire
from loadtest.wire import Answer, Outcome, Reply, Request

VERSION: Final = "DRAFT-2026-v1"
SEGMENTS: Final = "partial-content"
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"

_REFUSED: Final = frozenset({-31001, -31003, -31004})
"""Codes of errors that a retry may avoid: overload, too many requests from the caller, no task store."""


@dataclass(frozen=True)
class DraftRequest(Request):
    """One request without a session, before it has an id."""

    def body(self, request_id: int) -> bytes:
        """Return the message as JSON."""
        message = {"jsonrpc": "2.0", "id": request_id, "method": self.method, "params": self.params}
        return msgspec.json.encode(message)

    def headers(self, token: str = "") -> dict[str, str]:
        """Return the headers of this wire, with a bearer token if there is one."""
        return wire.common_headers(VERSION, token)

    def is_last(self, message: Mapping[str, Any]) -> bool:
        """Whether a message on the stream is the last one; responses with segments come before it."""
        result = message.get("result")
        goes_on = isinstance(result, dict) and SEGMENTS in result and result.get("isComplete") is not True
        return super().is_last(message) and not goes_on


def call_tool(tool: str, arguments: Mapping[str, Any], *, state: str = "") -> DraftRequest:
    """Return a leg of a tool call that asks for its result in segments.

    Args:
        tool: its name.
        arguments: the same in each leg of the call.
        state: the one that the previous leg returned.
    """
    params: dict[str, Any] = {"name": tool, "arguments": arguments, "task": {"responseModes": ["streaming"]}}
    if state:
        params["requestState"] = state
    return DraftRequest("tools/call", params)


def task_result(task_id: str, after: int = 0) -> DraftRequest:
    """Return a request for the segments of a task's result after one of them, or for the whole result."""
    last = {"lastSeqNr": after} if after else {}
    return DraftRequest("tasks/result", {"taskId": task_id, **last})


def read_answer(reply: Reply) -> Answer:
    """Return the meaning of a reply. It never raises: anything that breaks the protocol is a `wrong` answer.

    On this wire a request that is refused for now gets status 200 as well; the error code shows the difference.
    """
    answer = wire.read_result(reply, _meaning)
    error = wire.error_of(wire.decode(reply.body))
    code = error.get("code")
    if answer.outcome == "failed" and type(code) is int and code in _REFUSED:
        return replace(answer, outcome="refused", reason=wire.refusal(error))
    return answer


def _meaning(result: Mapping[str, Any]) -> tuple[Outcome, str]:
    content = result.get(SEGMENTS, result.get("content"))
    if isinstance(content, list):
        return ("failed", wire.error_text({"content": content})) if result.get("isError") else ("completed", "")
    if isinstance(result.get("requestState"), str) and not result.get("inputRequests"):
        return "shed", ""
    return "wrong", "a result with neither content nor segments"
