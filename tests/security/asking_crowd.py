"""A tool that asks several questions at once, and a client of 2025-11-25 that answers as many as it likes."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gateway import Context, Elicit, tool
from gateway.auth.tokens import mint
from loadtest.cluster import Replica
from tests.security.crowd import AUDIENCE, HELD_SECONDS, SECRET

QUESTIONS: Final = 6
VERSION: Final = "2025-11-25"
_PATIENCE_SECONDS: Final = 60.0
_QUESTION_ID = re.compile(rb'"id":"([^"]+)"')


@tool
async def survey(ctx: Context) -> str:
    """Ask several questions at once, and keep the answers for a while."""
    answers = await ctx.ask(**{f"q{number}": Elicit("What?", str) for number in range(QUESTIONS)})
    await asyncio.sleep(HELD_SECONDS)
    return str(len(answers))


class Asked:
    """A session of a user, whose calls wait for answers.

    Attributes:
        statuses: how many answers had each HTTP status; 0 for a connection that was closed.
    """

    def __init__(self, replica: Replica, user: str) -> None:
        self.statuses: Counter[int] = Counter()
        self._replica = replica
        self._connection = http.client.HTTPConnection(*replica.address, timeout=_PATIENCE_SECONDS)
        self._headers = {
            "authorization": f"Bearer {mint(SECRET, user, AUDIENCE)}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        info = {"clientInfo": {"name": "x", "version": "1"}, "capabilities": {"elicitation": {"form": {}}}}
        body = _request("initialize", {"protocolVersion": VERSION, **info})
        self._connection.request("POST", "/mcp", body, self._headers)
        answer = self._connection.getresponse()
        answer.read()
        self._headers |= {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": VERSION}

    def close(self) -> None:
        """Close the connection for answers."""
        self._connection.close()

    @contextlib.contextmanager
    def calling(self, count: int) -> Iterator[list[list[str]]]:
        """Call the tool so many times; yield the ids of the questions of each call."""
        body = _request("tools/call", {"name": "survey", "arguments": {}})
        headers = {**self._headers, "host": "localhost", "content-length": str(len(body))}
        head = "\r\n".join(["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""])
        with contextlib.ExitStack() as stack:
            asked = []
            for _ in range(count):
                connection = socket.create_connection(self._replica.address, timeout=_PATIENCE_SECONDS)
                stack.enter_context(connection).sendall(head.encode() + body)
                asked.append(_questions(connection))
            yield asked

    def answer(self, question: str, value: str) -> None:
        """Answer a question with a value as JSON."""
        body = f'{{"jsonrpc":"2.0","id":"{question}","result":{{"action":"accept","content":{{"value":{value}}}}}}}'
        try:
            self._connection.request("POST", "/mcp", body.encode(), self._headers)
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            self.statuses[0] += 1
        else:
            self.statuses[answer.status] += 1


def _request(method: str, params: Mapping[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def _questions(connection: socket.socket) -> list[str]:
    """Read the ids of the questions of a call."""
    read = b""
    while read.count(b"elicitation/create") < QUESTIONS or not read.endswith(b"\n\n\r\n"):
        received = connection.recv(65536)
        assert received, read
        read += received
    return [found.decode() for found in _QUESTION_ID.findall(read)]
