"""JSON-RPC messages over HTTP to one or several replicas, every one of them remembered in order."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import httpx
import msgspec

EVENT_STREAM: Final = "text/event-stream"
ACCEPT_BOTH: Final = f"application/json, {EVENT_STREAM}"

Message: TypeAlias = dict[str, Any]
Policy: TypeAlias = Callable[[Mapping[str, Any], Sequence[str], "str | None"], str]
"""Chooses the replica that gets a message, given all of them and the one that the message's predecessor went to.

The predecessor is the leg before, the stream that broke, or the stream on which the question came; None without one.
"""


class ProtocolError(Exception):
    """The server does what the wire forbids."""


class BrokenError(Exception):
    """The connection ended before the answer was complete."""


class RpcError(Exception):
    """The server answered with a JSON-RPC error."""

    def __init__(self, status: int, error: Mapping[str, Any]) -> None:
        super().__init__(f"{error.get('code')} {error.get('message')} (HTTP status {status})")
        self.status = status
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


class HttpError(Exception):
    """The server answered without a JSON-RPC message where one has to be."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP status {status} without a JSON-RPC message")
        self.status = status


class RoundRobin:
    """Gives each message to the next replica: after its predecessor's, else after the last message's."""

    def __init__(self) -> None:
        self._turns = itertools.count()

    def __call__(self, message: Mapping[str, Any], urls: Sequence[str], after: str | None) -> str:
        """Choose a replica."""
        turn = next(self._turns) if after is None else urls.index(after) + 1
        return urls[turn % len(urls)]


class EventDecoder:
    """Reads server-sent events from bytes that may be split anywhere."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Take in more bytes; return the data of the events that they complete."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            text = line.removesuffix(b"\r")
            if text.startswith(b"data:"):
                self._data.append(text.removeprefix(b"data:").removeprefix(b" "))
            elif not text and self._data:
                yield b"\n".join(self._data)
                self._data = []


@dataclass(frozen=True, slots=True)
class Seen:
    """Something that happened on the wire.

    Attributes:
        kind: a message was `sent` or `received`. Or the `head` of the answer arrived, the server `ended` it, the
            connection was `broken`, or this client `left` before the end.
    """

    kind: Literal["sent", "head", "received", "ended", "broken", "left"]
    exchange: int
    url: str
    message: Message = field(default_factory=dict)
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One HTTP request whose answer is still arriving. Iterate over its messages once."""

    number: int
    url: str
    status: int
    headers: Mapping[str, str]
    messages: AsyncGenerator[Message, None]


class Transport:
    """Sends messages and remembers all that goes over the wire. Each request has a connection of its own.

    Args:
        headers: sent with every message; they may be changed between messages.
        seconds: without a byte, and a request fails with `httpx.TimeoutException`.
    """

    def __init__(self, urls: Sequence[str], headers: dict[str, str], policy: Policy, seconds: float) -> None:
        self.urls = list(urls)
        self.headers = headers
        self.log: list[Seen] = []
        self._policy = policy
        self._numbers = itertools.count(1)
        # Without `verify=False` each client would load all certificates of the machine, though no connection uses TLS.
        self._http = httpx.AsyncClient(
            timeout=seconds, trust_env=False, verify=False, limits=httpx.Limits(max_keepalive_connections=0)
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    @contextlib.asynccontextmanager
    async def post(self, message: Message, *, after: str | None = None) -> AsyncIterator[Exchange]:
        """Send a message; leaving the context closes the connection, whatever is still to come.

        Raises:
            BrokenError: there is no answer. Reading the messages raises it too, when the connection breaks.
        """
        number, url = next(self._numbers), self._policy(message, self.urls, after)
        self.log.append(Seen("sent", number, url, message))
        request = self._http.build_request("POST", url, content=msgspec.json.encode(message), headers=self.headers)
        with self._noticing_breaks(number, url):
            response = await self._http.send(request, stream=True)
        try:
            headers = dict(response.headers)
            self.log.append(Seen("head", number, url, status=response.status_code, headers=headers))
            async with contextlib.aclosing(self._messages(response, number, url)) as messages:
                yield Exchange(number, url, response.status_code, headers, messages)
        finally:
            await response.aclose()
            if not any(seen.exchange == number and seen.kind in {"ended", "broken"} for seen in self.log):
                self.log.append(Seen("left", number, url))

    async def _messages(self, response: httpx.Response, number: int, url: str) -> AsyncGenerator[Message, None]:
        with self._noticing_breaks(number, url):
            async for data in _data_of(response):
                message = _decode(data, response.status_code)
                self.log.append(Seen("received", number, url, message))
                yield message
        self.log.append(Seen("ended", number, url))

    @contextlib.contextmanager
    def _noticing_breaks(self, number: int, url: str) -> Iterator[None]:
        try:
            yield
        except httpx.TimeoutException:
            raise
        except httpx.TransportError as error:
            self.log.append(Seen("broken", number, url))
            raise BrokenError(f"the connection to {url} broke: {error!r}") from error


async def _data_of(response: httpx.Response) -> AsyncIterator[bytes]:
    """Return the JSON texts of an answer as they come."""
    if response.headers.get("content-type", "").partition(";")[0] != EVENT_STREAM:
        if body := await response.aread():
            yield body
        return
    events = EventDecoder()
    async for chunk in response.aiter_bytes():
        for data in events.feed(chunk):
            yield data


def _decode(data: bytes, status: int) -> Message:
    try:
        message = msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise HttpError(status) from error
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise ProtocolError(f"not a JSON-RPC message: {message}")
    return message
