"""A server that answers as a test says, on several ports of 127.0.0.1 that stand for its replicas."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import msgspec

BREAK: Final = "BREAK"
"""In a stream: the server closes the connection here."""
TASK_ID: Final = "786512e2-9e0d-44bd-8f29-789f320fe840"
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"

Part: TypeAlias = "Mapping[str, Any] | bytes | str | Callable[[], Awaitable[object]]"


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message that came in, with the headers of its request, by lower-case name."""

    url: str
    headers: Mapping[str, str]
    message: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plain:
    """An answer that is one JSON body: a `result` or an `error`, or without both just the status."""

    body: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer that is a stream.

    Its parts are messages without `jsonrpc` (and without `id`, in a response), bytes to send unchanged, functions to
    await before the next part, and `BREAK`.
    """

    parts: Sequence[Part]


Reply: TypeAlias = "Plain | Stream"
Step: TypeAlias = "Reply | Callable[[Arrived], Reply]"


def result(**fields: Any) -> Plain:
    """Return a plain answer with this result; `_meta` is called `meta`."""
    meta = {"_meta": fields.pop("meta")} if "meta" in fields else {}
    return Plain({"result": {**fields, **meta}})


def error(code: int, message: str, data: Any = None, *, status: int = 200) -> Plain:
    return Plain({"error": {"code": code, "message": message, **({} if data is None else {"data": data})}}, status)


def stream(*parts: Part) -> Stream:
    return Stream(parts)


def text(number: int) -> dict[str, Any]:
    """Return the block that is segment `number` of the scripted results."""
    return {"type": "text", "text": f"segment {number}"}


def content(*numbers: int) -> list[dict[str, Any]]:
    """Return the `content` that segments make."""
    return [text(number) for number in numbers]


def segments(*numbers: int, complete: bool = False, is_error: bool = False) -> dict[str, Any]:
    """Return a response with segments, as a part of a stream."""
    return {
        "result": {
            "partial-content": [{"seqNr": number, **text(number)} for number in numbers],
            "isError": is_error,
            "isComplete": complete,
            "_meta": {RELATED_TASK: {"taskId": TASK_ID}},
        }
    }


def task(status: str = "working", **fields: Any) -> dict[str, Any]:
    """Return a task as the tasks of 2025-11-25 show it."""
    return {
        "taskId": TASK_ID,
        "status": status,
        "createdAt": "2025-11-25T10:30:00Z",
        "lastUpdatedAt": "2025-11-25T10:40:00Z",
        "ttl": 60000,
        "pollInterval": 5000,
        **fields,
    }


class ScriptedServer:
    """Answers the requests of each method with the steps of its script, the last one again and again.

    Notifications and responses are acknowledged with 202. Use it as an async context manager.
    """

    def __init__(self, replicas: int = 2) -> None:
        self.arrived: list[Arrived] = []
        self.urls: list[str] = []
        self._replicas = replicas
        self._scripts: dict[str, list[Step]] = {}
        self._servers: list[asyncio.Server] = []
        self._handlers: set[asyncio.Task[None]] = set()
        self._news = asyncio.Condition()

    async def __aenter__(self) -> Self:
        for number in range(self._replicas):
            server = await asyncio.start_server(functools.partial(self._begin, number), "127.0.0.1", 0)
            self._servers.append(server)
            self.urls.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End what is still being answered."""
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)
        for server in self._servers:
            server.close()
            await server.wait_closed()

    def on(self, method: str, *steps: Step) -> None:
        """Answer the requests of a method with these."""
        self._scripts[method] = list(steps)

    def messages(self, method: str) -> list[dict[str, Any]]:
        return [arrived.message for arrived in self.arrived if arrived.message.get("method") == method]

    def params(self, method: str) -> list[dict[str, Any]]:
        return [message["params"] for message in self.messages(method)]

    def responses(self) -> list[Arrived]:
        """Return the client's answers to the server's requests."""
        return [arrived for arrived in self.arrived if "method" not in arrived.message]

    def until(self, condition: Callable[[], object]) -> Callable[[], Awaitable[object]]:
        """Return a part of a stream that waits until something has come in."""

        async def wait() -> None:
            async with self._news:
                await self._news.wait_for(lambda: bool(condition()))

        return wait

    def _begin(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.create_task(self._serve(reader, writer, number))
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        """Answer one request, and close its connection."""
        try:
            arrived = await _read_request(reader, self.urls[number])
            async with self._news:
                self.arrived.append(arrived)
                self._news.notify_all()
            match self._reply_to(arrived):
                case Plain() as plain:
                    writer.write(_plain_bytes(plain, arrived.message.get("id")))
                    await writer.drain()
                case Stream() as streamed:
                    await _write_stream(writer, streamed, arrived.message["id"])
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has left
        finally:
            writer.close()

    def _reply_to(self, arrived: Arrived) -> Reply:
        method = arrived.message.get("method", "")
        if "method" not in arrived.message or "id" not in arrived.message:
            return Plain(status=202)
        script = self._scripts.get(method)
        if script is None:
            return error(-32601, f"Method not found: {method}", status=404)
        step = script.pop(0) if len(script) > 1 else script[0]
        return step(arrived) if callable(step) else step


async def _read_request(reader: asyncio.StreamReader, url: str) -> Arrived:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").strip().split("\r\n")[1:]
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers["content-length"]))
    return Arrived(url, headers, msgspec.json.decode(body))


def _plain_bytes(plain: Plain, request_id: Any) -> bytes:
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, **plain.body}) if plain.body else b""
    return (
        _head(plain.status, {**plain.headers, "content-type": "application/json", "content-length": len(body)}) + body
    )


async def _write_stream(writer: asyncio.StreamWriter, streamed: Stream, request_id: Any) -> None:
    writer.write(_head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"}))
    for part in streamed.parts:
        if callable(part):
            await part()
        elif isinstance(part, str):
            return  # without the last chunk
        else:
            data = part if isinstance(part, bytes) else event(part, request_id)
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def event(message: Mapping[str, Any], request_id: Any = None) -> bytes:
    """Return a message as an event; a response gets this id."""
    own_id = {} if "method" in message else {"id": request_id}
    return b"event: message\ndata: %s\n\n" % msgspec.json.encode({"jsonrpc": "2.0", **own_id, **message})


def _head(status: int, headers: Mapping[str, object]) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "connection: close", "", ""]).encode("latin-1")
