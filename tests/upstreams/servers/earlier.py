"""A server of 2025-11-25 and before, which gives no session unless a test wants one, and records every request.

It is strict about what such servers must get, and refuses `server/discover` as one of them does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from loadtest.cluster import wait_until
from tests.upstreams.servers.plain_http import Exchange, PlainServer, Served
from tests.upstreams.servers.recording import visit

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
RELEASED_HEADERS = ("mcp-method", "mcp-name", "mcp-param-region")
REFUSALS: Mapping[str, tuple[int, Any]] = {
    "sdk1": (400, {"id": "server-error", "error": {"code": -32600, "message": "Bad Request: Missing session ID"}}),
    "sdk1_params": (200, {"error": {"code": -32602, "message": "Invalid request parameters", "data": ""}}),
    "ts1": (400, {"id": None, "error": {"code": -32000, "message": "Bad Request: Server not initialized"}}),
    "everything": (400, {"error": {"code": -32000, "message": "Bad Request: No valid session ID provided"}}),
    "supergateway": (404, {"error": {"code": -32601, "message": "Method not found"}}),
    "internal": (200, {"error": {"code": -32603, "message": "Unknown request"}}),
    "text": (404, b"Session not found"),
    "no_body": (405, b""),
    "page": (200, b"<html>"),
}
"""How servers refuse `server/discover`. Without an id in the body, that of the request is put in."""

Params = Mapping[str, Any]
Tool = Callable[["Earlier", Exchange, Any, Params], Awaitable[dict[str, Any] | None]]


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], **more}


async def echo(_server: Earlier, _exchange: Exchange, _message: Any, arguments: Params) -> dict[str, Any]:
    return text(arguments["text"])


async def structured(_server: Earlier, _exchange: Exchange, _message: Any, _arguments: Params) -> dict[str, Any]:
    value = {"sum": 2**53 + 1, "unknown": [None, {"deep": -0.0}], "text": "\u2028 \U0001f511"}
    return text("3", structuredContent=value, _meta={"example.com/kept": {"a": 1}}, isError=False)


async def media(_server: Earlier, _exchange: Exchange, _message: Any, _arguments: Params) -> dict[str, Any]:
    return {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}, {"type": "hologram", "kind": 1}]}


async def fail(_server: Earlier, _exchange: Exchange, _message: Any, _arguments: Params) -> dict[str, Any]:
    return text("It failed, in the server's words", isError=True)


async def ask(_server: Earlier, exchange: Exchange, message: Any, arguments: Params) -> None:
    """Ask on the stream of the call, whatever the client declared, and wait without an end."""
    method = arguments.get("method", "elicitation/create")
    exchange.event({"jsonrpc": "2.0", "id": message["id"], "method": method, "params": {"message": "Your name?"}})
    await asyncio.Event().wait()


async def sign_in(server: Earlier, _exchange: Exchange, message: Any, arguments: Params) -> dict[str, Any]:
    """Send the user to a URL so many times, then say which parameters came."""
    number = sum(each.get("params", {}).get("arguments") == arguments for each in server.messages)
    if number <= arguments["times"]:
        return {"error": {"code": -32042, "message": "Sign in first", "data": {"elicitations": [visit(number)]}}}
    return {"result": text(msgspec.json.encode(sorted(message["params"].keys() - {"_meta"})).decode())}


async def report(_server: Earlier, exchange: Exchange, message: Any, _arguments: Params) -> dict[str, Any]:
    token = message["params"]["_meta"]["progressToken"]
    notices = [
        ("progress", {"progressToken": token, "progress": 1, "total": 2, "message": "half"}),
        ("message", {"level": "warning", "data": "said"}),
    ]
    for name, params in notices:
        exchange.event({"jsonrpc": "2.0", "method": f"notifications/{name}", "params": params})
    return text("done")


async def slow(server: Earlier, _exchange: Exchange, _message: Any, _arguments: Params) -> dict[str, Any]:
    server.begun.set()
    await server.gate.wait()
    return text("finally")


TOOLS: Mapping[str, Tool] = {
    "echo": echo,
    "structured": structured,
    "media": media,
    "fail": fail,
    "ask": ask,
    "sign_in": sign_in,
    "report": report,
    "slow": slow,
}
LISTS: Mapping[str, tuple[str, list[dict[str, Any]]]] = {
    "tools/list": (
        "tools",
        [{"name": name, "description": f"Its {name}", "inputSchema": {"type": "object"}} for name in TOOLS],
    ),
    "prompts/list": ("prompts", [{"name": "greeting", "arguments": [{"name": "name"}]}]),
    "resources/list": ("resources", [{"uri": "note://today", "name": "today"}]),
    "resources/templates/list": ("resourceTemplates", [{"uriTemplate": "item://{id}", "name": "items"}]),
}
OFFERED = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "completions": {},
    "logging": {},
}


@dataclass
class Earlier(Served):
    """The server; a context manager that serves in a thread.

    Attributes:
        refusal: how it refuses `server/discover`, a key of `REFUSALS`.
        session: the id of the session that it opens, or None.
        messages: every message, as it came.
        left: the tools whose callers left before the answer.
        exchanges: every request, also one without a message.
    """

    refusal: str = "sdk1"
    version: str = "2025-11-25"
    session: str | None = None
    sends_events: bool = True
    offered: Mapping[str, Any] = field(default_factory=lambda: OFFERED)
    messages: list[Any] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.server = PlainServer(self.handle)

    @property
    def methods(self) -> list[str]:
        """The methods of all requests, in order; those that are not POST by their HTTP method."""
        return [
            msgspec.json.decode(each.body)["method"] if each.method == "POST" else each.method
            for each in list(self.exchanges)
        ]

    def wait_begun(self) -> None:
        """Wait until `slow` works."""
        self.server.run(asyncio.wait_for(self.begun.wait(), 15))

    def wait_left(self, tool: str) -> None:
        """Wait until the client of a call of a tool has left."""
        wait_until(lambda: tool in self.left, f"the end of {tool}")

    async def handle(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)
        if exchange.method != "POST":
            exchange.reply(200 if self.session is not None else 405)
            return
        message = msgspec.json.decode(exchange.body)
        self.messages.append(message)
        if "id" not in message:
            exchange.reply(202)
        elif message["method"] == "server/discover":
            self._refuse(exchange, message)
        elif message["method"] == "initialize":
            self._initialize(exchange, message)
        elif (wrong := self._wrong(exchange, message)) is not None:
            exchange.json({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32600, "message": wrong}}, 400)
        else:
            try:
                await self._answer(exchange, message)
            except asyncio.CancelledError:
                self.left.append(message["params"].get("name", ""))
                raise

    def _refuse(self, exchange: Exchange, message: Any) -> None:
        status, body = REFUSALS[self.refusal]
        if isinstance(body, bytes):
            exchange.reply(status, body, [("content-type", "text/html")])
        else:
            exchange.json({"jsonrpc": "2.0", "id": message["id"], **body}, status)

    def _initialize(self, exchange: Exchange, message: Any) -> None:
        result = {
            "protocolVersion": self.version,
            "capabilities": self.offered,
            "serverInfo": {"name": "earlier", "version": "1"},
            "instructions": "Be kind.",
        }
        headers = [] if self.session is None else [("mcp-session-id", self.session)]
        exchange.json({"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=headers)

    def _wrong(self, exchange: Exchange, message: Any) -> str | None:
        """Return what is wrong with a request for this version."""
        if exchange.header("mcp-protocol-version") != self.version:
            return "another version"
        if any(exchange.header(name) is not None for name in RELEASED_HEADERS):
            return "a header of 2026-07-28"
        reserved = [name for name in message["params"].get("_meta", {}) if "modelcontextprotocol" in name]
        return f"reserved: {reserved}" if reserved else None

    async def _answer(self, exchange: Exchange, message: Any) -> None:
        result = await self._result(exchange, message, message["params"])
        if result is None:
            exchange.json(
                {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "Method not found"}}
            )
            return
        answer = {
            "jsonrpc": "2.0",
            "id": message["id"],
            **(result if result.keys() & {"result", "error"} else {"result": result}),
        }
        if exchange.begun or self.sends_events:
            exchange.event(answer)
            exchange.end_events()
        else:
            exchange.json(answer)

    async def _result(self, exchange: Exchange, message: Any, params: Params) -> dict[str, Any] | None:
        method = message["method"]
        if method in LISTS:
            member, entries = LISTS[method]
            return {member: entries}
        if method == "tools/call":
            return await TOOLS[params["name"]](self, exchange, message, params.get("arguments", {}))
        if method == "prompts/get":
            content = {"type": "text", "text": f"Hello, {params['arguments']['name']}!"}
            return {"messages": [{"role": "user", "content": content}]}
        if method == "resources/read":
            return {"contents": [{"uri": params["uri"], "text": f"at {params['uri']}"}]}
        if method == "completion/complete":
            return {"completion": {"values": [params["argument"]["value"] + "da"]}}
        return None
