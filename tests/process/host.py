"""A FastAPI application with its own routes and lifespan, and a gateway mounted in it."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator
from types import FrameType
from typing import Any

from fastapi import FastAPI, Request
from pydantic import BaseModel

import gateway
from gateway import Context, tool

OPENED: list[str] = []
log = logging.getLogger("uvicorn.error")  # which uvicorn shows


class Who(BaseModel):
    name: str


class Mood(BaseModel):
    mood: str


@tool
async def greet(ctx: Context) -> str:
    """Ask for a name, and greet the user by it."""
    who = await ctx.elicit("who", "Who are you?", Who)
    mood = await ctx.elicit("mood", "How are you?", Mood)
    return f"{OPENED[-1]} {who.name}, who is {mood.mood}"


@tool
def blocking() -> str:
    """Run in a thread."""
    return "done"


@contextlib.asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """Open what the host's routes and the tools use. If asked to, drain the gateway before uvicorn waits."""
    before = signal.getsignal(signal.SIGTERM)

    def leave(number: int, frame: FrameType | None) -> None:
        gateway.draining()
        assert callable(before)
        before(number, frame)

    if "TEST_HOST_DRAINS" in os.environ:
        signal.signal(signal.SIGTERM, leave)
    OPENED.append("Hello")
    log.info("host opened")
    yield {"greeting": "Good morning"}
    OPENED.pop()
    log.info("host closed")


def make_host(prefix: str = "/tools", **options: Any) -> FastAPI:
    """Return the application."""
    app = FastAPI(lifespan=lifespan)

    @app.get("/")
    async def home(request: Request) -> str:
        return str(request.state.greeting)

    gateway.mount(app, prefix, tools=__name__, **options)
    return app


if "TEST_HOST_SERVES" in os.environ:
    app = make_host()
