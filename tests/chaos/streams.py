"""Streams of segments, each read by a light client that checks every number, disconnects, and resumes elsewhere.

The clients speak bare HTTP, with a connection for each request: a thousand full clients would dominate the measurement.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from tests.wires.draft.messages import RELATED_TASK, VERSION

LINE_BYTES: Final = 1 << 20
HEAD_END: Final = b"\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n"
TRY_AGAIN: Final = {-31001, -31004}
"""The replica, or the store, has too much to do."""

RETRY_SECONDS: Final = 0.5
POLL_SECONDS: Final = (1.0, 3.0)
LEAVES_EARLY: Final = 0.2
"""How likely a client is to disconnect before it gets the answer to its request for more."""


class Refused(Exception):
    """The request must be retried later."""


@contextlib.asynccontextmanager
async def asked(
    url: str, token: str, method: str, params: Mapping[str, Any]
) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """Send a request, and yield the messages of its answer. Leaving the context closes the connection.

    Raises:
        Refused: while reading the messages, if the request must be retried later.
        OSError: the connection broke.
    """
    target = urlsplit(url)
    reader, writer = await asyncio.open_connection(target.hostname, target.port, limit=LINE_BYTES)
    try:
        body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        fields = {
            "Host": target.netloc,
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION,
            "Content-Length": str(len(body)),
        }
        head = [f"POST {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        writer.write("\r\n".join(head).encode() + HEAD_END + body)
        await writer.drain()
        yield _messages(reader)
    finally:
        writer.close()


async def _messages(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    head = (await reader.readuntil(HEAD_END)).lower()
    if b"text/event-stream" not in head:
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        yield _read(await reader.readexactly(length))
        return
    while (line := await reader.readline()) not in (b"", LAST_CHUNK):
        if line.startswith(b"data: "):  # an event is one line of one chunk; what is around it are frames
            yield _read(line[6:])


def _read(data: bytes) -> dict[str, Any]:
    message: dict[str, Any] = msgspec.json.decode(data)
    if message.get("error", {}).get("code") in TRY_AGAIN:
        raise Refused
    return message


@dataclass
class Stream:
    """One call whose result comes in segments, and the segments that its client has.

    Attributes:
        tool: which one.
        arguments: its arguments.
        token: whose call it is.
        urls: the replicas.
        chance: decides where the connection breaks.
        breaks_after: how many segments the client takes from the stream before it breaks off.
        taken: the texts that have arrived. Each response has to continue where the previous one ended.
        task_id: the task, once it is known.
        complete: whether the server has marked the result as complete.
        resumed: how often the client asked for more.
        cut_after: the last message before the server ended the stream too early, if it did. The client may resume then.
    """

    tool: str
    arguments: Mapping[str, Any]
    token: str
    urls: Sequence[str]
    chance: Random
    breaks_after: int
    taken: list[str] = field(default_factory=list)
    task_id: str = ""
    complete: bool = False
    resumed: int = 0
    cut_after: Mapping[str, Any] | None = None

    async def read(self) -> None:
        """Call the tool, disconnect, and fetch the rest, each time from another replica."""
        replica = self.chance.randrange(len(self.urls))
        while not self.task_id:
            try:
                await self._listen(self.urls[replica])
            except Refused:
                await asyncio.sleep(RETRY_SECONDS)
        while not self.complete:
            replica = (replica + 1) % len(self.urls)
            with contextlib.suppress(Refused):
                await self._resume(self.urls[replica])
            if not self.complete:
                await asyncio.sleep(self.chance.uniform(*POLL_SECONDS))

    async def _listen(self, url: str) -> None:
        params = {"name": self.tool, "arguments": self.arguments, "task": {"responseModes": ["streaming"]}}
        message: dict[str, Any] = {}
        async with asked(url, self.token, "tools/call", params) as messages:
            async for message in messages:
                assert not self.complete, f"after the last response comes {message}"
                assert "error" not in message, message
                if "result" in message:
                    self._take(message["result"], self.breaks_after - len(self.taken))
                if len(self.taken) == self.breaks_after:
                    return
        if not self.complete:
            assert self.task_id, f"the stream has ended before its task is known, after {message}"
            self.cut_after = message

    async def _resume(self, url: str) -> None:
        """Ask for the segments after the last one."""
        self.resumed += 1
        params = {"taskId": self.task_id, "lastSeqNr": len(self.taken)}
        async with asked(url, self.token, "tasks/result", params) as messages:
            if self.chance.random() < LEAVES_EARLY:
                return
            async for message in messages:
                self._take(message["result"], None)

    def _take(self, result: Mapping[str, Any], room: int | None) -> None:
        """Read a response up to the point where the connection breaks."""
        self.task_id = result["_meta"][RELATED_TASK]["taskId"]
        blocks = result["partial-content"]
        for block in blocks[:room]:
            assert block["seqNr"] == len(self.taken) + 1, f"{block} comes after segment {len(self.taken)}"
            self.taken.append(block["text"])
        self.complete = result["isComplete"] and len(blocks[:room]) == len(blocks)
