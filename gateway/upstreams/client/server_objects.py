"""Makes an ASGI application of a server object, mostly by the object's own method.

No package of such objects is needed here, because they are recognised by what they offer. Those of fastmcp have
`http_app`, those of the MCP SDK `streamable_http_app`. Low-level servers of the SDK 1.x are recognised by how they run.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.upstreams.config.server_objects import ObjectFailure

_PATH: Final = "/mcp"
"""Where an object serves that lets us choose."""


class ServedObject(msgspec.Struct, frozen=True):
    """An ASGI application. `held` is a context in which it runs, with its lifespan."""

    app: ASGIApp
    held: Callable[[], AbstractAsyncContextManager[object]] = contextlib.nullcontext


def served_object(found: Any) -> ServedObject:
    """Return the application of an object.

    Raises:
        ObjectFailure: the object is not an MCP server.
    """
    if not isinstance(found, type):
        if callable(getattr(found, "http_app", None)):
            return ServedObject(_at(_PATH, found.http_app(path=_PATH)))
        if callable(getattr(found, "streamable_http_app", None)):
            return _of_sdk(found)
        if all(hasattr(found, name) for name in ("run", "lifespan", "create_initialization_options")):
            return _of_low_level_sdk1(found)
        if _is_asgi(found):
            return ServedObject(found)
    raise ObjectFailure(
        f"an object of type {type(found).__name__} is not an MCP server; name a server of fastmcp or of the MCP SDK, "
        "or an ASGI application"
    )


def _of_sdk(server: Any) -> ServedObject:
    if "streamable_http_path" in inspect.signature(server.streamable_http_app).parameters:
        return ServedObject(_at(_PATH, server.streamable_http_app(streamable_http_path=_PATH)))
    server._session_manager = None  # noqa: SLF001 - each can run once, and this has the next application make another
    app = server.streamable_http_app()
    low_level = server.session_manager.app
    return ServedObject(_at(server.settings.streamable_http_path, app), lambda: _one_lifespan(low_level))


def _of_low_level_sdk1(server: Any) -> ServedObject:
    manager = importlib.import_module("mcp.server.streamable_http_manager").StreamableHTTPSessionManager(server)
    app = Starlette(routes=[Mount("/", app=manager.handle_request)], lifespan=lambda _app: manager.run())
    return ServedObject(app, lambda: _one_lifespan(server))


@contextlib.asynccontextmanager
async def _one_lifespan(server: Any) -> AsyncIterator[None]:
    """Enter the lifespan of a low-level server, which the SDK 1.x would enter for each session."""
    original = server.lifespan
    async with original(server) as state:
        server.lifespan = lambda _server: contextlib.nullcontext(state)
        try:
            yield
        finally:
            server.lifespan = original


def _at(path: str, app: ASGIApp) -> ASGIApp:
    """Return an application that serves at any path what another one serves at this one."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "path": path, "raw_path": path.encode()}, receive, send)

    return served


def _is_asgi(found: object) -> bool:
    """Return whether an object can be called with a scope and two functions."""
    if not callable(found):
        return False
    try:
        inspect.signature(found).bind(*"abc")
    except (TypeError, ValueError):
        return False
    return True
