"""The shared code of the frameworks' drivers. They run in separate environments, so it needs the standard library only.

A driver gets one JSON object as its argument, a `Script`, and prints one with what it saw.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

PATIENCE_SECONDS = 60
"""How long clients wait for a quick answer: some give up after five seconds, which a busy machine may need."""


class Script:
    """The work of a driver.

    Attributes:
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
    """Fills in forms, and records the questions."""

    def __init__(self) -> None:
        self.questions: list[str] = []
        self.forms: list[dict[str, Any]] = []

    def answer(self, message: str) -> dict[str, Any] | None:
        """Return the content of the form, or None to decline."""
        self.questions.append(message)
        return self.forms.pop(0) if self.forms else None


class Observer:
    """Watches the requests of a client.

    Attributes:
        protocol: the version that calls of tools name.
        hooks: for an HTTP client of `httpx` or `httpx2`.
    """

    def __init__(self) -> None:
        self.protocol: str | None = None
        self.hooks = {"request": [self.note]}

    async def note(self, request: Any) -> None:
        if request.method == "POST" and json.loads(request.content).get("method") == "tools/call":
            self.protocol = request.headers["mcp-protocol-version"]


async def said_of(text: Awaitable[str]) -> str:
    """Return the text of a call, or the message of its error."""
    try:
        return await text
    except Exception as error:  # noqa: BLE001 - whatever it is, a user reads its message
        return words_of(error)


def words_of(error: BaseException) -> str:
    """Return the message of an error, and those of the errors in its group."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(words_of(part) for part in error.exceptions)
    return str(error)


def main(drive: Callable[[Script], Coroutine[Any, Any, dict[str, Any]]]) -> None:
    """Run a driver and print what it saw."""
    saw = asyncio.run(drive(Script(sys.argv[1])))
    sys.stdout.write(json.dumps(saw) + "\n")
