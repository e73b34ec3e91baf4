"""An MCP server that breaks one rule at a time.

Each tool of `CALLS` breaks one in its answer; each mode of `LISTS` breaks one when the server is discovered or listed.
`echo` always works, so a test can see that a fault stays where it is.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from gateway.upstreams.failures import Reason
from tests.upstreams.servers.plain_http import Exchange, PlainServer, Served
from tests.upstreams.servers.recording import META, VERSION

GIGABYTE = 2**30
PIECE = b"x" * 65536
LONG = "n" * 5000
CONTROL = "a\x00b\x1b[31m\x7f\u202e\u0085c"
SECRET = "hostile-words-that-nobody-may-see"
Json = Any
Mode = Callable[[Exchange, Any], Awaitable[None]]


def response(request_id: Json, result: Json) -> dict[str, Json]:
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def text(value: str, **more: Json) -> dict[str, Json]:
    return {"resultType": "complete", "content": [{"type": "text", "text": value}], **more}


def bytes_of(body: bytes, status: int = 200, kind: str = "application/json") -> Mode:
    """Answer with these bytes; `ID` in them becomes the request's id."""

    async def mode(exchange: Exchange, request_id: Json) -> None:
        exchange.reply(status, body.replace(b"ID", msgspec.json.encode(request_id)), [("content-type", kind)])

    return mode


def result_of(result: Json) -> Mode:
    async def mode(exchange: Exchange, request_id: Json) -> None:
        exchange.json(response(request_id, result))

    return mode


def error_of(error: Json) -> Mode:
    async def mode(exchange: Exchange, request_id: Json) -> None:
        exchange.json({"jsonrpc": "2.0", "id": request_id, "error": error})

    return mode


def status_of(status: int, *headers: tuple[str, str]) -> Mode:
    async def mode(exchange: Exchange, _request_id: Json) -> None:
        exchange.reply(status, SECRET.encode(), headers)

    return mode


def id_of(make: Callable[[Json], Json]) -> Mode:
    async def mode(exchange: Exchange, request_id: Json) -> None:
        exchange.json(response(make(request_id), text("for somebody else")))

    return mode


