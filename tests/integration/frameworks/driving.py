"""What the drivers of frameworks share. They run in environments of their own, so this imports nothing but Python's.

A driver gets one JSON object as its argument, a `Script`, and prints one with what it saw.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any


class Script:
    """What a driver is asked to do.

    Attributes:
        url: of the endpoint.
        headers: with a token that is valid.
        refused_headers: with a token that is not.
        calls: of the tool, by what they are called: the arguments, and the forms that the user fills in. The user
            declines the questions after those.
    """

    tool = "update_work_item"

    def __init__(self, text: str) -> None:
        script = json.loads(text)
        self.url: str = script["url"]
        self.headers = {"Authorization": f"Bearer {script['token']}"}
        self.refused_headers = {"Authorization": f"Bearer {script['refused_token']}"}
        self.calls: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = script["calls"]


class User:
    """Fills in forms, and keeps what it was asked.

    Attributes:
        questions: the messages of the forms.
        forms: that are still to be filled in.
    """

    def __init__(self) -> None:
        self.questions: list[str] = []
        self.forms: list[dict[str, Any]] = []

    def answer(self, message: str) -> dict[str, Any] | None:
        """Return the content of the form, or None to decline."""
        self.questions.append(message)
        return self.forms.pop(0) if self.forms else None


class Recorder:
    """Keeps what was sent over HTTP, and where it went.

    Attributes:
        requests: the JSON-RPC method of each (or `answer`, or the HTTP method), and the replica that responded.
        version: the protocol version that the last request named.
        hooks: for an HTTP client of `httpx` or `httpx2`.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.version: str | None = None
        self.hooks = {"response": [self.record]}

    async def record(self, response: Any) -> None:
        """Note a response and its request."""
        request = response.request
        what = request.method
        if what == "POST":
            what = json.loads(request.content).get("method", "answer")
        self.requests.append((what, response.headers["x-gateway-replica"]))
        self.version = request.headers.get("mcp-protocol-version", self.version)


async def said_of(text: Awaitable[str]) -> str:
    """Return what a call said, or the words of the error that it ended in."""
    try:
        return await text
    except Exception as error:  # noqa: BLE001 - whatever it is, somebody reads its words
        return words_of(error)


def words_of(error: BaseException) -> str:
    """Return what an error says, and what the errors say that it is made of."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(words_of(part) for part in error.exceptions)
    return str(error)


def main(drive: Callable[[Script], Awaitable[dict[str, Any]]]) -> None:
    """Run a driver and print what it saw."""
    saw = asyncio.run(drive(Script(sys.argv[1])))  # type: ignore[arg-type]
    sys.stdout.write(json.dumps(saw) + "\n")
