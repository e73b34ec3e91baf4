"""What requests and results of the draft wire look like, for its reference client."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from tests.wires.draft.transport import BrokenError, Exchange, HttpError, Message, ProtocolError, RpcError

VERSION: Final = "DRAFT-2026-v1"
MODES: Final = ("task", "immediate", "streaming")
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
FIRST_FORM_TASK: Final = "modelcontextprotocol.io/task"
FIRST_FORM_RELATED_TASK: Final = "modelcontextprotocol.io/related-task"
TERMINAL: Final = frozenset({"completed", "failed", "cancelled", "unknown"})
STATUSES: Final = TERMINAL | {"submitted", "working", "input_required"}
CAPABILITIES: Final[Mapping[str, Any]] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {},
    "roots": {},
    "tasks": {"responses": {"modes": list(MODES)}},
}
MAX_LEGS: Final = 40
"""More legs than any call needs: what takes more goes round in circles."""

Result: TypeAlias = dict[str, Any]
Answers: TypeAlias = Mapping[str, Any]
"""An answer of the user, or of the client. See `answer_to`."""


def accept(**content: Any) -> Result:
    """Return the result of a form that the user has filled in."""
    return {"action": "accept", "content": content}


class Refusal(dict[str, Any]):
    """An answer that is a JSON-RPC error instead of a result."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code=code, message=message)


async def answer_to(request: Mapping[str, Any], answers: Answers, key: str = "") -> Result:
    """Return the response to what the server asks, without what makes it a message: `result` or `error`.

    A request on a stream has no key, so its answer is found by a property of its form, or by its method.

    Args:
        answers: results, `Refusal`s, or functions (async ones too) that make one of the question; by the question's
            key, else by a property of its form, else by its method.

    Raises:
        ProtocolError: nobody has an answer to this question.
    """
    properties = request.get("params", {}).get("requestedSchema", {}).get("properties", {})
    for name in (key, *properties, request.get("method", "")):
        if name in answers:
            answer = answers[name]
            made = answer(request) if callable(answer) else answer
            said = await made if inspect.isawaitable(made) else made
            return {"error" if isinstance(said, Refusal) else "result": dict(said)}
    raise ProtocolError(f"no answer to the question {key!r}: {request}")


async def wrapped_answers(questions: Mapping[str, Any], answers: Answers) -> dict[str, Any]:
    """Return the `inputResponses` to some `inputRequests`."""
    return {key: await answer_to(request, answers, key) for key, request in questions.items()}


def is_response(message: Mapping[str, Any]) -> bool:
    return "result" in message or "error" in message


def is_incomplete(result: Mapping[str, Any]) -> bool:
    """Whether a result says that the request has to be sent again."""
    return "inputRequests" in result or "requestState" in result


def related_task_id(message: Mapping[str, Any], key: str = RELATED_TASK) -> str | None:
    """Return the task that the `_meta` of a result or of parameters names."""
    task_id: str | None = message.get("_meta", {}).get(key, {}).get("taskId")
    return task_id


def call_params(
    name: str,
    arguments: Mapping[str, Any] | None = None,
    task: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the parameters of the first leg of a tool's call."""
    params: dict[str, Any] = {"name": name, "arguments": dict(arguments or {})}
    if task is not None:
        params["task"] = dict(task)
    if meta is not None:
        params["_meta"] = dict(meta)
    return params


async def retry_params(result: Mapping[str, Any], answers: Answers) -> dict[str, Any]:
    """Return what a request needs besides its own parameters after an incomplete result, and nothing else."""
    params: dict[str, Any] = {}
    if "inputRequests" in result:
        params["inputResponses"] = await wrapped_answers(result["inputRequests"], answers)
    if "requestState" in result:
        params["requestState"] = result["requestState"]
    return params


def read_response(exchange: Exchange, message: Message, request_id: int | None = None) -> Result:
    """Return the result of the response to a request, or raise its error."""
    if "error" in message and message.get("id") in (request_id, None):
        raise RpcError(exchange.status, message["error"])
    if message.get("id") != request_id or exchange.status != 200 or not isinstance(message.get("result"), dict):
        raise ProtocolError(f"not the response to request {request_id}: HTTP status {exchange.status}, {message}")
    result: Result = message["result"]
    return result


def ended_early(exchange: Exchange) -> BrokenError | HttpError:
    """Return the error of an answer that has ended without a response."""
    return (
        BrokenError(f"{exchange.url} has ended the stream early")
        if exchange.status == 200
        else HttpError(exchange.status)
    )


def read_task(task: Mapping[str, Any]) -> Result:
    """Return a task that has an id and a status that exists."""
    if not isinstance(task.get("taskId"), str) or task.get("status") not in STATUSES:
        raise ProtocolError(f"not a task: {task}")
    return dict(task)