async def huge_body(exchange: Exchange, request_id: Json) -> None:
    """Announce and send a gigabyte."""
    exchange.head(200, [("content-type", "application/json"), ("content-length", str(GIGABYTE))])
    exchange.raw(b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"' % str(request_id).encode())
    while not exchange.gone:
        exchange.raw(PIECE)
        await exchange.drain()


async def huge_chunked(exchange: Exchange, request_id: Json) -> None:
    """Send a gigabyte without announcing it."""
    exchange.head(200, [("content-type", "application/json"), ("transfer-encoding", "chunked")])
    exchange.chunk(b'{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"' % str(request_id).encode())
    while not exchange.gone:
        exchange.chunk(PIECE)
        await exchange.drain()


async def huge_event(exchange: Exchange, _request_id: Json) -> None:
    """Send an event of a gigabyte."""
    exchange.begin_events()
    exchange.chunk(b"data: ")
    while not exchange.gone:
        exchange.chunk(PIECE)
        await exchange.drain()


async def unzipped(exchange: Exchange, request_id: Json) -> None:
    """Send a compressed body that nobody asked for; it grows a hundredfold."""
    body = gzip.compress(msgspec.json.encode(response(request_id, text("x" * 4_000_000))), 1)
    exchange.reply(200, body, [("content-type", "application/json"), ("content-encoding", "gzip")])


async def half_event(exchange: Exchange, _request_id: Json) -> None:
    """Send half an event, then nothing."""
    exchange.begin_events()
    exchange.chunk(b'event: message\ndata: {"jsonrpc":"2.0","id"')
    await asyncio.Event().wait()


async def half_event_cut(exchange: Exchange, _request_id: Json) -> None:
    """Send half an event, and close the connection."""
    exchange.begin_events()
    exchange.chunk(b'event: message\ndata: {"jsonrpc":"2.0","id"')
    exchange.cut()


async def half_body(exchange: Exchange, _request_id: Json) -> None:
    """Announce more than is sent, and close the connection."""
    exchange.head(200, [("content-type", "application/json"), ("content-length", "1000")])
    exchange.raw(b'{"jsonrpc":')
    exchange.cut()


async def ended_stream(exchange: Exchange, _request_id: Json) -> None:
    """End an event stream without a response."""
    exchange.begin_events()
    exchange.chunk(b": nothing more\n\n")
    exchange.end_events()


async def silence(_exchange: Exchange, _request_id: Json) -> None:
    await asyncio.Event().wait()


async def silent_stream(exchange: Exchange, _request_id: Json) -> None:
    exchange.begin_events()
    await asyncio.Event().wait()


async def endless_body(exchange: Exchange, _request_id: Json) -> None:
    """Send a byte now and then, endlessly."""
    exchange.head(200, [("content-type", "application/json"), ("transfer-encoding", "chunked")])
    while not exchange.gone:
        exchange.chunk(b" ")
        await asyncio.sleep(0.01)


async def endless_head(exchange: Exchange, _request_id: Json) -> None:
    exchange.raw(b"HTTP/1.1 200 OK\r\n")
    while not exchange.gone:
        exchange.raw(b"x-more: and more\r\n")
        await exchange.drain()
        await asyncio.sleep(0)


async def endless_comments(exchange: Exchange, _request_id: Json) -> None:
    """Keep an event stream alive endlessly."""
    exchange.begin_events()
    while not exchange.gone:
        exchange.chunk(b": still here\n\n")
        await asyncio.sleep(0.01)


async def endless_notices(exchange: Exchange, _request_id: Json) -> None:
    """Send log messages endlessly."""
    while not exchange.gone:
        params = {"level": "info", "data": "x" * 1000}
        exchange.event({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
        await exchange.drain()
        await asyncio.sleep(0.001)  # slowly enough to reach the time limit before the limit of a stream


async def cut(exchange: Exchange, _request_id: Json) -> None:
    exchange.cut()


async def not_http(exchange: Exchange, _request_id: Json) -> None:
    exchange.raw(b"220 mail.example.com ESMTP\r\n")
    exchange.cut()


async def request_on_stream(exchange: Exchange, request_id: Json) -> None:
    """Send a request to the client, as sessions do, then the result."""
    params = {"mode": "form", "message": "Name?", "requestedSchema": {"type": "object", "properties": {}}}
    exchange.event({"jsonrpc": "2.0", "id": "mine", "method": "elicitation/create", "params": params})
    exchange.event(response(request_id, text("asked anyway")))
    exchange.end_events()


async def two_responses(exchange: Exchange, request_id: Json) -> None:
    """Answer twice: the first counts."""
    exchange.event(response(request_id, text("the first")))
    exchange.event(response(request_id, text("the second")))
    exchange.end_events()


async def other_response_first(exchange: Exchange, request_id: Json) -> None:
    """Send a response to a request that nobody made, then the right one."""
    exchange.event(response("somebody else's", text("the wrong one")))
    exchange.event(response(request_id, text("the right one")))
    exchange.end_events()


def asking(**result: Json) -> Mode:
    return result_of({"resultType": "input_required", **result})


def deep(levels: int) -> bytes:
    nested = b"[" * levels + b"]" * levels
    return b'{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","content":[],"structuredContent":%s}}' % nested


def send_to(url: str) -> Json:
    """Return a question that sends the user to a URL."""
    return {"method": "elicitation/create", "params": {"mode": "url", "message": "Sign in", "url": url}}


def consent(url: str, times: int = 1, **more: Json) -> Json:
    """Return the error with which a server of 2025-11-25 sends the user to a URL."""
    elicitation = {"mode": "url", "elicitationId": "e", "message": "Sign in", "url": url, **more}
    return {"code": -32042, "message": "Sign in first", "data": {"elicitations": [elicitation] * times}}


_OPEN = b'{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","content":[]'
CALLS: Mapping[str, Mode] = {
    "echo": result_of(text("fine")),
    "wrong_id": id_of(lambda request_id: f"{request_id}0"),
    "null_id": id_of(lambda _request_id: None),
    "no_id": bytes_of(b'{"jsonrpc":"2.0","result":{"resultType":"complete","content":[]}}'),
    "duplicate_names": bytes_of(_OPEN + b',"isError":false,"isError":true}}'),
    "deep_duplicate_names": bytes_of(_OPEN + b',"structuredContent":{"a":[{"b":1,"\\u0062":2}]}}}'),
    "too_deep": bytes_of(deep(5000)),
    "huge_body": huge_body,
    "huge_chunked": huge_chunked,
    "huge_event": huge_event,
    "unzipped": unzipped,
    "half_event": half_event,
    "half_event_cut": half_event_cut,
    "half_body": half_body,
    "ended_stream": ended_stream,
    "silence": silence,
    "silent_stream": silent_stream,
    "endless_body": endless_body,
    "endless_head": endless_head,
    "endless_comments": endless_comments,
    "endless_notices": endless_notices,
    "cut": cut,
    "not_http": not_http,
    "redirect": status_of(302, ("location", "/elsewhere")),
    "redirect_307": status_of(307, ("location", "/elsewhere")),
    "unauthorized": status_of(401, ("www-authenticate", f'Bearer error_description="{SECRET}"')),
    "forbidden": status_of(403),
    "missing": status_of(404),
    "failed": status_of(500),
    "bad_gateway": status_of(502),
    "unavailable": status_of(503, ("retry-after", "1")),
    "too_many": status_of(429, ("retry-after", "100000")),
    "not_json": bytes_of(f"<html>{SECRET}</html>".encode(), kind="text/html"),
    "wrong_type": bytes_of(b"hello", kind="text/plain"),
    "empty": bytes_of(b""),
    "accepted": bytes_of(b"", 202),
    "array": bytes_of(b"[]"),
    "both": bytes_of(_OPEN + b'},"error":{"code":1,"message":"both"}}'),
    "neither": bytes_of(b'{"jsonrpc":"2.0","id":ID}'),
    "no_result_object": bytes_of(b'{"jsonrpc":"2.0","id":ID,"result":7}'),
    "not_a_number": bytes_of(_OPEN + b',"structuredContent":{"a":NaN}}}'),
    "raw_control": bytes_of(b'{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"a\x01b"}]}}'),
    "bad_utf8": bytes_of(b'{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"\xff\xfe"}]}}'),
    "lone_surrogate": bytes_of(
        b'{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","content":[{"type":"text","text":"a\\ud800b"}]}}'
    ),
    "unknown_result_type": result_of({"resultType": "hologram", "content": []}),
    "task_result": result_of({"resultType": "task", "taskId": "t1", "status": "working"}),
    "reserved_meta": result_of(
        text(
            "fine",
            _meta={
                f"{META}/serverInfo": {"name": SECRET, "version": "1"},
                f"{META}/subscriptionId": SECRET,
                "dev.mcp/own": SECRET,
                "example.com/kept": 1,
            },
        )
    ),
    "asks_nothing": asking(),
    "asks_no_object": asking(inputRequests=[], requestState="s"),
    "asks_no_request": asking(inputRequests={"q": 7}, requestState="s"),
    "asks_too_much": asking(inputRequests={"q": {"method": "tools/list", "params": {}}}, requestState="s"),
    "asks_script": asking(inputRequests={"q": send_to("javascript:alert(1)")}, requestState="s"),
    "asks_file": asking(inputRequests={"good": send_to("https://a.example/in"), "q": send_to("file:///etc/passwd")}),
    "asks_endlessly": asking(requestState="s"),
    "state_no_text": asking(inputRequests={}, requestState=7),
    "state_huge": asking(inputRequests={"q": {"method": "roots/list", "params": {}}}, requestState="s" * 600_000),
    "asks_thousands": asking(
        inputRequests={f"q{n}": {"method": "roots/list", "params": {}} for n in range(5000)}, requestState="s"
    ),
    "error_long": error_of({"code": 5, "message": LONG * 20, "data": {"kept": True}}),
    "error_control": error_of({"code": 5, "message": CONTROL}),
    "error_ours": error_of(
        {"code": -31001, "message": "Try again", "data": {"retryAfterSeconds": 1, "requestState": SECRET}}
    ),
    "error_of_a_state": error_of(
        {"code": -32602, "message": "Start again", "data": {"reason": "invalid_request_state", "requestState": SECRET}}
    ),
    "error_reserved": error_of({"code": -32050, "message": "Reserved"}),
    "error_version": error_of({"code": -32022, "message": "Unsupported protocol version", "data": {"supported": []}}),
    "error_consent_script": error_of(consent("javascript:alert(1)")),
    "error_consent": error_of(consent("https://a.example/in")),
    "error_consent_no_host": error_of(consent("https://")),
    "error_consent_form": error_of(consent("https://a.example/in", mode="form", requestedSchema={"type": "object"})),
    "error_consent_nothing": error_of({"code": -32042, "message": "Sign in first"}),
    "error_consent_thousands": error_of(consent("https://a.example/in", 300)),
    "error_consent_endless": error_of(consent("https://a.example/in", 5000)),
    "error_consent_long": error_of(consent("https://a.example/in", message=LONG * 10)),
    "error_no_code": error_of({"code": "five", "message": "text"}),
    "error_no_object": error_of("wrong"),
    "request_on_stream": request_on_stream,
    "two_responses": two_responses,
    "other_response_first": other_response_first,
}

ECHO = {"name": "echo", "inputSchema": {"type": "object"}}


def _tools(*tools: Json, **more: Json) -> Mode:
    return result_of({"resultType": "complete", "tools": list(tools), "ttlMs": 60_000, "cacheScope": "public", **more})


class _Counting:
    """Answers each page with another cursor."""

    def __init__(self) -> None:
        self.pages = 0

    async def __call__(self, exchange: Exchange, request_id: Json) -> None:
        self.pages += 1
        listed = {"name": f"tool_{self.pages}", "inputSchema": {"type": "object"}}
        result = {"resultType": "complete", "tools": [ECHO, listed], "nextCursor": f"c{self.pages}"}
        exchange.json(response(request_id, result))


FAILURES = {
    "wrong_id": Reason.WRONG_ID,
    "null_id": Reason.WRONG_ID,
    "no_id": Reason.WRONG_ID,
    "other_response_first": Reason.WRONG_ID,
    "duplicate_names": Reason.MALFORMED,
    "deep_duplicate_names": Reason.MALFORMED,
    "too_deep": Reason.MALFORMED,
    "unzipped": Reason.MALFORMED,
    "not_http": Reason.MALFORMED,
    "not_json": Reason.MALFORMED,
    "wrong_type": Reason.MALFORMED,
    "empty": Reason.MALFORMED,
    "accepted": Reason.MALFORMED,
    "array": Reason.MALFORMED,
    "both": Reason.MALFORMED,
    "neither": Reason.MALFORMED,
    "no_result_object": Reason.MALFORMED,
    "not_a_number": Reason.MALFORMED,
    "raw_control": Reason.MALFORMED,
    "bad_utf8": Reason.MALFORMED,
    "unknown_result_type": Reason.MALFORMED,
    "task_result": Reason.MALFORMED,
    "huge_body": Reason.TOO_LARGE,
    "huge_chunked": Reason.TOO_LARGE,
    "huge_event": Reason.TOO_LARGE,
    "endless_notices": Reason.TOO_LARGE,
    "half_event_cut": Reason.CUT,
    "half_body": Reason.CUT,
    "ended_stream": Reason.CUT,
    "cut": Reason.CUT,
    "failed": Reason.SERVER_ERROR,
    "bad_gateway": Reason.SERVER_ERROR,
    "request_on_stream": Reason.UNASKED,
}
"""How each fault of the hostile server ends that comes after the request was received."""

SILENT = ["half_event", "silence", "silent_stream", "endless_body", "endless_comments"]

UNSENT = {
    "redirect": Reason.REDIRECT,
    "redirect_307": Reason.REDIRECT,
    "unauthorized": Reason.UNAUTHORIZED,
    "forbidden": Reason.FORBIDDEN,
    "missing": Reason.NOT_FOUND,
    "unavailable": Reason.SERVER_ERROR,
    "too_many": Reason.BUSY,
}
"""The same for answers that say that nothing was done."""

LISTS: Mapping[str, Callable[[], Mode]] = {
    "asks_on_a_list": lambda: asking(inputRequests={"q": {"method": "roots/list", "params": {}}}, requestState="s"),
    "cursor_loop": lambda: _tools(ECHO, nextCursor="again"),
    "endless_cursors": _Counting,
    "cursor_no_text": lambda: _tools(ECHO, nextCursor={"a": 1}),
    "cursor_huge": lambda: _tools(ECHO, nextCursor="c" * 1_000_000),
    "long_name": lambda: _tools(ECHO, {"name": LONG, "inputSchema": {"type": "object"}}),
    "control_characters": lambda: _tools(
        ECHO, {"name": CONTROL, "description": CONTROL, "title": CONTROL, "inputSchema": {"type": "object"}}
    ),
    "huge_description": lambda: _tools({**ECHO, "description": "d" * 100_000}),
    "huge_schema": lambda: _tools(
        ECHO, {"name": "wide", "inputSchema": {"type": "object", "description": "d" * 100_000}}
    ),
    "entries_of_other_kinds": lambda: _tools(ECHO, 7, None, "text", {"name": 7}, {"name": "bare"}, {"name": ""}),
    "one_name_twice": lambda: _tools(ECHO, {**ECHO, "description": "another"}),
    "invalid_param_header": lambda: _tools(
        ECHO,
        {
            "name": "routed",
            "inputSchema": {"type": "object", "properties": {"a": {"type": "array", "x-mcp-header": "no token"}}},
        },
    ),
    "schema_that_does_not_compile": lambda: _tools(
        ECHO, {"name": "odd", "inputSchema": {"type": "object", "properties": {"a": {"type": "objekt"}}}}
    ),
    "reserved_meta_in_an_entry": lambda: _tools({**ECHO, "_meta": {f"{META}/own": SECRET, "example.com/kept": 1}}),
    "many_tools": lambda: _tools(ECHO, *({**ECHO, "name": f"t{n}"} for n in range(12_000))),
    "list_duplicate_names": lambda: bytes_of(b'{"jsonrpc":"2.0","id":ID,"result":{"tools":[],"tools":[]}}'),
    "list_no_array": lambda: result_of({"resultType": "complete", "tools": {"echo": {}}}),
    "list_huge": lambda: huge_body,
    "list_silent": lambda: silence,
    "list_redirects": lambda: status_of(302, ("location", "/elsewhere")),
    "list_unauthorized": lambda: status_of(401),
    "list_fails": lambda: status_of(500),
    "list_wrong_id": lambda: id_of(lambda request_id: f"{request_id}0"),
}

BROKEN_DISCOVERIES: Mapping[str, Mode] = {
    "discovery_missing": status_of(404),
    "discovery_fails": status_of(500),
    "discovery_not_json": bytes_of(b"<html></html>", kind="text/html"),
    "discovery_silent": silence,
    "discovery_no_versions": result_of({"resultType": "complete", "capabilities": {}}),
    "discovery_other_version": result_of(
        {"resultType": "complete", "supportedVersions": ["2025-11-25"], "capabilities": {"tools": {}}}
    ),
    "discovery_asks": asking(inputRequests={"q": {"method": "roots/list", "params": {}}}, requestState="s"),
}

MODES: Sequence[str] = (*LISTS, *BROKEN_DISCOVERIES)


class Hostile(Served):
    """The server; a context manager that serves in a thread. The `mode` names what it breaks in discovery or a list."""

    def __init__(self, mode: str = "") -> None:
        self.mode = mode
        self.asked: list[str] = []
        self.followed = 0
        self._list = LISTS[mode]() if mode in LISTS else _tools(*({**ECHO, "name": name} for name in CALLS))
        self.server = PlainServer(self.handle)

    async def handle(self, exchange: Exchange) -> None:
        if exchange.path != "/mcp":
            self.followed += 1
            exchange.json(response(1, text("followed")))
            return
        message = msgspec.json.decode(exchange.body)
        method, request_id, params = message["method"], message.get("id"), message.get("params") or {}
        name = params.get("name", "") if method == "tools/call" else ""
        self.asked.append(f"{method} {name}".strip())
        await self._mode(method, name)(exchange, request_id)

    def _mode(self, method: str, name: str) -> Mode:
        if method == "server/discover":
            return BROKEN_DISCOVERIES.get(self.mode) or result_of(
                {"resultType": "complete", "supportedVersions": [VERSION], "capabilities": {"tools": {}}}
            )
        if method == "tools/list":
            return self._list
        if method == "tools/call":
            return CALLS.get(name, CALLS["echo"])
        return error_of({"code": -32601, "message": "Method not found"})
