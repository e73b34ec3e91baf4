"""A server of 2025-11-25 with everything that servers of that version offer, in sessions and for programs alike.

Programs reach it through `bridge.py`. It records what it received, so tests need not believe the gateway.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias

import msgspec

from loadtest.cluster import wait_until
from tests.upstreams.servers.earlier import OFFERED, Params, text
from tests.upstreams.servers.plain_http import HOST, Exchange, PlainServer, Served
from tests.upstreams.servers.tasks import TASKS

BRIDGE = Path(__file__).parent / "bridge.py"
WORKING = ("work", "work_as_task", "work_sooner", "work_at_will")
STUDYING = ("study", "study_as_task")
Write: TypeAlias = Callable[[Any], None]


def notification(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}


@dataclass(eq=False)
class Session:
    """A session over HTTP, or a program.

    Attributes:
        aside: writes what belongs to no request, once there is a stream for that.
        running: what works on a request, by its id.
    """

    name: str
    aside: Write | None = None
    uris: set[str] = field(default_factory=set)
    running: dict[Any, asyncio.Task[None]] = field(default_factory=dict)
    tokens: dict[str, Any] = field(default_factory=dict)


@dataclass
class Featured(Served):
    """The server.

    Attributes:
        received: each message, and the name of the session that it came in.
        cancelled: the tools whose calls were cancelled, and the tasks.
        lists: what is listed besides the usual entries, by kind.
    """

    received: list[tuple[str, Any]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    sessions: dict[str, Session] = field(default_factory=dict)
    lists: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    gates: dict[str, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    begun: set[str] = field(default_factory=set)
    works: set[asyncio.Task[None]] = field(default_factory=set)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.server = PlainServer(self._exchanged)

    def __enter__(self) -> Self:
        super().__enter__()
        self.pipes = self.server.run(asyncio.start_server(self._piped, HOST, 0, limit=1 << 20))
        return self

    def __exit__(self, *_: object) -> None:
        self.server.run(self._hung_up())
        super().__exit__()

    def program(self, **options: Any) -> dict[str, Any]:
        """Return the entry of a program that is this server."""
        return {
            "command": sys.executable,
            "args": ["-S", str(BRIDGE), str(self.pipes.sockets[0].getsockname()[1])],
            "gateway": options,
        }

    # What tests look at and do.

    def params(self, method: str, since: int = 0) -> list[Any]:
        """Return the parameters of all messages of a method."""
        return [message["params"] for _, message in self.received[since:] if message.get("method") == method]

    def calls(self, tool: str, mark: str) -> list[str]:
        """Return in which sessions a tool was called with a mark."""
        return [
            session
            for session, message in list(self.received)
            if message.get("method") == "tools/call"
            and message["params"]["name"] == tool
            and message["params"]["arguments"].get("mark") == mark
        ]

    def wait_begun(self, mark: str) -> None:
        wait_until(lambda: mark in self.begun, f"the call {mark}")

    def wait_cancelled(self, mark: str) -> None:
        wait_until(lambda: mark in self.cancelled, f"the end of {mark}")

    def open(self, mark: str) -> None:
        """Let a call that works end."""

        async def opened() -> None:
            self.gates[mark].set()

        self.server.run(opened())

    def change(self, kind: str, entry: Mapping[str, Any]) -> None:
        """List one more entry, and announce it in all sessions."""
        self.lists[kind].append(entry)
        self.announce(f"{kind}/list_changed")

    def announce(self, method: str, /, to: Callable[[Session], bool] = lambda _: True, **params: Any) -> None:
        """Send a notification in the sessions that a test wants."""

        async def announced() -> None:
            for session in list(self.sessions.values()):
                if session.aside is not None and to(session):
                    session.aside(notification(method, **params))

        self.server.run(announced())

    # The two transports.

    async def _exchanged(self, exchange: Exchange) -> None:
        session = self.sessions.get(exchange.header("mcp-session-id") or "")
        if exchange.method == "DELETE":
            self.sessions.pop(exchange.header("mcp-session-id") or "", None)
            exchange.reply(200)
        elif exchange.method == "GET" and session is not None:
            exchange.begin_events()
            session.aside = exchange.event
            await asyncio.Event().wait()
        else:
            await self._posted(exchange, session)

    async def _posted(self, exchange: Exchange, session: Session | None) -> None:
        message = msgspec.json.decode(exchange.body)
        if message.get("method") == "initialize":
            session = self._began("http")
            result = self._introduction()
            headers = [("mcp-session-id", session.name)]
            exchange.json({"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=headers)
        elif session is None:
            error = {"code": -32600, "message": "Bad Request: Missing session ID"}
            exchange.json({"jsonrpc": "2.0", "id": "server-error", "error": error}, 400)
        elif "id" not in message:
            self._noted(session, message)
            exchange.reply(202)
        else:
            work = self._started(session, message, exchange.event)
            await asyncio.wait({work})  # the client may leave: that alone cancels nothing
            exchange.end_events()

    async def _hung_up(self) -> None:
        self.pipes.close()
        await self.pipes.wait_closed()
        for work in self.works:
            work.cancel()

    async def _piped(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = self._began("pipe")

        def write(message: Any) -> None:
            writer.write(msgspec.json.encode(message) + b"\n")

        session.aside = write
        while line := await reader.readline():
            message = msgspec.json.decode(line)
            if message.get("method") == "initialize":
                write({"jsonrpc": "2.0", "id": message["id"], "result": self._introduction()})
            elif "id" not in message:
                self._noted(session, message)
            else:
                self._started(session, message, write)
        for work in session.running.values():
            work.cancel()
        del self.sessions[session.name]
        writer.close()

    # The features.

    def _began(self, kind: str) -> Session:
        name = f"{kind}-{next(self.numbers)}"
        session = self.sessions[name] = Session(name)
        return session

    @staticmethod
    def _introduction() -> dict[str, Any]:
        server = {"name": "featured", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {**OFFERED, "tasks": TASKS}, "serverInfo": server}

    def _noted(self, session: Session, message: Any) -> None:
        """Take a notification."""
        self.received.append((session.name, message))
        work = session.running.get(message.get("params", {}).get("requestId"))
        if message["method"] == "notifications/cancelled" and work is not None:
            work.cancel()

    def _started(self, session: Session, message: Any, write: Write) -> asyncio.Task[None]:
        self.received.append((session.name, message))
        work = asyncio.create_task(self._answered(session, message, write))
        session.running[message["id"]] = work
        self.works.add(work)
        work.add_done_callback(self.works.discard)
        work.add_done_callback(lambda _: session.running.pop(message["id"]))
        return work

    async def _answered(self, session: Session, message: Any, write: Write) -> None:
        method, params = message["method"], message.get("params", {})
        try:
            if method == "tools/call":
                result = await self._called(session, params, write)
            elif method == "tasks/result":
                result = await self._studied(session, params["taskId"], write)
            else:
                result = self._of(session, method, params)
        except asyncio.CancelledError:
            self.cancelled.append(params.get("arguments", {}).get("mark", method))
            raise
        write({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def _of(self, session: Session, method: str, params: Params) -> dict[str, Any]:
        if method.endswith("/list"):
            return self._listed(method)
        if method in ("resources/subscribe", "resources/unsubscribe"):
            (session.uris.add if method.endswith("/subscribe") else session.uris.discard)(params["uri"])
        elif method == "tasks/cancel":
            self.cancelled.append(params["taskId"])
            return {"taskId": params["taskId"], "status": "cancelled"}
        elif method not in ("ping", "logging/setLevel"):
            return _read(method, params)
        return {}

    def _listed(self, method: str) -> dict[str, Any]:
        schema = {"type": "object"}
        tools: list[Any] = [{"name": name, "inputSchema": schema} for name in ("report", *WORKING)]
        required = {"taskSupport": "required"}
        tools += [{"name": name, "inputSchema": schema, "execution": required} for name in STUDYING]
        usual: Mapping[str, tuple[str, list[Any]]] = {
            "tools/list": ("tools", tools),
            "prompts/list": ("prompts", [{"name": "greeting", "arguments": [{"name": "name"}]}]),
            "resources/list": ("resources", [{"uri": "note://today", "name": "today"}]),
            "resources/templates/list": ("resourceTemplates", [{"uriTemplate": "item://{id}", "name": "items"}]),
        }
        member, entries = usual[method]
        return {member: [*entries, *self.lists[member]]}

    async def _called(self, session: Session, params: Params, write: Write) -> dict[str, Any]:
        mark, token = params["arguments"].get("mark", ""), params.get("_meta", {}).get("progressToken")
        if params["name"] in STUDYING:
            if "task" not in params:
                return text("it requires task augmentation", isError=True)
            session.tokens[mark] = token
            return {"task": {"taskId": mark, "status": "working", **params["task"]}}
        if params["name"] == "report":
            self._report(token, write)
        else:
            self.begun.add(mark)
            await self.gates[mark].wait()
        return text(f"done {mark}")

    async def _studied(self, session: Session, task_id: str, write: Write) -> dict[str, Any]:
        self._report(session.tokens[task_id], write)
        self.begun.add(task_id)
        await self.gates[task_id].wait()
        return text(f"studied {task_id}")

    @staticmethod
    def _report(token: Any, write: Write) -> None:
        if token is not None:
            write(notification("progress", progressToken=token, progress=1, total=2, message="half"))
        write(notification("message", level="warning", data="said"))


def _read(method: str, params: Params) -> dict[str, Any]:
    if method == "prompts/get":
        said = {"type": "text", "text": f"Hello, {params['arguments']['name']}!"}
        return {"messages": [{"role": "user", "content": said}]}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": f"at {params['uri']}"}]}
    assert method == "completion/complete", method
    return {"completion": {"values": [params["argument"]["value"] + "da"]}}
