"""The 2026-07-28 wire as a client speaks it: requests with matching headers, and the meaning of answers. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import msgspec

PROTOCOL_VERSION: Final = "2026-07-28"
PATH: Final = "/mcp"
REPLICA_HEADER: Final = "x-gateway-replica"
EVENT_STREAM: Final = "text/event-stream"
TASKS: Final = "io.modelcontextprotocol/tasks"
META_PROGRESS: Final = "dev.sealedgateway/progress"

Outcome: TypeAlias = Literal["completed", "input_required", "shed", "task_created", "refused", "failed", "wrong"]
Meaning: TypeAlias = Callable[[Mapping[str, Any]], tuple[Outcome, str]]
"""Returns the outcome of a leg with this result, and what is wrong with the result."""

_META: Final = "io.modelcontextprotocol"
_CLIENT_INFO: Final = {"name": "loadtest", "version": "1"}
_REFUSED: Final = frozenset({429, 503})
_BROKEN_GATEWAYS: Final = frozenset({502, 504})

STORE_SILENT: Final = "-31004"
"""The reason when the task store did not answer in time: the error's code."""

STORE_AWAY: Final = "store unreachable"
"""The reason when the task store cannot be reached. The error has the code of an overload."""

_STORE_AWAY_CODE: Final = -31001
_STORE_AWAY_MESSAGE: Final = "The task store is not available"

_REFERENCE: Final = re.compile(r" \(reference \w+\)")
_STATE_REFUSED: Final = (
    b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32602,"message":"Invalid or expired requestState",'
    b'"data":{"reason":"invalid_request_state"}}}'
)


@dataclass(frozen=True, slots=True)
class Request:
    """One request, before it has an id.

    Attributes:
        method: the JSON-RPC method.
        params: its parameters without `_meta`.
        name: the value of its `Mcp-Name` header; empty for methods without one.
        tasks: whether the client declares that it can follow tasks.
        progress: whether it asks for progress.
    """

    method: str
    params: Mapping[str, Any]
    name: str = ""
    tasks: bool = False
    progress: bool = False

    def body(self, request_id: int) -> bytes:
        """Return the message as JSON; the id is also the progress token."""
        capabilities: dict[str, Any] = {"elicitation": {}}
        if self.tasks:
            capabilities["extensions"] = {TASKS: {}}
        meta: dict[str, Any] = {
            f"{_META}/protocolVersion": PROTOCOL_VERSION,
            f"{_META}/clientInfo": _CLIENT_INFO,
            f"{_META}/clientCapabilities": capabilities,
        }
        if self.progress:
            meta["progressToken"] = request_id
        return msgspec.json.encode(
            {"jsonrpc": "2.0", "id": request_id, "method": self.method, "params": {**self.params, "_meta": meta}}
        )

    def headers(self, token: str = "") -> dict[str, str]:
        """Return the headers that match the message, with a bearer token if there is one."""
        headers = {**common_headers(PROTOCOL_VERSION, token), "Mcp-Method": self.method}
        if self.name:
            headers["Mcp-Name"] = self.name
        return headers

    def is_last(self, message: Mapping[str, Any]) -> bool:
        """Whether a message on the stream is the last one; all messages before it are notices."""
        return "result" in message or "error" in message


def common_headers(version: str, token: str) -> dict[str, str]:
    """Return the headers that all wires have, with a bearer token unless that is empty."""
    headers = {
        "Content-Type": "application/json",
        "Accept": f"application/json, {EVENT_STREAM}",
        "Accept-Encoding": "identity",
        "MCP-Protocol-Version": version,
    }
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return headers


def call_tool(
    tool: str,
    arguments: Mapping[str, Any],
    *,
    state: str = "",
    answers: Mapping[str, Mapping[str, Any]] | None = None,
    tasks: bool = False,
    progress: bool = False,
) -> Request:
    """Return a leg of a tool's call.

    Args:
        tool: its name.
        arguments: the same in each leg of the call.
        state: the one that the previous leg returned.
        answers: the content of the forms that it asked for, by key.
        tasks: whether the call may become a task.
        progress: whether to ask for progress.
    """
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    if answers:
        params["inputResponses"] = _accepted(answers)
    if state:
        params["requestState"] = state
    return Request("tools/call", params, tool, tasks, progress)


def get_task(task_id: str) -> Request:
    """Return a request for the state of a task."""
    return Request("tasks/get", {"taskId": task_id}, task_id, tasks=True)


def update_task(task_id: str, answers: Mapping[str, Mapping[str, Any]]) -> Request:
    """Return a request that answers a task's questions, by key."""
    return Request("tasks/update", {"taskId": task_id, "inputResponses": _accepted(answers)}, task_id, tasks=True)


def listen(task_ids: Sequence[str]) -> Request:
    """Return a request for notifications about tasks."""
    return Request("subscriptions/listen", {"notifications": {"taskIds": list(task_ids)}}, tasks=True)


