"""A stateless MCP server of 2026-07-28 that records every request byte for byte.

It is strict about what clients must send. It has a tool for each thing that an upstream can do: ask in every way,
report progress, log, take its time, fail. Its record shows what really reached it, in which order and how often.

In a thread of a test: `with Recording() as upstream`. As a process: `python -m tests.upstreams.servers.recording PORT
FILE`. The process appends a line to the file for each effect, so the count survives when it is killed. A control
endpoint shows its record (`GET /record`) and steers it (`POST /control`).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from loadtest.cluster import wait_until
from tests.upstreams.servers.plain_http import Exchange, PlainServer, Served, serve_forever

VERSION = "2026-07-28"
META = "io.modelcontextprotocol"
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32020, -32021, -32022
INVALID_PARAMS, METHOD_NOT_FOUND, VISIT_FIRST = -32602, -32601, -32042
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\nnot really").decode()
ODD_KEYS = ("a~b", "k" * 300, "tab\t", "plain")
STATE_SECRET = b"only this upstream knows it"
NAME_FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
COLOUR_FORM = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": ["red", "blue"]}},
    "required": ["colour"],
}
SAMPLING = {"messages": [{"role": "user", "content": {"type": "text", "text": "A title?"}}], "maxTokens": 50}

Result = dict[str, Any]


class Refusal(Exception):
    """The request gets a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.data = data
        self.status = status


@dataclass
class Call:
    """One recorded request. It `ended` as `working`, `complete`, `input_required`, `error` or `cancelled`."""

    method: str
    name: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    ended: str = "working"

    @property
    def params(self) -> dict[str, Any]:
        params = msgspec.json.decode(self.body)["params"]
        assert isinstance(params, dict)
        return params

    @property
    def arguments(self) -> Any:
        return self.params.get("arguments")

    @property
    def answers(self) -> Any:
        return self.params.get("inputResponses")

    @property
    def meta(self) -> dict[str, Any]:
        meta = self.params["_meta"]
        assert isinstance(meta, dict)
        return meta

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    def shown(self) -> dict[str, Any]:
        """Return it for the control endpoint."""
        return {
            "method": self.method,
            "name": self.name,
            "headers": self.headers,
            "body": base64.b64encode(self.body).decode(),
            "ended": self.ended,
        }


def seal(state: Any) -> str:
    """Return a request state that only this server makes, with characters that are easily damaged on the way."""
    text = msgspec.json.encode(state).decode() + ' ü"\\\u2028 \U0001f511'
    return f"{text}#{hashlib.sha256(STATE_SECRET + text.encode()).hexdigest()}"


def unseal(token: str) -> Any:
    """Return what a request state carries; refuse one that is not byte for byte ours."""
    text, _, digest = token.rpartition("#")
    if hashlib.sha256(STATE_SECRET + text.encode()).hexdigest() != digest:
        raise Refusal(INVALID_PARAMS, "This request state is not mine")
    return msgspec.json.decode(text.rsplit(" ü", 1)[0])


