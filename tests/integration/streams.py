"""Answers that are streams, read event by event, for tests that act while one is open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import httpx
import msgspec

from tests.integration.raw import META, META_LOG_LEVEL, SECONDS, Answer, Served, headers_of, post_bytes, request

META_SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
ACCEPT_BOTH = "application/json, text/event-stream"
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The methods with an `Mcp-Name` header, and the parameter that it repeats."""


def asking(
    method: str, params: Mapping[str, Any], *, token: str | int | None = None, level: str | None = None, id_: Any = 1
) -> dict[str, Any]:
    """Return a request that asks for progress under `token` and for logs of `level` and above."""
    meta = dict(META)
    if token is not None:
        meta["progressToken"] = token
    if level is not None:
        meta[META_LOG_LEVEL] = level
    return request(method, {**params, "_meta": meta}, request_id=id_)


def calling(name: str, arguments: Mapping[str, Any] | None = None, /, **asked: Any) -> dict[str, Any]:
    """Return a `tools/call` with the options of `asking`; `retry` has the parameters of a retry."""
    retry = asked.pop("retry", {})
    return asking("tools/call", {"name": name, "arguments": arguments or {}, **retry}, **asked)


def complete_headers(message: Mapping[str, Any], **more: str) -> dict[str, str]:
    """Return the headers that match a request, replaced or extended by `more`."""
    headers = headers_of(message)
    parameter = NAMED.get(message["method"])
    if parameter is not None:
        headers["mcp-name"] = message["params"][parameter]
    return {**headers, "accept": ACCEPT_BOTH, **{name.replace("_", "-"): value for name, value in more.items()}}


def send(replica: Served, message: Mapping[str, Any], **headers: str) -> Answer:
    return post_bytes(replica, msgspec.json.encode(message), complete_headers(message, **headers))


def events_of(answer: Answer) -> list[dict[str, Any]]:
    """Return the messages of an answer that was a stream."""
    assert answer.headers["content-type"] == "text/event-stream", answer
    *blocks, rest = answer.body.split(b"\n\n")
    assert rest == b""
    return [msgspec.json.decode(block.removeprefix(b"data: ")) for block in blocks if block != b":"]


class Stream:
    """A request on its own connection, whose answer is read as it arrives. Leaving the context closes it."""

    def __init__(self, replica: Served, message: Mapping[str, Any]) -> None:
        self._client = httpx.Client(timeout=SECONDS, trust_env=False, verify=False)
        self._request = self._client.build_request(
            "POST", replica.url, content=msgspec.json.encode(message), headers=complete_headers(message)
        )

    def __enter__(self) -> Self:
        """Send the request and read the head of the answer."""
        self._response = self._client.send(self._request, stream=True)
        assert self._response.status_code == 200, self._response.read()
        assert self._response.headers["content-type"] == "text/event-stream", self._response.read()
        self._messages = self._read()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection, even before the end of the answer."""
        self._response.close()
        self._client.close()

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    def _read(self) -> Iterator[dict[str, Any]]:
        for line in self._response.iter_lines():
            if line.startswith("data: "):
                yield msgspec.json.decode(line.removeprefix("data: "))
            else:
                assert line in {"", ":"}

    def next(self) -> dict[str, Any]:
        return next(self._messages)

    def rest(self) -> list[dict[str, Any]]:
        """Return all messages until the server ends the stream."""
        return list(self._messages)


def notice(message: Mapping[str, Any]) -> tuple[str, Any]:
    """Return a progress or log notification in short: its kind, and its progress or message."""
    params = message["params"]
    if message["method"] == "notifications/progress":
        return "progress", params["progress"]
    assert message["method"] == "notifications/message"
    return params["level"], params["data"]