def _accepted(answers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {key: {"action": "accept", "content": content} for key, content in answers.items()}


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to one request.

    Attributes:
        status: the HTTP status, 0 if the connection was lost before the reply was complete.
        body: one JSON-RPC message: the whole body, or the last event of a stream.
        notices: the messages of a stream before its last one.
        replica: the name of the replica that answered.
        retry_after: the seconds to wait before a retry, if the reply says so.
    """

    request_id: int
    status: int
    body: bytes = b""
    notices: Sequence[Mapping[str, Any]] = ()
    replica: str = ""
    retry_after: float = 1.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The meaning of a reply.

    Attributes:
        outcome: how the leg ended.
        reason: why it was refused, failed or is wrong.
        result: the result, if there is one.
    """

    outcome: Outcome
    reply: Reply
    reason: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def lost(self) -> bool:
        """Whether the fate of the request is unknown: it was sent, and no replica's reply arrived."""
        return self.outcome == "failed" and (self.reply.status == 0 or self.reply.status in _BROKEN_GATEWAYS)

    @property
    def state(self) -> str:
        """The state for the next leg."""
        return str(self.result.get("requestState") or "")

    @property
    def questions(self) -> Mapping[str, Any]:
        """The questions, by key."""
        return self.result.get("inputRequests") or {}

    @property
    def texts(self) -> list[str]:
        """The text blocks of a tool's result."""
        return texts_of(self.result)

    @property
    def progress(self) -> list[Mapping[str, Any]]:
        """The progress notifications in order, about this request or about the task that was listened to."""
        told = [params_of(notice) for notice in self.reply.notices]
        mine = [params for params in told if params.get("progressToken") == self.reply.request_id]
        return mine or [params["_meta"][META_PROGRESS] for params in told if META_PROGRESS in params.get("_meta", ())]


def texts_of(result: Mapping[str, Any]) -> list[str]:
    """Return the text blocks of a tool's result."""
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    return [str(block.get("text")) for block in blocks if isinstance(block, dict) and block.get("type") == "text"]


def error_text(result: Mapping[str, Any]) -> str:
    """Return the text of a tool's error, without the reference that differs each time."""
    return _REFERENCE.sub("", " ".join(texts_of(result))) or "the tool failed"


def tells_of_task(message: Mapping[str, Any], task_id: str) -> bool:
    """Whether a message of a stream is about this task; its `params` are the task."""
    return message.get("method") == "notifications/tasks" and params_of(message).get("taskId") == task_id


def params_of(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of a message; empty unless they are an object."""
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def author_key(key: str) -> str:
    """Return the key that the tool's author chose; on the wire a repeated question has the suffix `~2`, `~3`."""
    return key.partition("~")[0]


def read_event(block: bytes) -> bytes:
    """Return the message in an event of a stream; empty for a comment."""
    return b"".join(line.removeprefix(b"data:").strip() for line in block.splitlines() if line.startswith(b"data:"))


def read_answer(reply: Reply) -> Answer:
    """Return the meaning of a reply. It never raises: anything that breaks the protocol is a `wrong` answer."""
    return read_result(reply, _meaning)


def read_result(reply: Reply, meaning: Meaning) -> Answer:
    """Return the meaning of a reply on a wire whose results `meaning` reads. It never raises."""
    if reply.status == 0:
        return Answer("failed", reply, "connection")
    message = decode(reply.body)
    error = error_of(message)
    reason = refusal(error) or str(reply.status)
    if reply.status in _REFUSED or (reply.status in _BROKEN_GATEWAYS and reason == STORE_SILENT):
        return Answer("refused", reply, reason)
    if error or reply.status != 200:
        return Answer("failed", reply, f"{error.get('code', reply.status)} {error.get('message', '')}".strip())
    result = message.get("result")
    if not isinstance(result, dict) or message.get("id") != reply.request_id or message.get("jsonrpc") != "2.0":
        return Answer("wrong", reply, "not the response to this request")
    outcome, reason = meaning(result)
    return Answer(outcome, reply, reason, result)


def refusal(error: Mapping[str, Any]) -> str:
    """Return the reason for a refusal from the error of the reply; empty if it is not a refusal."""
    code = error.get("code")
    if code == _STORE_AWAY_CODE and error.get("message") == _STORE_AWAY_MESSAGE:
        return STORE_AWAY
    return "" if code is None else str(code)


def _meaning(result: Mapping[str, Any]) -> tuple[Outcome, str]:
    match result.get("resultType"):
        case "complete" if result.get("isError"):
            return "failed", error_text(result)
        case "complete":
            return "completed", ""
        case "input_required" if result.get("inputRequests") and isinstance(result["inputRequests"], dict):
            return "input_required", ""
        case "input_required" if isinstance(result.get("requestState"), str) and not result.get("inputRequests"):
            return "shed", ""
        case "task" if isinstance(result.get("taskId"), str):
            return "task_created", ""
        case other:
            return "wrong", f"an incomplete result of type {other!r}"


def read_state_refusal(reply: Reply) -> Answer:
    """Check that a reply is the refusal that every bad state gets, to the byte; anything else is `wrong`."""
    answer = read_answer(reply)
    if answer.lost or answer.outcome == "refused":
        return answer
    if (reply.status, reply.body) == (400, _STATE_REFUSED % reply.request_id):
        return Answer("completed", reply, "-32602")
    return Answer("wrong", reply, f"a bad state was answered with {reply.status}, {answer.outcome} {answer.reason}")


def decode(body: bytes) -> dict[str, Any]:
    """Return a JSON object; empty if the body is not one."""
    try:
        message = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return message if isinstance(message, dict) else {}


def error_of(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the error of a response; empty if it has none."""
    error = message.get("error")
    return error if isinstance(error, dict) else {}