@dataclass
class Leg:
    """One request to a tool, prompt or resource.

    Attributes:
        answers: what answers the questions of the last round; a question that was not asked is left in.
        state: what the last round kept, or None in the first one.
    """

    call: Call
    exchange: Exchange
    arguments: Mapping[str, Any]
    answers: Mapping[str, Any]
    state: Any
    request_id: Any
    server: Recording

    def can(self, *path: str) -> None:
        """Refuse a client that did not declare a capability."""
        declared: Any = self.call.meta[f"{META}/clientCapabilities"]
        for part in path:
            if not isinstance(declared, dict) or part not in declared:
                wanted: dict[str, Any] = {}
                for name in reversed(path):
                    wanted = {name: wanted}
                raise Refusal(MISSING_CAPABILITY, "Missing capability", {"requiredCapabilities": wanted})
            declared = declared[part]

    def ask(self, requests: Mapping[str, Any], state: Any = None, /) -> Result:
        for request in requests.values():
            if request["method"] == "elicitation/create":
                self.can("elicitation", *(["url"] if request["params"].get("mode") == "url" else []))
            elif request["method"] == "sampling/createMessage":
                self.can("sampling", *(["tools"] if "tools" in request["params"] else []))
            elif request["method"] == "roots/list":
                self.can("roots")
        result: Result = {"resultType": "input_required"}
        if requests:
            result["inputRequests"] = dict(requests)
        if state is not None:
            result["requestState"] = seal(state)
        return result

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress if the client wants it."""
        token = self.call.meta.get("progressToken")
        if token is not None:
            told = {"progressToken": token, "progress": done, "total": total, "message": message}
            self.notify("notifications/progress", {name: told[name] for name in told if told[name] is not None})

    def log(self, level: str, data: Any, logger: str = "upstream") -> None:
        """Send a log message if the client wants any."""
        if f"{META}/logLevel" in self.call.meta:
            self.notify("notifications/message", {"level": level, "data": data, "logger": logger})

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        self.exchange.event({"jsonrpc": "2.0", "method": method, "params": params})


Tool = Callable[[Leg], Awaitable[Result]]


def text(value: str, **more: Any) -> Result:
    return {"resultType": "complete", "content": [{"type": "text", "text": value}], **more}


def form(message: str, schema: Mapping[str, Any] = NAME_FORM) -> dict[str, Any]:
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def visit(number: int) -> dict[str, Any]:
    """Return the n-th URL to which a server of 2025-11-25 sends its user, as its errors have it."""
    url = f"https://example.com/in/{number}"
    return {"mode": "url", "elicitationId": "e1", "message": f"Please sign in, {number}", "url": url}


def told(answers: Mapping[str, Any]) -> str:
    """Return answers as text that shows every byte of them, in order."""
    return msgspec.json.encode(answers).decode()


async def echo(leg: Leg) -> Result:
    return text(leg.arguments["text"])


async def structured(leg: Leg) -> Result:
    value = {"sum": sum(leg.arguments["numbers"]), "unknown": [None, {"deep": 1.5}]}
    return text(told(value), structuredContent=value, _meta={"example.com/kept": {"a": 1}}, extra={"member": True})


async def media(leg: Leg) -> Result:
    embedded = {"uri": "note://embedded", "mimeType": "text/plain", "text": "inside", "_meta": {"example.com/b": 2}}
    content = [
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        {"type": "audio", "data": PNG, "mimeType": "audio/wav"},
        {"type": "resource", "resource": embedded},
        {"type": "resource_link", "uri": "note://today", "name": "today"},
        {"type": "hologram", "unknown": {"kind": "kept"}},
    ]
    return {"resultType": "complete", "content": content}


async def fail(leg: Leg) -> Result:
    return text("It failed, in the upstream's words", isError=True)


async def rpc_error(leg: Leg) -> Result:
    raise Refusal(1234, "An error of the upstream's own", {"kept": [1, 2]}, 200)


async def ask_name(leg: Leg) -> Result:
    if not leg.answers:
        return leg.ask({"name": form("What is your name?")}, {"round": 1})
    return text(told(leg.answers))


async def two_rounds(leg: Leg) -> Result:
    """Ask twice under the same key; the second message depends on the first answer."""
    if leg.state is None:
        return leg.ask({"answer": form("What is your name?")}, {"round": 1})
    if leg.state["round"] == 1:
        first = leg.answers["answer"]
        name = (first.get("content") or {}).get("name")
        return leg.ask({"answer": form(f"A colour, {name}?", COLOUR_FORM)}, {"round": 2, "first": first})
    return text(told({"first": leg.state["first"], "second": leg.answers["answer"]}))


async def consent(leg: Leg) -> Result:
    if leg.state is None:
        params = {"mode": "url", "message": "Please sign in", "url": "https://example.com/in", "elicitationId": "e1"}
        return leg.ask({"consent": {"method": "elicitation/create", "params": params}}, {"round": 1})
    return text(told(leg.answers))


async def sign_in(leg: Leg) -> Result:
    """Do these steps, one in each request, then say what came: send the user to a URL, or ask."""
    number = len(leg.server.of(leg.call.name, leg.call.method))
    steps = leg.arguments.get("steps", ["visit"] * leg.arguments.get("times", 1))
    step = steps[number - 1] if number <= len(steps) else "end"
    if step == "visit":
        raise Refusal(VISIT_FIRST, "Sign in first", {"elicitations": [visit(number)]}, 200)
    if step == "ask":
        return leg.ask({"name": form("What is your name?")}, {"round": number})
    leg.server.note("signed in")
    return text(told({"answers": leg.answers, "state": leg.state}))


async def sample(leg: Leg) -> Result:
    if leg.state is None:
        return leg.ask({"title": {"method": "sampling/createMessage", "params": SAMPLING}}, {"round": 1})
    return text(told(leg.answers))


async def roots(leg: Leg) -> Result:
    if leg.state is None:
        return leg.ask({"roots": {"method": "roots/list", "params": {}}}, {"round": 1})
    return text(told(leg.answers))


async def several(leg: Leg) -> Result:
    """Ask three things at once; what is not answered is asked again."""
    have = {**(leg.state or {}), **leg.answers}
    questions = {
        "name": form("What is your name?"),
        "title": {"method": "sampling/createMessage", "params": SAMPLING},
        "roots": {"method": "roots/list", "params": {}},
    }
    missing = {key: question for key, question in questions.items() if key not in have}
    if missing:
        return leg.ask(missing, have)
    return text(told({key: have[key] for key in questions}))


async def odd_keys(leg: Leg) -> Result:
    if leg.state is None:
        return leg.ask({key: form(f"Question {n}?") for n, key in enumerate(ODD_KEYS)}, {"round": 1})
    return text(told({key: leg.answers.get(key) for key in ODD_KEYS}))


async def no_state(leg: Leg) -> Result:
    """Ask without a state of its own: the arguments and the answer are enough."""
    if not leg.answers:
        return leg.ask({"name": form("What is your name?")})
    assert "requestState" not in leg.call.params
    return text(told(leg.answers))


async def big_state(leg: Leg) -> Result:
    if leg.state is None:
        return leg.ask({"name": form("What is your name?")}, {"luggage": "x" * leg.arguments["bytes"]})
    return text(f"{len(leg.state['luggage'])} bytes came back")


async def only_state(leg: Leg) -> Result:
    """Send a state without questions so many times."""
    done = 0 if leg.state is None else leg.state["done"]
    if done < leg.arguments["times"]:
        return leg.ask({}, {"done": done + 1})
    return text(f"{done} times")


async def forbidden_question(leg: Leg) -> Result:
    return leg.ask({"list": {"method": "tools/list", "params": {}}}, {"round": 1})


async def progress(leg: Leg) -> Result:
    for done in range(1, leg.arguments["steps"] + 1):
        leg.progress(done, leg.arguments["steps"], f"step {done}")
    return text("done")


async def logs(leg: Leg) -> Result:
    leg.log("info", {"said": "first"})
    leg.log("warning", "second")
    leg.log("chatter", "of a level that does not exist")
    return text("logged")


async def talk_and_ask(leg: Leg) -> Result:
    """Log and report in each of two legs."""
    if leg.state is None:
        leg.log("info", "before")
        leg.progress(1, 3)
        return leg.ask({"name": form("What is your name?")}, {"round": 1})
    leg.log("info", "after")
    leg.progress(2, 3)
    return text(told(leg.answers))


async def slow(leg: Leg) -> Result:
    """Work until the test opens the gate, or for so many seconds."""
    leg.server.begun.set()
    seconds = leg.arguments.get("seconds")
    if seconds is None:
        await leg.server.gate.wait()
    else:
        await asyncio.sleep(seconds)
    return text("finally")


async def slow_then_ask(leg: Leg) -> Result:
    """Work a while, ask, work a while."""
    await asyncio.sleep(leg.arguments["seconds"])
    return await ask_name(leg)


async def big(leg: Leg) -> Result:
    return text("x" * leg.arguments["bytes"])


async def regional(leg: Leg) -> Result:
    return text(f"{leg.arguments['region']} by header {leg.exchange.header('mcp-param-region')}")


async def act(leg: Leg) -> Result:
    return await _have_effect(leg, leg.arguments)


async def _have_effect(leg: Leg, wanted: Mapping[str, Any]) -> Result:
    """Have an effect, noted where it outlives this process; work before and after it, if so wished."""
    await asyncio.sleep(wanted.get("seconds", 0))
    leg.server.note(wanted["key"])
    await asyncio.sleep(wanted.get("seconds", 0))
    return text(wanted["key"])


async def ask_then_act(leg: Leg) -> Result:
    if leg.state is None:
        return leg.ask({"name": form("May I act?")}, dict(leg.arguments))
    return await _have_effect(leg, leg.state)


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


_TEXT, _INTEGER = {"type": "string"}, {"type": "integer"}
TOOLS: Mapping[str, tuple[Tool, dict[str, Any]]] = {
    "echo": (echo, {"inputSchema": _object(text=_TEXT)}),
    "structured": (
        structured,
        {
            "inputSchema": _object(numbers={"type": "array", "items": {"type": "number"}}),
            "outputSchema": _object(sum={"type": "number"}),
            "annotations": {"readOnlyHint": True, "title": "Adds"},
            "title": "A sum",
            "_meta": {"example.com/list": "kept"},
        },
    ),
    "media": (media, {}),
    "fail": (fail, {}),
    "rpc_error": (rpc_error, {}),
    "ask_name": (ask_name, {}),
    "two_rounds": (two_rounds, {}),
    "consent": (consent, {}),
    "sign_in": (sign_in, {}),
    "sample": (sample, {}),
    "roots": (roots, {}),
    "several": (several, {}),
    "odd_keys": (odd_keys, {}),
    "no_state": (no_state, {}),
    "big_state": (big_state, {"inputSchema": _object(bytes=_INTEGER)}),
    "only_state": (only_state, {"inputSchema": _object(times=_INTEGER)}),
    "forbidden_question": (forbidden_question, {}),
    "progress": (progress, {"inputSchema": _object(steps=_INTEGER)}),
    "logs": (logs, {}),
    "talk_and_ask": (talk_and_ask, {}),
    "slow": (slow, {"inputSchema": {"type": "object", "properties": {"seconds": {"type": "number"}}}}),
    "slow_then_ask": (slow_then_ask, {"inputSchema": _object(seconds={"type": "number"})}),
    "big": (big, {"inputSchema": _object(bytes=_INTEGER)}),
    "regional": (regional, {"inputSchema": _object(region={"type": "string", "x-mcp-header": "Region"})}),
    "act": (act, {"inputSchema": _object(key=_TEXT)}),
    "ask_then_act": (ask_then_act, {"inputSchema": _object(key=_TEXT)}),
}
PROMPTS: Mapping[str, dict[str, Any]] = {
    "greeting": {"description": "Greet somebody", "arguments": [{"name": "name", "required": True}]},
    "asking": {"description": "Ask who is greeted"},
    "signing": {"description": "Send the user to a URL first"},
}
RESOURCES: Mapping[str, dict[str, Any]] = {
    "note://today": {"name": "today", "mimeType": "text/plain"},
    "file:///picture.png": {"name": "picture", "mimeType": "image/png"},
    "note://asking": {"name": "asking"},
    "note://signing": {"name": "signing"},
}
TEMPLATES: Mapping[str, dict[str, Any]] = {"item://{id}": {"name": "items", "mimeType": "application/json"}}
PEOPLE = ("Ada", "Alan", "Grace")


def _listed(name: str) -> dict[str, Any]:
    described = {"name": name, "description": f"The upstream's {name}", "inputSchema": {"type": "object"}}
    return {**described, **(TOOLS[name][1] if name in TOOLS else {"inputSchema": _object(text=_TEXT)})}


@dataclass
class Listener:
    """One stream of `subscriptions/listen`."""

    exchange: Exchange
    request_id: Any
    wanted: Mapping[str, Any]

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        meta = {f"{META}/subscriptionId": self.request_id}
        self.exchange.event({"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": meta}})


@dataclass(eq=False)
class Recording(Served):
    """The server; a context manager that serves in a thread.

    Args:
        tools: the names of its tools, in order; one that is not in `TOOLS` echoes.
        page: how many entries a page has; 0 for all.
        authorize: looks at the headers of each request, and returns a status to refuse it with, or None.
        effects: the file that gets a line for each effect.

    Attributes:
        calls: every request, as it came.
        noted: the keys of effects, in order.
        listeners: the open subscription streams.
        held: every request waits for it; see `hold`.
        gate: what `slow` waits for.
    """

    tools: Sequence[str] = tuple(TOOLS)
    page: int = 0
    authorize: Callable[[Exchange], int | None] = lambda _exchange: None
    effects: Path | None = None
    instructions: str = "Be kind to the upstream."
    prompts: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: PROMPTS)
    resources: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: RESOURCES)
    templates: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: TEMPLATES)
    calls: list[Call] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)
    listeners: list[Listener] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    held: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.server = PlainServer(self.handle)
        self.held.set()
        self._file = None if self.effects is None else os.open(self.effects, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    # What tests ask

    def of(self, name: str, method: str = "tools/call") -> list[Call]:
        """Return the recorded requests for a tool, prompt or URI."""
        return [call for call in list(self.calls) if call.name == name and call.method == method]

    def count(self, method: str) -> int:
        return sum(call.method == method for call in list(self.calls))

    def clear(self) -> None:
        """Forget what was recorded, and close the gate."""
        self._do(self.calls.clear, self.noted.clear, self.gate.clear, self.begun.clear)

    def open(self) -> None:
        """Let `slow` finish."""
        self._do(self.gate.set)

    def hold(self) -> None:
        """Answer nothing from now on."""
        self._do(self.held.clear)

    def release(self) -> None:
        """Answer again, also what came meanwhile."""
        self._do(self.held.set)

    def wait_begun(self) -> None:
        """Wait until `slow` works."""
        self.server.run(asyncio.wait_for(self.begun.wait(), 15))

    def wait_ended(self, name: str) -> Call:
        """Wait until the last request for a tool has ended, and return it."""

        call = self.of(name)[-1]
        wait_until(lambda: call.ended != "working", f"the end of {name}")
        return call

    def serve(self, tools: Sequence[str]) -> None:
        """Serve other tools from now on, and announce it."""
        self.tools = tuple(tools)
        self.announce()

    def announce(self, kind: str = "tools", times: int = 1) -> None:
        """Say that a list has changed, whether it has or not."""
        self._do(*[lambda: self._announce(kind)] * times)

    def update(self, uri: str) -> None:
        """Say that a resource has changed, to those who subscribed to it."""
        self._do(lambda: self._update(uri))

    def _do(self, *steps: Callable[[], object]) -> None:
        """Run functions in the server's loop, one right after the other, and wait for them."""

        async def run() -> None:
            for step in steps:
                step()

        self.server.run(run())

    def _update(self, uri: str) -> None:
        for listener in self.listeners:
            if uri in listener.wanted.get("resourceSubscriptions", ()):
                listener.tell("notifications/resources/updated", {"uri": uri})

    def _announce(self, kind: str) -> None:
        for listener in self.listeners:
            if listener.wanted.get(f"{kind}ListChanged"):
                listener.tell(f"notifications/{kind}/list_changed", {})

    def note(self, key: str) -> None:
        """Note an effect; in the file it survives even if this process is killed right afterwards."""
        self.noted.append(key)
        if self._file is not None:
            os.write(self._file, f"{key}\n".encode())

    # What the gateway asks

    async def handle(self, exchange: Exchange) -> None:
        await self.held.wait()
        if exchange.path.startswith(("/record", "/control")):
            await self._control(exchange)
            return
        if exchange.method != "POST":
            exchange.reply(405)
            return
        status = self.authorize(exchange)
        if status is not None:
            self.calls.append(Call("refused", "", exchange.headers, exchange.body, "error"))
            exchange.reply(status, headers=[("www-authenticate", "Bearer")])
            return
        await self._answer(exchange)

    async def _answer(self, exchange: Exchange) -> None:
        message = msgspec.json.decode(exchange.body)
        method, params = message["method"], message.get("params") or {}
        name = params.get(NAMED.get(method, ""), "")
        call = Call(method, name if isinstance(name, str) else "", exchange.headers, exchange.body)
        self.calls.append(call)
        if "id" not in message:
            exchange.reply(202)
            return
        try:
            self._check(exchange, method, params)
            if method == "subscriptions/listen":
                await self._listen(exchange, message["id"], params)
                return
            result = await self._result(call, exchange, message["id"], params)
            call.ended = str(result["resultType"])
            response = {"jsonrpc": "2.0", "id": message["id"], "result": {**result, "_meta": _meta(result)}}
            status = 200
        except Refusal as refusal:
            call.ended = "error"
            error = {"code": refusal.code, "message": str(refusal)}
            if refusal.data is not None:
                error["data"] = refusal.data
            response, status = {"jsonrpc": "2.0", "id": message["id"], "error": error}, refusal.status
        except asyncio.CancelledError:
            call.ended = "cancelled"
            raise
        if exchange.begun:
            exchange.event(response)
            exchange.end_events()
        else:
            exchange.json(response, status)

    def _check(self, exchange: Exchange, method: str, params: Mapping[str, Any]) -> None:
        """Refuse a request without what 2026-07-28 requires."""
        meta = params.get("_meta") or {}
        if meta.get(f"{META}/protocolVersion") != VERSION or exchange.header("mcp-protocol-version") != VERSION:
            raise Refusal(UNSUPPORTED_VERSION, "Unsupported version", {"supported": [VERSION], "requested": ""})
        if not isinstance(meta.get(f"{META}/clientCapabilities"), dict):
            raise Refusal(INVALID_PARAMS, "No client capabilities")
        if exchange.header("mcp-method") != method:
            raise Refusal(HEADER_MISMATCH, "Mcp-Method differs")
        if method in NAMED and decoded(exchange.header("mcp-name")) != params.get(NAMED[method]):
            raise Refusal(HEADER_MISMATCH, "Mcp-Name differs")
        accepted = exchange.header("accept") or ""
        if "application/json" not in accepted or "text/event-stream" not in accepted:
            raise Refusal(INVALID_PARAMS, "Accept lacks a type", status=406)

    async def _result(self, call: Call, exchange: Exchange, request_id: Any, params: Mapping[str, Any]) -> Result:
        leg = Leg(
            call, exchange, params.get("arguments") or {}, params.get("inputResponses") or {}, None, request_id, self
        )
        if "requestState" in params:
            leg.state = unseal(params["requestState"])
        if call.method in LISTS:
            return self._page(LISTS[call.method], self._entries(call.method), params)
        answers: Mapping[str, Tool] = {
            "server/discover": self._discovered,
            "tools/call": self._call,
            "prompts/get": self._prompt,
            "resources/read": self._read,
            "completion/complete": _completion,
        }
        if call.method not in answers:
            raise Refusal(METHOD_NOT_FOUND, "Method not found", status=404)
        return await answers[call.method](leg)

    def _entries(self, method: str) -> Sequence[Mapping[str, Any]]:
        match method:
            case "tools/list":
                return [_listed(name) for name in self.tools]
            case "prompts/list":
                return [{"name": name, **entry} for name, entry in self.prompts.items()]
            case "resources/list":
                return [{"uri": uri, **entry} for uri, entry in self.resources.items()]
        return [{"uriTemplate": uri, **entry} for uri, entry in self.templates.items()]

    async def _call(self, leg: Leg) -> Result:
        name = leg.call.name
        if name not in self.tools:
            raise Refusal(INVALID_PARAMS, f"Unknown tool: {name}")
        if name == "regional" and leg.exchange.header("mcp-param-region") != leg.arguments.get("region"):
            raise Refusal(HEADER_MISMATCH, "Mcp-Param-Region differs")
        return await (TOOLS[name][0] if name in TOOLS else echo)(leg)

    async def _discovered(self, _leg: Leg) -> Result:
        capabilities = {
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
            "completions": {},
            "logging": {},
        }
        return {
            "resultType": "complete",
            "supportedVersions": [VERSION],
            "capabilities": capabilities,
            "instructions": self.instructions,
            "ttlMs": 60_000,
            "cacheScope": "public",
        }

    def _page(self, kind: str, entries: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> Result:
        start = int(params["cursor"].removeprefix("after ")) if "cursor" in params else 0
        end = start + self.page if self.page else len(entries)
        result = {"resultType": "complete", kind: entries[start:end], "ttlMs": 60_000, "cacheScope": "public"}
        return {**result, "nextCursor": f"after {end}"} if end < len(entries) else result

    async def _prompt(self, leg: Leg) -> Result:
        if leg.call.name not in self.prompts:
            raise Refusal(INVALID_PARAMS, f"Unknown prompt: {leg.call.name}")
        if leg.call.name == "asking" and not leg.answers:
            return leg.ask({"name": form("Who is greeted?")}, {"round": 1})
        if leg.call.name == "signing":
            await sign_in(leg)
        said = told(leg.answers) if leg.call.name == "asking" else f"Hello, {leg.arguments.get('name')}"
        link = {"type": "resource_link", "uri": "note://today", "name": "today"}
        messages = [{"role": "user", "content": {"type": "text", "text": said}}, {"role": "user", "content": link}]
        return {"resultType": "complete", "messages": messages}

    async def _read(self, leg: Leg) -> Result:
        uri = leg.call.name
        content: dict[str, Any] = {"uri": uri, "mimeType": "text/plain"}
        if uri == "note://asking" and not leg.answers:
            return leg.ask({"name": form("Who reads?")}, {"round": 1})
        if uri == "note://signing":
            await sign_in(leg)
        if uri == "file:///picture.png":
            content |= {"mimeType": "image/png", "blob": PNG}
        elif uri in self.resources:
            content["text"] = told(leg.answers) if leg.answers else "a note"
        elif uri.startswith("item://"):
            content["text"] = f"item {uri.removeprefix('item://')}"
        else:
            raise Refusal(INVALID_PARAMS, f"Unknown resource: {uri}", {"uri": uri})
        return {"resultType": "complete", "contents": [content], "ttlMs": 5000, "cacheScope": "private"}

    async def _listen(self, exchange: Exchange, request_id: Any, params: Mapping[str, Any]) -> None:
        wanted = params.get("notifications") or {}
        listener = Listener(exchange, request_id, wanted)
        listener.tell("notifications/subscriptions/acknowledged", {"notifications": wanted})
        self.listeners.append(listener)
        try:
            await asyncio.Event().wait()
        finally:
            self.listeners.remove(listener)

    async def _control(self, exchange: Exchange) -> None:
        if exchange.method == "GET":
            shown = [call.shown() for call in self.calls]
            exchange.json({"calls": shown, "noted": self.noted, "listeners": len(self.listeners)})
            return
        wanted = msgspec.json.decode(exchange.body)
        if "tools" in wanted:
            self.tools = tuple(wanted["tools"])
        if wanted.get("clear"):
            self.calls.clear()
        if wanted.get("open"):
            self.gate.set()
        for kind in wanted.get("announce", ()):
            self._announce(kind)
        exchange.json({})


async def _completion(leg: Leg) -> Result:
    value = leg.call.params["argument"]["value"]
    values = [name for name in PEOPLE if name.startswith(value)]
    return {"resultType": "complete", "completion": {"values": values, "total": len(values), "hasMore": False}}


def _meta(result: Result) -> dict[str, Any]:
    return {**result.get("_meta", {}), f"{META}/serverInfo": {"name": "recording", "version": "1"}}


def decoded(value: str | None) -> str | None:
    """Return the value of a header that may be encoded in Base64 (2026-07-28, "Value Encoding")."""
    if value is not None and value.startswith("=?base64?") and value.endswith("?="):
        return base64.b64decode(value[9:-2]).decode()
    return value


def main() -> None:
    """Serve as a process: the port, the file of effects, and the number of further tools."""
    port, effects, more = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0
    tools = (*TOOLS, *(f"tool_{number:04d}" for number in range(more)))
    serve_forever(Recording(tools, effects=effects).handle, port)


if __name__ == "__main__":
    main()
