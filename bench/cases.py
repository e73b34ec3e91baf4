"""What is asked of the servers: requests of the 2026-07-28 wire and the checks of their answers.

Three cases, the same on every MCP server: `echo` answers at once, `first leg` ends with a question and a sealed state,
`retry leg` brings both back with the user's answer and completes the call.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from bench.load import Exchange

WIRE = "2026-07-28"
FORMS: dict[str, Any] = {"elicitation": {"form": {}}}
FORMS_AND_TASKS: dict[str, Any] = FORMS | {"extensions": {"io.modelcontextprotocol/tasks": {}}}
"""What clients of the cases can, and what a client can that has its calls made tasks."""
RAW_BODY = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "hello"}]}}, separators=(",", ":")
).encode()
"""What the raw ASGI echo answers to everything."""

EXCHANGES_PER_CONNECTION = 8
"""Different requests that one connection sends in turn, so that no two in flight are alike."""


def call(
    port: int, request_id: int, tool: str, arguments: dict[str, Any], *, token: str | None = None, **params: Any
) -> bytes:
    """A whole `tools/call` request, as the official client would send it."""
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
    """A whole request; `name` is what its headers name beside the method, "" if nothing is named."""
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


def raw_plans(port: int, connections: int) -> list[list[Exchange]]:
    """Plans for the raw ASGI echo: the requests of `echo_plans`, the one fixed answer."""
    return [
        [Exchange(exchange.request, _check_raw) for exchange in plan] for plan in echo_plans(port, connections, None)
    ]


def echo_plans(port: int, connections: int, token: str | None) -> list[list[Exchange]]:
    """Plans for `echo`: each request brings a text of its own."""

    def exchange(number: int) -> Exchange:
        text = f"hello from request {number:04d}"
        return Exchange(
            call(port, number, "echo", {"text": text}, token=token), partial(check_complete, number=number, text=text)
        )

    return _plans(connections, exchange)


def first_leg_plans(port: int, connections: int, token: str | None) -> list[list[Exchange]]:
    """Plans for the first leg: each answer is one question and a state that differs every time."""

    def exchange(number: int) -> Exchange:
        return Exchange(call(port, number, "ask", {}, token=token), partial(check_question, number=number), state_of)

    return _plans(connections, exchange)


def retry_leg_plans(port: int, connections: int, token: str | None, questions: Sequence[bytes]) -> list[list[Exchange]]:
    """Plans for the retry leg, which answer the given bodies of first legs (at least one)."""

    def exchange(number: int) -> Exchange:
        result = json.loads(questions[number % len(questions)])["result"]
        (key,) = result["inputRequests"]
        name = f"User {number:04d}"
        answer = {key: {"action": "accept", "content": {"name": name}}}
        request = call(port, number, "ask", {}, token=token, inputResponses=answer, requestState=result["requestState"])
        return Exchange(request, partial(check_complete, number=number, text=f"Hello, {name}!"))

    return _plans(connections, exchange)


def _plans(connections: int, exchange: Any) -> list[list[Exchange]]:
    numbers = iter(range(1000, 1000 + connections * EXCHANGES_PER_CONNECTION))
    return [[exchange(next(numbers)) for _ in range(EXCHANGES_PER_CONNECTION)] for _ in range(connections)]


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
    """The sealed state of an input-required result, without the prefix that all tokens of a server share."""
    state: str = json.loads(body)["result"]["requestState"]
    return state[3:].encode()


def _check_raw(body: bytes) -> str | None:
    return None if body == RAW_BODY else f"expected {RAW_BODY!r}, got {body[:300]!r}"
