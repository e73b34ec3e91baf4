"""The extension `io.modelcontextprotocol/tasks` for the official MCP client, which supports extensions but lacks this.

With it, `Client.call_tool` returns the result of a task if the tool becomes one; the client's own callbacks answer the
task's questions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import mcp_types
from mcp.client.context import ClientRequestContext
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field, TypeAdapter

META_PROGRESS = "dev.sealedgateway/progress"
INPUT_REQUEST: TypeAdapter[mcp_types.InputRequest] = TypeAdapter(mcp_types.InputRequest)


class CreatedTask(mcp_types.Result):
    """A call became a task (CreateTaskResult)."""

    result_type: Literal["task"] = Field(alias="resultType")
    task_id: str = Field(alias="taskId")
    status: str
    poll_interval_ms: int = Field(alias="pollIntervalMs", default=1000)


class Task(mcp_types.Result):
    """The result of `tasks/get` (DetailedTask)."""

    task_id: str = Field(alias="taskId")
    status: str
    status_message: str | None = Field(alias="statusMessage", default=None)
    poll_interval_ms: int = Field(alias="pollIntervalMs", default=1000)
    input_requests: dict[str, Any] = Field(alias="inputRequests", default_factory=dict)
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None

    @property
    def progress(self) -> Mapping[str, Any]:
        """How far it is, in numbers."""
        told: Mapping[str, Any] = (self.meta or {}).get(META_PROGRESS, {})
        return told


class TaskParams(mcp_types.RequestParams):
    """Names a task."""

    task_id: str = Field(alias="taskId")


class UpdateParams(TaskParams):
    """Names a task, and answers its questions."""

    input_responses: dict[str, Any] = Field(alias="inputResponses")


class GetTask(mcp_types.Request[TaskParams, Literal["tasks/get"]]):
    """Reads a task."""

    method: Literal["tasks/get"] = "tasks/get"
    name_param = "taskId"


class CancelTask(mcp_types.Request[TaskParams, Literal["tasks/cancel"]]):
    """Cancels a task."""

    method: Literal["tasks/cancel"] = "tasks/cancel"
    name_param = "taskId"


class UpdateTask(mcp_types.Request[UpdateParams, Literal["tasks/update"]]):
    """Answers a task's questions."""

    method: Literal["tasks/update"] = "tasks/update"
    name_param = "taskId"


async def get_task(session: ClientSession, task_id: str) -> Task:
    """Read a task."""
    return await session.send_request(GetTask(params=TaskParams(taskId=task_id)), Task)


async def cancel_task(session: ClientSession, task_id: str) -> None:
    """Cancel a task."""
    await session.send_request(CancelTask(params=TaskParams(taskId=task_id)), mcp_types.EmptyResult)


async def update_task(session: ClientSession, task_id: str, answers: Mapping[str, BaseModel]) -> None:
    """Answer a task's questions, by key."""
    responses = {
        key: answer.model_dump(by_alias=True, mode="json", exclude_none=True) for key, answer in answers.items()
    }
    params = UpdateParams(taskId=task_id, inputResponses=responses)
    await session.send_request(UpdateTask(params=params), mcp_types.EmptyResult)


class Tasks(ClientExtension):
    """Lets calls become tasks, and follows them to their end.

    Args:
        on_change: called with a task each time it has changed.
    """

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, on_change: Callable[[Task], None] = lambda _task: None) -> None:
        self._on_change = on_change

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Claim the results of calls that became tasks."""
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=self._see_through)]

    async def _see_through(self, created: CreatedTask, context: ClaimContext) -> mcp_types.CallToolResult:
        session = context.session
        seen: Task | None = None
        answered: set[str] = set()
        while True:
            task = await get_task(session, created.task_id)
            if task != seen:
                seen = task
                self._on_change(task)
            if task.result is not None:
                return mcp_types.CallToolResult.model_validate(task.result)
            if task.error is not None:
                raise MCPError(code=task.error["code"], message=task.error["message"], data=task.error.get("data"))
            if task.status == "cancelled":
                raise MCPError(code=mcp_types.INTERNAL_ERROR, message="the task was cancelled")
            questions = {key: value for key, value in task.input_requests.items() if key not in answered}
            if questions:
                await update_task(session, task.task_id, await _answers(session, questions))
                answered |= questions.keys()
            else:
                await asyncio.sleep(task.poll_interval_ms / 1000)


async def _answers(session: ClientSession, questions: Mapping[str, Any]) -> dict[str, BaseModel]:
    """Have the client's callbacks answer a task's questions."""
    answers: dict[str, BaseModel] = {}
    for key, question in questions.items():
        context = ClientRequestContext(session=session, request_id=key)
        answer = await session.dispatch_input_request(context, INPUT_REQUEST.validate_python(question))
        if isinstance(answer, mcp_types.ErrorData):
            raise MCPError.from_error_data(answer)
        answers[key] = answer
    return answers
