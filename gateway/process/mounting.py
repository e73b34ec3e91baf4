"""`gateway.mount` and `gateway.draining`. They import what they need, such as FastAPI, when they are called."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI

    from gateway.process.app import GatewayApp


def mount(app: FastAPI, prefix: str, *, health: bool = True, metrics: bool = False, **settings: object) -> None:
    """Serve the gateway below a path of a FastAPI application while the application runs.

    After `gateway.mount(app, "/tools", tools="bugs")`, clients call `/tools/mcp`. Tools are loaded when the application
    starts.

    Args:
        app: the application that the server runs. An application that is itself mounted in another one never starts.
        prefix: the path, such as `/tools`.
        health: whether to serve `/healthz` and `/readyz` below the prefix.
        metrics: whether to serve `/metrics` below the prefix, to anyone who can reach an allowed host.
        settings: settings by name, in lower case and without `GATEWAY_`. All others come from the environment.

    Raises:
        ConfigurationError: a setting is wrong or missing, or the path is taken. The message says what to change.
    """
    from gateway.process.mounted import add  # noqa: PLC0415 - it loads FastAPI

    add(app, prefix, health=health, metrics=metrics, settings=settings)


def draining() -> None:
    """Start draining every gateway of this process. Call it when the process is asked to stop.

    A server such as uvicorn waits for open connections before it stops an application. So this ends open streams, sheds
    calls at their checkpoints, and refuses new ones; `/readyz` returns 503. You can call it in a signal handler, from
    any thread, and more than once.
    """
    from gateway.process.app import running_apps  # noqa: PLC0415 - the same

    for app, loop in tuple(running_apps.items()):
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing is left to end
            loop.call_soon_threadsafe(_leave, app)


def _leave(app: GatewayApp) -> None:
    app.drain()
    app.leave()
