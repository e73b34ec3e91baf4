"""Requests as bytes and as HTTP, for tests of bad requests."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from http.client import HTTPResponse
from typing import Any, NamedTuple, Protocol

import httpx
import msgspec

from loadtest.cluster import Replica

VERSION = "2026-07-28"
META_VERSION = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META_CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
META_LOG_LEVEL = "io.modelcontextprotocol/logLevel"
META: Mapping[str, Any] = {META_VERSION: VERSION, META_CAPABILITIES: {"elicitation": {}}}
NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
SECONDS = 20.0


class Served(Protocol):
    """Anything with an MCP endpoint: a replica, or a cluster behind its balancer."""

    @property
    def url(self) -> str: ...


class Answer(NamedTuple):
    """A response, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        message = msgspec.json.decode(self.body)
        assert isinstance(message, dict)
        return message

    @property
    def error(self) -> tuple[int, int]:
        """HTTP status and JSON-RPC code."""
        return self.status, self.message["error"]["code"]

    @property
    def result(self) -> dict[str, Any]:
        assert self.status == 200, self
        result = self.message["result"]
        assert isinstance(result, dict)
        return result

    @property
    def text(self) -> str:
        (block,) = self.result["content"]
        assert isinstance(block["text"], str)
        return block["text"]

    @property
    def state(self) -> str:
        """The state of a call that asks."""
        assert self.result["resultType"] == "input_required", self
        assert isinstance(self.result["requestState"], str)
        return self.result["requestState"]


def request(method: str, params: Mapping[str, Any] | None = None, *, request_id: Any = 1) -> dict[str, Any]:
    """Return a request that is complete."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {"_meta": META, **(params or {})}}


def tool_call(name: str, arguments: Mapping[str, Any] | None = None, /, **params: Any) -> dict[str, Any]:
    """Return a `tools/call`."""
    return request("tools/call", {"name": name, "arguments": arguments or {}, **params})


def headers_of(message: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that match a request."""
    headers = {"content-type": "application/json", "mcp-protocol-version": VERSION, "mcp-method": message["method"]}
    params = message.get("params")
    name = params.get(NAMED_BY.get(message["method"])) if isinstance(params, dict) else None
    if isinstance(name, str):
        headers["mcp-name"] = name
    return headers


def post(served: Served, message: Mapping[str, Any], *, token: str | None = None) -> Answer:
    """Send a message with the headers that match it."""
    headers = headers_of(message)
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    return post_bytes(served, msgspec.json.encode(message), headers)


def post_bytes(served: Served, body: bytes, headers: Mapping[str, str]) -> Answer:
    """Send any body with any headers."""
    # Without `verify=False`, each call would load all certificates of the machine, although no connection uses TLS.
    response = httpx.post(
        served.url, content=body, headers=dict(headers), timeout=SECONDS, trust_env=False, verify=False
    )
    return Answer(response.status_code, response.headers, response.content)


def call(served: Served, name: str, arguments: Mapping[str, Any] | None = None, /, **params: Any) -> Answer:
    """Call a tool anonymously."""
    return post(served, tool_call(name, arguments, **params))


def accept(**content: Any) -> dict[str, Any]:
    """Return `inputResponses` that answer the question `who`."""
    return {"who": {"action": "accept", "content": content}}


class RawConnection:
    """A connection that sends any bytes."""

    def __init__(self, replica: Replica) -> None:
        self.socket = socket.create_connection(replica.address, timeout=SECONDS)

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def head(self, headers: Iterable[tuple[str, str]], *, method: str = "POST", path: str = "/mcp") -> None:
        """Send the raw request line and headers, including repeated ones."""
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]
        self.socket.sendall("\r\n".join(lines).encode("latin-1"))

    def answer(self) -> Answer:
        response = HTTPResponse(self.socket)
        response.begin()
        body = response.read()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)


def head_of(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the headers of a raw request, without those of its body."""
    return [("Host", "localhost"), *headers_of(message).items()]
