"""Tasks of the first form, and how others wait for them and are refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeAlias

import pytest

from tests.wires.draft.client import DraftClient
from tests.wires.draft.deployment import Deployment
from tests.wires.draft.messages import FIRST_FORM_RELATED_TASK, FIRST_FORM_TASK, accept, call_params
from tests.wires.draft.transport import Message, RpcError
from tests.wires.draft.under_way import UnderWay, under_way

ClientOf: TypeAlias = Callable[..., DraftClient]

INVALID_PARAMS: Final = -32602
NOT_FOUND: Final = "Failed to retrieve task: Task not found"
ADA: Final = {"result": accept(name="Ada")}
BOB: Final = {"result": accept(name="Bob")}


def related(task_id: str) -> dict[str, Any]:
    """Return the `_meta` of what belongs to a task."""
    return {FIRST_FORM_RELATED_TASK: {"taskId": task_id}}


def wish(
    tool: str, task_id: Any, arguments: Mapping[str, Any] | None = None, keep_alive: Any = 60_000
) -> dict[str, Any]:
    """Return the parameters of a call that is to become a task; a `keep_alive` of `...` is left out."""
    task = {"taskId": task_id, **({} if keep_alive is ... else {"keepAlive": keep_alive})}
    return call_params(tool, arguments, meta={FIRST_FORM_TASK: task})


def call(
    user: DraftClient, tool: str, task_id: str, /, keep_alive: Any = 60_000, **arguments: Any
) -> AbstractAsyncContextManager[UnderWay]:
    """Have a call under way that becomes a task."""
    user.speak_first_form(task_id)
    return under_way(user, "tools/call", wish(tool, task_id, arguments, keep_alive))


async def run(user: DraftClient, tool: str, task_id: str, /, keep_alive: Any = 60_000, **arguments: Any) -> Message:
    """Call a tool as a task, and return the response at its end."""
    async with call(user, tool, task_id, keep_alive, **arguments) as request:
        return await request.response()


async def leave(user: DraftClient, tool: str, task_id: str, /, keep_alive: Any = 60_000, **arguments: Any) -> None:
    """Create a task, and close the connection as soon as it is there."""
    async with call(user, tool, task_id, keep_alive, **arguments) as request:
        await request.created()


async def poll(user: DraftClient, task_id: str, status: str) -> dict[str, Any]:
    task = await user.poll(task_id, lambda task: task["status"] == status)
    assert task["status"] == status, task
    return task


async def poll_from_the_beginning(user: DraftClient, task_id: str, status: str) -> dict[str, Any]:
    """Wait until a task that may not exist yet has a status, for clients that get no notification of it."""
    async with asyncio.timeout(user.seconds):
        while True:
            with contextlib.suppress(RpcError):
                return await poll(user, task_id, status)
            await user.wait_between_polls({})


async def status_of(user: DraftClient, task_id: str) -> str:
    return str((await user.get_task(task_id))["status"])


async def until_unknown(user: DraftClient, task_id: str) -> RpcError:
    """Wait until a task is unknown, and return what says so."""
    async with asyncio.timeout(user.seconds):
        while True:
            try:
                task = await user.get_task(task_id)
            except RpcError as error:
                return error
            await user.wait_between_polls(task)


async def refusal(answer: Awaitable[object]) -> RpcError:
    """Return the error of a request that is refused for its parameters, as every error of this wire with 200."""
    with pytest.raises(RpcError) as caught:
        await answer
    assert (caught.value.status, caught.value.code) == (200, INVALID_PARAMS)
    return caught.value


def timeless(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task without what changes while nothing happens."""
    return {name: value for name, value in task.items() if name not in {"pollFrequency", "pollInterval"}}


def without_streams(client: DraftClient) -> DraftClient:
    """Let a client take JSON alone."""
    client.transport.headers["Accept"] = "application/json"
    return client


def in_session_of(client: DraftClient, other: DraftClient) -> DraftClient:
    """Let a client continue the session of another one."""
    assert other.session_id is not None
    client.transport.headers["Mcp-Session-Id"] = other.session_id
    return client


def other_url(fleet: Deployment, url: str) -> str:
    """Return a replica that is not this one."""
    return next(other for other in fleet.urls if other != url)
