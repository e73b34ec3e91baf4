"""The benchmark cases: requests of the 2026-07-28 wire, and checks of their answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeAlias

from bench.clients import Client, together
from bench.load import Exchange, LoadError

WIRE = "2026-07-28"
FORMS: dict[str, Any] = {"elicitation": {"form": {}}}
FORMS_AND_TASKS: dict[str, Any] = FORMS | {"extensions": {"io.modelcontextprotocol/tasks": {}}}
"""The capabilities of a client whose calls may become tasks; `FORMS` has those of the others."""
RAW_BODY = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "hello"}]}}, separators=(",", ":")
).encode()
"""The answer of the raw ASGI echo to every request."""

EXCHANGES_PER_CONNECTION = 8
"""How many distinct requests one connection sends in turn, so no two in flight are alike."""


def call(
    port: int, request_id: int, tool: str, arguments: dict[str, Any], *, token: str | None = None, **params: Any
) -> bytes:
    """Return a whole `tools/call` request, as the official client would send it."""
    return request(port, request_id, "tools/call", tool, {"name": tool, "arguments": arguments, **params}, token=token)


def request(
    port: int,
    request_id: int,
    method: str,
    name: str,
    params: dict[str, Any],
    *,
    token: str | None = None,
    capabilities: dict[str, Any] = FORMS,
    progress_token: str | None = None,
) -> bytes:
    """Return a whole request; `name` is the target that its headers name, "" for none."""
    meta: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": WIRE,
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1.0.0"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
    if progress_token is not None:
        meta["progressToken"] = progress_token
    message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**params, "_meta": meta}}
    body = json.dumps(message, separators=(",", ":")).encode()
    lines = [
        "POST /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Accept: application/json, text/event-stream",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        f"MCP-Protocol-Version: {WIRE}",
        f"Mcp-Method: {method}",
    ]
    if name:
        lines.append(f"Mcp-Name: {name}")
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*lines, "", ""]).encode() + body


class Target(NamedTuple):
    """Where plans lead.

    Attributes:
        port: the port of a server on 127.0.0.1.
        tokens: the bearer token of each connection, None where the server needs none. Each user has a connection.
        first_port: the port that first legs are sent to; None if it is the same.
    """

    port: int
    tokens: Sequence[str | None]
    first_port: int | None = None


Plans: TypeAlias = list[list[Exchange]]
"""For each connection, the exchanges that it repeats in turn."""


def fixed_plans(target: Target) -> Plans:
    """Return plans for servers without MCP: requests of `echo`, with one fixed answer."""
    return [[Exchange(exchange.request, _check_raw) for exchange in plan] for plan in echo_plans(target)]


def echo_plans(target: Target, tool: str = "echo") -> Plans:
    """Return plans for a tool that echoes: each request has a different text."""

    def exchange(number: int, token: str | None) -> Exchange:
        text = f"hello from request {number:04d}"
        return Exchange(
            call(target.port, number, tool, {"text": text}, token=token),
            partial(check_complete, number=number, text=text),
        )

    return _plans(target, exchange)


def first_leg_plans(target: Target, tool: str = "ask") -> Plans:
    """Return plans for the first leg: each answer is one question, and a state that differs every time."""

    def exchange(number: int, token: str | None) -> Exchange:
        return _asking(call(target.port, number, tool, {}, token=token), number)

    return _plans(target, exchange)


def retry_leg_plans(target: Target) -> Plans:
    """Return plans for the retry leg, which answers an earlier question."""
    return _answering_plans(target, "ask", {}, "Hello, {name}!")


def carrying_plans(target: Target, kib: int) -> Plans:
    """Return plans for the retry leg of a call whose state has `kib` KiB."""
    size = kib * 1024
    return _answering_plans(target, "carry", {"size": size}, f"Hello, {{name}}, with {size} bytes!")


def _answering_plans(target: Target, tool: str, arguments: dict[str, Any], text: str) -> Plans:
    port = target.first_port or target.port
    first = [call(port, 0, tool, arguments, token=token) for token in target.tokens]
    questions = dict(zip(target.tokens, ask_each(port, first), strict=True)) if target.tokens[0] else {}
    unbound = None if questions else ask_each(port, first[:1])[0]

    def exchange(number: int, token: str | None) -> Exchange:
        params = answering(unbound or questions[token], f"User {number:04d}")
        return Exchange(
            call(target.port, number, tool, arguments, token=token, **params),
            partial(check_complete, number=number, text=text.format(name=f"User {number:04d}")),
        )

    return _plans(target, exchange)


def rounds_plans(target: Target, questions: int = 3) -> Plans:
    """Return plans for calls with several questions in sequence: each connection does all legs in turn."""
    params: list[dict[str, Any]] = [{} for _ in target.tokens]
    plans: Plans = [[] for _ in target.tokens]
    for leg in range(questions + 1):
        requests = [
            call(target.port, leg, "greet", {"count": questions}, token=token, **given)
            for token, given in zip(target.tokens, params, strict=True)
        ]
        if leg == questions:
            check = partial(check_complete, number=leg, text=f"Hello, {', '.join(['Ada'] * questions)}!")
            for plan, request_bytes in zip(plans, requests, strict=True):
                plan.append(Exchange(request_bytes, check))
        else:
            for plan, request_bytes in zip(plans, requests, strict=True):
                plan.append(_asking(request_bytes, leg))
            params = [answering(body, "Ada") for body in ask_each(target.port, requests)]
    return plans


def list_plans(target: Target) -> Plans:
    """Return plans for `tools/list`."""

    def exchange(number: int, token: str | None) -> Exchange:
        return Exchange(request(target.port, number, "tools/list", "", {}, token=token), partial(_check_list, number))

    return _plans(target, exchange)


def progress_plans(target: Target, events: int = 10) -> Plans:
    """Return plans for a call that reports progress `events` times, on a stream."""

    def exchange(number: int, token: str | None) -> Exchange:
        params = {"name": "tell", "arguments": {"count": events}}
        sent = request(target.port, number, "tools/call", "tell", params, token=token, progress_token="p")
        return Exchange(sent, partial(_check_stream, events=events))

    return _plans(target, exchange)


def refused_plans(target: Target) -> Plans:
    """Return plans for requests with an invalid token."""

    def exchange(number: int, token: str | None) -> Exchange:
        refused = call(target.port, number, "echo", {"text": "hello"}, token=f"{token}x")
        return Exchange(refused, _check_refused, head=b"HTTP/1.1 401 ")

    return _plans(target, exchange)


def _plans(target: Target, exchange: Callable[[int, str | None], Exchange]) -> Plans:
    numbers = count(1000)
    return [[exchange(next(numbers), token) for _ in range(EXCHANGES_PER_CONNECTION)] for token in target.tokens]


def _asking(request_bytes: bytes, number: int) -> Exchange:
    return Exchange(request_bytes, partial(check_question, number=number), state_of)


def ask_each(port: int, requests: Sequence[bytes]) -> list[bytes]:
    """Send each request once, and return the bodies of the answers.

    Raises:
        LoadError: the server does not answer.
    """
    bodies: list[bytes] = [b""] * len(requests)

    def asking(place: int) -> Client:
        answer = yield requests[place]
        bodies[place] = answer.body if answer is not None else b""

    together(port, map(asking, range(len(requests))))
    return bodies


def answering(question: bytes, name: str) -> dict[str, Any]:
    """Return the parameters that resume a call which asked for a name.

    Raises:
        LoadError: it did not ask.
    """
    result = json.loads(question).get("result", {})
    if "inputRequests" not in result:
        raise LoadError(f"expected a question, got {question[:300]!r}")
    (key,) = result["inputRequests"]
    answer = {key: {"action": "accept", "content": {"name": name}}}
    return {"inputResponses": answer, "requestState": result["requestState"]}


def check_complete(body: bytes, number: int, text: str) -> str | None:
    """Check a completed call: its own id, and exactly one text block, which is `text`."""
    message = json.loads(body)
    result = message.get("result", {})
    texts = [block.get("text") for block in result.get("content", [])]
    if message.get("id") == number and result.get("resultType") == "complete" and texts == [text]:
        return "an error result" if result.get("isError") else None
    return f"expected {text!r} for request {number}, got {body[:300]!r}"


def check_question(body: bytes, number: int) -> str | None:
    """Check an input-required result: its own id, one form question about a name, and a state."""
    message = json.loads(body)
    result = message.get("result", {})
    questions = list(result.get("inputRequests", {}).values())
    asks_name = len(questions) == 1 and "name" in questions[0]["params"]["requestedSchema"]["properties"]
    has_state = isinstance(result.get("requestState"), str) and len(result["requestState"]) > 64
    if message.get("id") == number and result.get("resultType") == "input_required" and asks_name and has_state:
        return None
    return f"expected a question for request {number}, got {body[:300]!r}"


def state_of(body: bytes) -> bytes:
    """Return the sealed state of an input-required result, without the prefix that all tokens of a server share."""
    state: str = json.loads(body)["result"]["requestState"]
    return state[3:].encode()


def _check_raw(body: bytes) -> str | None:
    return None if body == RAW_BODY else f"expected {RAW_BODY!r}, got {body[:300]!r}"


def _check_list(number: int, body: bytes) -> str | None:
    message = json.loads(body)
    names = {tool["name"] for tool in message.get("result", {}).get("tools", [])}
    if message.get("id") == number and {"echo", "ask"} <= names:
        return None
    return f"expected tools for request {number}, got {body[:300]!r}"


def _check_stream(body: bytes, events: int) -> str | None:
    seen = body.count(b"notifications/progress")
    return None if seen == events and b'"done"' in body else f"expected {events} events, got {body[:300]!r}"


def _check_refused(body: bytes) -> str | None:
    return None if b'"error"' in body else f"expected an error, got {body[:300]!r}"
