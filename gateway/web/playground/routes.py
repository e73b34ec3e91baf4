"""The routes of the playground: the page, its files, how it reaches the gateway, and the caller's tasks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from fastapi import FastAPI, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from gateway.errors import GatewayError
from gateway.protocol.versions import RELEASED
from gateway.tasks.model import TaskView
from gateway.web.errors import to_http
from gateway.web.playground.files import PAGE, StaticFile, read_files

BASE_PATH: Final = "/playground"

MAX_TASKS: Final = 200
"""The most tasks in one answer, newest first."""


class Config(BaseModel):
    """How the page reaches the gateway."""

    name: Annotated[str, Field(description="The name of the server, for people.")]
    version: Annotated[str, Field(description="The version of the gateway.")]
    wire: Annotated[str, Field(description="The protocol version that the page speaks.")] = RELEASED
    auth: Annotated[Literal["none", "bearer"], Field(description="Whether calls need a bearer token.")]
    fleet: Annotated[bool, Field(description="Whether this page can see and control replicas.")]
    tasks: Annotated[bool, Field(description="Whether there is a task store.")]


class ListedTask(BaseModel):
    """One task of the caller, in brief, in the protocol's own spelling."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)

    task_id: str
    tool: str
    phase: Literal["queued", "running", "waiting", "done", "cancelled"]
    failed: bool
    created_at: Annotated[int, Field(description="Milliseconds since the epoch.")]
    updated_at: Annotated[int, Field(description="Milliseconds since the epoch.")]
    expires_at: Annotated[int, Field(description="Milliseconds since the epoch.")]


class ListedTasks(BaseModel):
    """The caller's tasks, newest first."""

    tasks: list[ListedTask]


class Upstream(BaseModel):
    """Another MCP server behind this one."""

    name: str
    prefix: Annotated[str, Field(description="Begins the names of its tools; empty for at most one.")]


class ShownUpstreams(BaseModel):
    """The other MCP servers behind this one, in the order of their configuration."""

    upstreams: list[Upstream]


@dataclass(frozen=True, slots=True)
class Playground:
    """The interface of the routes to the replica.

    `upstreams` are the other servers behind this one. `tasks` gets the caller's `Authorization` header; it is None
    without a task store. Both raise `GatewayError` if the caller is refused, and `tasks` if the store does not answer.
    """

    config: Callable[[], Config]
    upstreams: Callable[[str | None], Awaitable[list[Upstream]]]
    tasks: Callable[[str | None], Awaitable[Sequence[TaskView]]] | None


def add_playground(site: FastAPI, playground: Playground) -> None:
    """Add the routes of the playground to an application."""
    files = read_files()
    _add_file(site, "/", files[PAGE])
    for path, file in files.items():
        _add_file(site, f"{BASE_PATH}/{path}", file)

    @site.get(f"{BASE_PATH}/config")
    async def config(response: Response) -> Config:
        response.headers["cache-control"] = "no-store"
        return playground.config()

    @site.get(f"{BASE_PATH}/upstreams")
    async def upstreams(response: Response, authorization: Annotated[str | None, Header()] = None) -> ShownUpstreams:
        response.headers["cache-control"] = "no-store"
        return ShownUpstreams(upstreams=await playground.upstreams(authorization))

    read_tasks = playground.tasks
    if read_tasks is not None:

        @site.get(f"{BASE_PATH}/tasks")
        async def tasks(
            response: Response,
            authorization: Annotated[str | None, Header()] = None,
            limit: Annotated[int, Query(ge=1, le=MAX_TASKS)] = MAX_TASKS,
        ) -> ListedTasks:
            response.headers["cache-control"] = "no-store"
            views = await read_tasks(authorization)
            return ListedTasks(tasks=[_listed(view) for view in views[:limit]])

    @site.exception_handler(GatewayError)
    async def refuse(_request: Request, error: GatewayError) -> Response:
        status, headers, body = to_http(error, None)
        response = Response(body, status)
        response.raw_headers = [*headers, (b"content-length", str(len(body)).encode())]
        return response


def _add_file(site: FastAPI, path: str, file: StaticFile) -> None:
    headers = {"etag": file.etag, "cache-control": "no-cache"}

    async def serve(if_none_match: Annotated[str, Header()] = "") -> Response:
        if file.etag in if_none_match:
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers={**headers, "content-type": file.content_type})

    site.add_api_route(path, serve, methods=["GET", "HEAD"], response_class=Response, include_in_schema=False)


def _listed(view: TaskView) -> ListedTask:
    result: Any = view.result or {}
    return ListedTask(
        task_id=view.task_id,
        tool=view.tool,
        phase=view.phase.value,
        failed=view.error is not None or bool(result.get("isError")),
        created_at=view.created_ms,
        updated_at=view.updated_ms,
        expires_at=view.expires_ms,
    )
