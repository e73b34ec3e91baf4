"""A server of 2025-11-25 that is called in sessions. It can end, break and resume them in every way."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from loadtest.cluster import wait_until
from tests.upstreams.servers.earlier import LISTS, Earlier, Params, sign_in, text
from tests.upstreams.servers.plain_http import Exchange

LOST: Mapping[str, tuple[int, Any]] = {
    "sdk": (404, {"id": "server-error", "error": {"code": -32600, "message": "Session not found"}}),
    "typescript": (404, {"id": None, "error": {"code": -32001, "message": "Session not found"}}),
    "everything": (400, {"error": {"code": -32000, "message": "Bad Request: No valid session ID provided"}}),
    "old_sdk": (400, {"id": "server-error", "error": {"code": -32600, "message": "Bad Request: No valid session"}}),
    "ours": (404, {"id": "ours", "error": {"code": -32001, "message": "Session not found"}}),
    "text": (404, b"Session not found"),
    "nothing": (404, b""),
}
"""How servers refuse the id of a session that they do not know."""

TOOLS = (
    "echo",
    "count",
    "ask",
    "ask_aside",
    "delete",
    "sign_in",
    "report_aside",
    "slow",
    "cut",
    "resumed",
    "twice",
    "late",
    "fails",
    "pings",
    "refuses",
)


@dataclass
class Open:
    """One session that is open."""

    number: int
    calls: int = 0
    stream: Exchange | None = None
    level: str = ""
    uris: set[str] = field(default_factory=set)


@dataclass
class InSessions(Earlier):
    """The server. It records each call that ran, and each answer to its own requests.

    Attributes:
        lost: how it refuses the id of an unknown session, a key of `LOST`.
        has_stream: whether it has a stream for each session.
        ran: session and tool of each call that ran.
        answers: what clients answered to its requests.
        takes_at_once: whether it takes an answer without delay; else this takes `taking_seconds`.
        most_taking: how many answers it was taking at once.
    """

    lost: str = "sdk"
    has_stream: bool = True
    open: dict[str, Open] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    ran: list[tuple[str, str]] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    resumed_from: list[str] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    takes_at_once: bool = True
    taking_seconds: float = 0.02
    taking: int = 0
    most_taking: int = 0

    def forget(self) -> None:
        """Forget all sessions, as a server does that was started again. Their streams end."""
        streams = [each.stream for each in self.open.values() if each.stream is not None]
        self.open.clear()
        for stream in streams:
            self.server.run(_cut(stream))

    def send(self, method: str, **params: Any) -> None:
        """Send a notification on the streams of all sessions."""
        message = {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}
        for each in list(self.open.values()):
            if each.stream is not None:
                self.server.run(_sent(each.stream, message))

    def wait_for(self, method: str, count: int = 1) -> None:
        wait_until(lambda: self.methods.count(method) >= count, f"{count} times {method}")

    async def handle(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)
        name = exchange.header("mcp-session-id") or ""
        if exchange.method == "GET":
            await self._stream(exchange, name)
        elif exchange.method == "DELETE":
            self.ended.append(name)
            exchange.reply(200 if self.open.pop(name, None) is not None else 404)
        else:
            await self._post(exchange, name)

    @property
    def methods(self) -> list[str]:
        """The methods of all messages, in order; those that are not POST by their HTTP method."""
        return [
            msgspec.json.decode(each.body).get("method", "answer") if each.method == "POST" else each.method
            for each in list(self.exchanges)
        ]

    async def _post(self, exchange: Exchange, name: str) -> None:
        message = msgspec.json.decode(exchange.body)
        self.messages.append(message)
        method = message.get("method")
        if method == "server/discover":
            self._refuse(exchange, message)
        elif method == "initialize":
            self.session = f"s-{next(self.numbers)}"
            self.open[self.session] = Open(int(self.session[2:]))
            self._initialize(exchange, message)
        elif name not in self.open:
            status, body = LOST[self.lost]
            if isinstance(body, bytes):
                exchange.reply(status, body, [("content-type", "text/plain")])
            else:
                named = {"id": message.get("id")} if body.get("id") == "ours" else {}
                exchange.json({"jsonrpc": "2.0", **body, **named}, status)
        elif method is None:
            self.answers.append(message)
            self.answered.set()
            self.taking += 1
            self.most_taking = max(self.most_taking, self.taking)
            if not self.takes_at_once:
                await asyncio.sleep(self.taking_seconds)
            self.taking -= 1
            exchange.reply(202)
        elif "id" not in message:
            exchange.reply(202)
        elif (wrong := self._wrong(exchange, message)) is not None:
            exchange.json({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32602, "message": wrong}}, 400)
        else:
            await self._answered(exchange, message, name)

    async def _answered(self, exchange: Exchange, message: Any, name: str) -> None:
        session, params = self.open[name], message["params"]
        if message["method"] == "tools/call":
            self.ran.append((name, params["name"]))
            session.calls += 1
            try:
                await getattr(self, f"_{params['name']}")(exchange, message, session, params.get("arguments", {}))
            except asyncio.CancelledError:
                self.left.append(params["name"])
                raise
            return
        if message["method"] == "logging/setLevel":
            session.level = params["level"]
        elif message["method"] in ("resources/subscribe", "resources/unsubscribe"):
            (session.uris.add if message["method"].endswith("/subscribe") else session.uris.discard)(params["uri"])
        exchange.json({"jsonrpc": "2.0", "id": message["id"], "result": await self._of(message, params)})

    async def _of(self, message: Any, params: Params) -> dict[str, Any]:
        if message["method"] == "tools/list":
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
        if message["method"] in LISTS:
            member, entries = LISTS[message["method"]]
            return {member: entries}
        if message["method"] == "resources/read":
            return {"contents": [{"uri": params["uri"], "text": f"at {params['uri']}"}]}
        return {}

    async def _stream(self, exchange: Exchange, name: str) -> None:
        last = exchange.header("last-event-id")
        if last is not None and last.startswith("call-"):
            self.resumed_from.append(last)
            exchange.event({"jsonrpc": "2.0", "id": int(last[5:]), "result": text("resumed")})
            exchange.end_events()
        elif not self.has_stream:
            exchange.reply(405)
        elif name not in self.open:
            exchange.reply(404)
        else:
            exchange.begin_events()
            self.open[name].stream = exchange
            await asyncio.Event().wait()

    async def _echo(self, exchange: Exchange, message: Any, _session: Open, arguments: Params) -> None:
        self._end(exchange, message, text(arguments["text"]))

    async def _count(self, exchange: Exchange, message: Any, session: Open, _arguments: Params) -> None:
        self._end(exchange, message, text(f"{session.number}: {session.calls}"))

    async def _fails(self, exchange: Exchange, message: Any, _session: Open, _arguments: Params) -> None:
        error = {"code": -32600, "message": "The tool's own session is over"}
        exchange.json({"jsonrpc": "2.0", "id": message["id"], "error": error})

    async def _ask(self, exchange: Exchange, message: Any, _session: Open, arguments: Params) -> None:
        """Ask on the stream of the call, and end with what the client answered."""
        await self._asked(exchange, message, exchange, arguments)

    async def _ask_aside(self, exchange: Exchange, message: Any, session: Open, arguments: Params) -> None:
        """Ask on the stream of the session, as servers of the TypeScript SDK do."""
        assert session.stream is not None
        await self._asked(exchange, message, session.stream, arguments)

    async def _asked(self, exchange: Exchange, message: Any, stream: Exchange, arguments: Params) -> None:
        self.answered.clear()
        method = arguments.get("method", "elicitation/create")
        stream.event({"jsonrpc": "2.0", "id": "q", "method": method, "params": {"message": "Your name?"}})
        await self.answered.wait()
        self._end(exchange, message, text(msgspec.json.encode(self.answers[-1]).decode()))

    async def _delete(self, exchange: Exchange, message: Any, session: Open, arguments: Params) -> None:
        """Ask for consent to delete some files, then for many more, here or on the stream of the session."""
        stream = exchange if arguments.get("on", "call") == "call" else session.stream
        assert stream is not None
        answers: list[Any] = []
        for files in arguments.get("files", (3, 300)):
            question = f"q-{next(self.numbers)}"
            form = {"type": "object", "properties": {"sure": {"type": "string"}}, "required": ["sure"]}
            said = f"Delete {files} files?" + arguments.get("more", "")
            params = {"mode": "form", "message": said, "requestedSchema": form}
            stream.event({"jsonrpc": "2.0", "id": question, "method": "elicitation/create", "params": params})
            await stream.drain()
            try:
                answers.append([files, await asyncio.wait_for(self._answer_to(question), arguments.get("patience"))])
            except TimeoutError:
                answers.append([files, "no answer"])
                break
        if "long" in arguments:
            answers.append("x" * arguments["long"])
        self._end(exchange, message, text(msgspec.json.encode(answers).decode()))

    async def _answer_to(self, question: str) -> Any:
        """Wait for the answer to a question, and return its result or its error."""
        while True:
            for answer in self.answers:
                if answer.get("id") == question:
                    return answer.get("result", answer.get("error"))
            self.answered.clear()
            await self.answered.wait()

    async def _sign_in(self, exchange: Exchange, message: Any, _session: Open, arguments: Params) -> None:
        exchange.event({"jsonrpc": "2.0", "id": message["id"], **await sign_in(self, exchange, message, arguments)})
        exchange.end_events()

    async def _report_aside(self, exchange: Exchange, message: Any, session: Open, _arguments: Params) -> None:
        """Send progress and a log message on the stream of the session."""
        assert session.stream is not None
        token = message["params"].get("_meta", {}).get("progressToken")
        for name, params in (
            ("progress", {"progressToken": token, "progress": 1}),
            ("message", {"level": "warning", "data": "aside"}),
        ):
            session.stream.event({"jsonrpc": "2.0", "method": f"notifications/{name}", "params": params})
        await session.stream.drain()
        await asyncio.wait_for(self.gate.wait(), 15)
        self._end(exchange, message, text("done"))

    async def _slow(self, exchange: Exchange, message: Any, _session: Open, _arguments: Params) -> None:
        self.begun.set()
        await self.gate.wait()
        self._end(exchange, message, text("finally"))

    async def _cut(self, exchange: Exchange, _message: Any, _session: Open, _arguments: Params) -> None:
        exchange.begin_events()
        exchange.cut()

    async def _resumed(self, exchange: Exchange, message: Any, _session: Open, arguments: Params) -> None:
        """Give the stream an id, and end or cut it before the answer."""
        exchange.begin_events()
        exchange.chunk(f"id: call-{message['id']}\nretry: {arguments.get('retry', 10)}\ndata:\n\n".encode())
        if arguments.get("cut"):
            exchange.cut()
        else:
            exchange.end_events()

    async def _twice(self, exchange: Exchange, message: Any, _session: Open, _arguments: Params) -> None:
        for answer in ("first", "second"):
            exchange.event({"jsonrpc": "2.0", "id": message["id"], "result": text(answer)})
        exchange.end_events()

    async def _late(self, exchange: Exchange, message: Any, session: Open, _arguments: Params) -> None:
        """Answer, and ask something about it afterwards."""
        self._end(exchange, message, text("ended"))
        assert session.stream is not None
        session.stream.event({"jsonrpc": "2.0", "id": "late", "method": "elicitation/create", "params": {}})

    async def _refuses(self, exchange: Exchange, message: Any, _session: Open, arguments: Params) -> None:
        """Act, and answer with an error that looks like that of a lost session."""
        error = {"code": arguments["code"], "message": arguments["message"]}
        body = msgspec.json.encode({"jsonrpc": "2.0", "id": message["id"], "error": error})
        kind = arguments.get("type", "application/json")
        exchange.reply(arguments["status"], body, [("content-type", kind)])

    async def _pings(self, exchange: Exchange, message: Any, session: Open, arguments: Params) -> None:
        """Send many requests, here or on the stream of the session, and end when all are answered."""
        stream = exchange if arguments["on"] == "call" else session.stream
        assert stream is not None
        for number in range(arguments["count"]):
            stream.event({"jsonrpc": "2.0", "id": number, "method": "ping"})
        while len(self.answers) < arguments["count"]:
            self.answered.clear()
            await self.answered.wait()
        self._end(exchange, message, text("all answered"))

    @staticmethod
    def _end(exchange: Exchange, message: Any, result: dict[str, Any]) -> None:
        exchange.event({"jsonrpc": "2.0", "id": message["id"], "result": result})
        exchange.end_events()


async def _cut(stream: Exchange) -> None:
    stream.cut()


async def _sent(stream: Exchange, message: Any) -> None:
    stream.event(message)
