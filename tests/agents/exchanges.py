"""The requests of an agent and the answers that it got, as the files in `recordings` keep them.

Values that differ each time are masked. A sealed value, such as a session id, a state or the id of a question, gets a
name instead, wherever it appears. A replay learns the new value from the answers, and sends that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import h11

import gateway
from tests.agents.tee import Carried

RECORDINGS: Final = Path(__file__).parent / "recordings"
ANYTHING: Final = "…"
"""Stands for a value that a replay does not compare."""

TOKEN: Final = "Bearer <token>"
_NAME: Final = re.compile(r"<sealed-\d+>")
_SEALED: Final = re.compile(r"s1\.[\w-]{40,}")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SOME_UUID: Final = "00000000-0000-4000-8000-000000000000"
_MILLISECONDS: Final = 10**12
_OF_THE_CONNECTION: Final = {"host", "content-length", "user-agent"}


@dataclass(frozen=True)
class Request:
    method: str
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True)
class Answer:
    """An answer.

    Attributes:
        session: the header with the session id, if there is one.
        messages: the body, or the data of each event.
        complete: whether it ended before the agent closed the connection.
    """

    status: int
    type: str | None
    session: str | None
    messages: Sequence[Any]
    complete: bool = True


@dataclass(frozen=True)
class Exchange:
    """A request and its answer.

    Attributes:
        overlaps: whether the next request began before this answer ended.
    """

    request: Request
    answer: Answer
    overlaps: bool


@dataclass(frozen=True)
class Recording:
    """All exchanges of one run, in the order in which they began.

    Attributes:
        version: of the agent.
    """

    version: str
    exchanges: Sequence[Exchange]

    def save(self, name: str) -> None:
        """Write the file of an agent, with each request and each answer on a line of its own."""
        exchanges = [
            f'{{"request": {line_of(asdict(each.request))},\n'
            f' "answer": {line_of(asdict(each.answer))},\n'
            f' "overlaps": {line_of(each.overlaps)}}}'
            for each in self.exchanges
        ]
        lines = [f'{{"version": {line_of(self.version)}, "exchanges": [', ",\n".join(exchanges), "]}", ""]
        (RECORDINGS / f"{name}.json").write_text("\n".join(lines))

    @classmethod
    def load(cls, name: str) -> Recording:
        """Read the file of an agent."""
        kept = json.loads((RECORDINGS / f"{name}.json").read_text())
        exchanges = [
            Exchange(Request(**each["request"]), Answer(**each["answer"]), each["overlaps"])
            for each in kept["exchanges"]
        ]
        return cls(kept["version"], exchanges)

    def asked_for(self, method: str) -> list[Exchange]:
        """Return the exchanges whose request has this JSON-RPC method."""
        return [each for each in self.exchanges if each.request.body and each.request.body.get("method") == method]


def line_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a JSON value with each of its leaves changed."""
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [mapped(item, change) for item in value]
    return change(value)


def is_named(value: Any) -> bool:
    """Return whether a leaf of a recording is the name of a sealed value."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


class Masks:
    """Replaces what differs each time.

    Args:
        token: the agent's.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self._names: dict[str, str] = {}

    def leaf(self, value: Any) -> Any:
        """Return what stands for a value in a recording."""
        if isinstance(value, int):
            return 0 if value > _MILLISECONDS else value
        if not isinstance(value, str):
            return value
        if _SEALED.fullmatch(value):
            return self._names.setdefault(value, f"<sealed-{len(self._names) + 1}>")
        if value == gateway.__version__:
            return ANYTHING
        return _UUID.sub(_SOME_UUID, value.replace(self._token, "<token>"))


def events_of(connection: h11.Connection, data: bytes) -> list[h11.Event]:
    """Return the whole events at the beginning of what came over a connection."""
    connection.receive_data(data)
    found: list[h11.Event] = []
    while not found or not isinstance(found[-1], h11.EndOfMessage):
        event = connection.next_event()
        if not isinstance(event, h11.Event):
            break
        found.append(event)
    return found


def headers_of(event: h11.Request | h11.Response) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in event.headers}


def body_of(events: Sequence[h11.Event]) -> str:
    return b"".join(bytes(event.data) for event in events if isinstance(event, h11.Data)).decode()


def request_of(carried: Carried, masks: Masks) -> Request:
    """Read the request that a connection carried."""
    events = events_of(h11.Connection(h11.SERVER), bytes(carried.request))
    begin = events[0]
    assert isinstance(begin, h11.Request)
    headers = {name: value for name, value in headers_of(begin).items() if name not in _OF_THE_CONNECTION}
    body = body_of(events)
    return Request(
        begin.method.decode(), mapped(headers, masks.leaf), mapped(json.loads(body), masks.leaf) if body else None
    )


def answer_of(carried: Carried, masks: Masks) -> Answer:
    """Read the answer that a connection carried, as far as it came."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "any")]))
    connection.send(h11.EndOfMessage())
    events = events_of(connection, bytes(carried.response))
    begin = events[0]
    assert isinstance(begin, h11.Response)
    headers, body = headers_of(begin), body_of(events)
    texts = events_in(body) if headers.get("content-type") == "text/event-stream" else [body] * bool(body)
    return Answer(
        begin.status_code,
        headers.get("content-type"),
        masks.leaf(headers.get("mcp-session-id")),
        [mapped(json.loads(text), masks.leaf) for text in texts],
        isinstance(events[-1], h11.EndOfMessage),
    )


def events_in(stream: str) -> list[str]:
    """Return the data of each event of a stream."""
    return [line.removeprefix("data: ") for line in stream.splitlines() if line.startswith("data: ")]


def recording_of(version: str, all_carried: Sequence[Carried], token: str) -> Recording:
    """Return what connections carried, without those over which nothing came back."""
    masks = Masks(token)
    answered = sorted((each for each in all_carried if each.response), key=lambda each: each.began)
    exchanges = []
    for number, carried in enumerate(answered):
        following = answered[number + 1 :]
        overlaps = bool(following) and (carried.ended is None or carried.ended > following[0].began)
        exchanges.append(Exchange(request_of(carried, masks), answer_of(carried, masks), overlaps))
    return Recording(version, exchanges)
