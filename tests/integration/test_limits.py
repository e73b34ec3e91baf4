"""Each limit of a replica, over real sockets: just under passes, just over is refused, and others are still served."""

from __future__ import annotations

import contextlib
import resource
import select
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.auth.tokens import mint
from gateway.errors import TooManyValues
from gateway.protocol.strict_json import EXTRA_VALUES
from gateway.protocol.versions import DRAFT, LEGACY
from loadtest.cluster import Replica, wait_until
from tests.integration.fleet import Fleet
from tests.integration.raw import (
    META,
    SECONDS,
    Answer,
    RawConnection,
    accept,
    call,
    head_of,
    headers_of,
    post,
    post_bytes,
    request,
    tool_call,
)

pytestmark = pytest.mark.slow

SECRET = "a secret that only these tests know, 32 bytes"
MAX_BODY_BYTES, MAX_HEADER_BYTES, MAX_HEADERS, MAX_JSON_DEPTH = 8192, 4096, 30, 20
MAX_JSON_VALUES = 1000
MAX_ANSWERS, STATE_MAX_BYTES, BURST, STREAMS, CONNECTIONS = 4, 2048, 5, 3, 20
HALF_OPEN = 1000
ECHO = tool_call("echo", {"text": "hello"})
ECHO_BODY = msgspec.json.encode(ECHO)
LISTEN = request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})

SMALL = {
    "GATEWAY_MAX_BODY_BYTES": str(MAX_BODY_BYTES),
    "GATEWAY_MAX_HEADER_BYTES": str(MAX_HEADER_BYTES),
    "GATEWAY_MAX_HEADERS": str(MAX_HEADERS),
    "GATEWAY_MAX_JSON_DEPTH": str(MAX_JSON_DEPTH),
    "GATEWAY_MAX_JSON_VALUES": str(MAX_JSON_VALUES),
    "GATEWAY_MAX_ANSWERS": str(MAX_ANSWERS),
    "GATEWAY_STATE_MAX_BYTES": str(STATE_MAX_BYTES),
    "GATEWAY_STREAMS_PER_PRINCIPAL": str(STREAMS),
}
OWN = {
    "small": SMALL,
    "rated": {"GATEWAY_RATE_LIMIT": f"1/h burst {BURST}", "GATEWAY_STREAMS_PER_PRINCIPAL": str(STREAMS)},
    "timed": {"GATEWAY_HEAD_SECONDS": "2", "GATEWAY_BODY_SECONDS": "2"},
    "few": {"GATEWAY_MAX_CONNECTIONS": str(CONNECTIONS)},
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    environ = {"GATEWAY_TOOLS": "tests.integration.tools", "GATEWAY_JWT_SECRET": SECRET}
    own = {**OWN, "rated": {**OWN["rated"], "GATEWAY_AUTH": "jwt"}}
    with Fleet(tmp_path_factory.mktemp("limits"), environ, names=tuple(OWN), own=own) as fleet:
        yield fleet
        for replica in fleet.replicas:
            assert not [line for line in replica.log_lines() if line.get("level") == "error"]


@pytest.fixture(scope="module", autouse=True)
def _many_sockets() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def in_arguments(value: str) -> bytes:
    return ECHO_BODY.replace(b'"hello"', value.encode())


def send_body(replica: Replica, size: int) -> Answer:
    text = "x" * (size - len(ECHO_BODY) + len("hello"))
    return post_bytes(replica, in_arguments(f'"{text}"'), headers_of(ECHO))


def send_head(replica: Replica, size: int, fields: int) -> Answer:
    """Send a request with a head of this size, in this many headers."""
    headers = [*head_of(ECHO), ("Content-Length", str(len(ECHO_BODY)))]
    headers += [(f"X-{number}", ".") for number in range(fields - len(headers) - 1)]
    without = (
        "POST /mcp HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers) + "X-Padding: \r\n\r\n"
    )
    with RawConnection(replica) as connection:
        connection.head([*headers, ("X-Padding", "x" * (size - len(without)))])
        with contextlib.suppress(OSError):  # the answer may have arrived already
            connection.socket.sendall(ECHO_BODY)
        return connection.answer()


def send_depth(replica: Replica, depth: int) -> Answer:
    message = tool_call("echo", {"text": "hello"}, _meta={**META, "deep": None})
    own_levels = 3
    nested = "[" * (depth - own_levels) + "]" * (depth - own_levels)
    body = msgspec.json.encode(message).replace(b'"deep":null', f'"deep":{nested}'.encode())
    return post_bytes(replica, body, headers_of(message))


def with_values(message: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return a request with as many further values."""
    params = message["params"]
    return {**message, "params": {**params, "_meta": {**params.get("_meta", {}), "many": [0] * count}}}


def send_values(replica: Replica, count: int) -> Answer:
    return post(replica, with_values(ECHO, count))


def send_answers(replica: Replica, count: int) -> Answer:
    state = call(replica, "greet").state
    answers = {**accept(name="Ada"), **{f"other{number}": {"action": "decline"} for number in range(count - 1)}}
    return call(replica, "greet", requestState=state, inputResponses=answers)


def hoard(replica: Replica, over: bool) -> Answer:
    """Collect exactly as much as a state can hold, or a little more."""
    known = 600
    left = (STATE_MAX_BYTES - len(call(replica, "hoard", {"size": known}).state)) * 3 // 4
    margin = 4
    answer = call(replica, "hoard", {"size": known + left + (margin if over else -margin)})
    if not over:
        assert STATE_MAX_BYTES - 3 * margin <= len(answer.state) <= STATE_MAX_BYTES
    return answer


def is_served(answer: Answer) -> bool:
    return answer.status == 200 and "error" not in answer.message and not answer.result.get("isError")


@dataclass(frozen=True)
class Limit:
    """One limit: the requests under and over it, the client's answer, and the counter."""

    under: Callable[[Replica], Answer]
    over: Callable[[Replica], Answer]
    told: str
    status: int
    code: int
    metric: str = "gateway_requests_refused_total"
    labels: Mapping[str, str] = field(default_factory=dict)


LIMITS = {
    "body": Limit(
        lambda replica: send_body(replica, MAX_BODY_BYTES),
        lambda replica: send_body(replica, MAX_BODY_BYTES + 1),
        *(f"The body is larger than {MAX_BODY_BYTES} bytes", 413, -32600),
        labels={"reason": "body_too_large"},
    ),
    "head": Limit(
        lambda replica: send_head(replica, MAX_HEADER_BYTES, 10),
        lambda replica: send_head(replica, MAX_HEADER_BYTES + 1, 10),
        *(f"The head of the request is larger than {MAX_HEADER_BYTES} bytes", 431, -32600),
        labels={"reason": "headers_too_large"},
    ),
    "headers": Limit(
        lambda replica: send_head(replica, 2000, MAX_HEADERS),
        lambda replica: send_head(replica, 2000, MAX_HEADERS + 1),
        *(f"The request has more than {MAX_HEADERS} headers", 431, -32600),
        labels={"reason": "headers_too_large"},
    ),
    "depth": Limit(
        lambda replica: send_depth(replica, MAX_JSON_DEPTH),
        lambda replica: send_depth(replica, MAX_JSON_DEPTH + 1),
        *(f"The body nests deeper than {MAX_JSON_DEPTH} levels", 400, -32700),
        labels={"reason": "too_deep"},
    ),
    "values": Limit(
        lambda replica: send_values(replica, MAX_JSON_VALUES - 100),
        lambda replica: send_values(replica, MAX_JSON_VALUES),
        *(TooManyValues(MAX_JSON_VALUES, 1 + EXTRA_VALUES).message, 400, -32600),
        labels={"reason": "too_many_values"},
    ),
    "answers": Limit(
        lambda replica: send_answers(replica, MAX_ANSWERS),
        lambda replica: send_answers(replica, MAX_ANSWERS + 1),
        *(f"params.inputResponses must not have more than {MAX_ANSWERS} entries", 400, -32602),
        labels={"reason": "too_many_answers"},
    ),
}


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_a_request_up_to_a_limit_is_served_and_one_over_it_gets_the_reason(fleet: Fleet, limit: Limit) -> None:
    replica = fleet["small"]
    assert is_served(limit.under(replica))
    before = replica.metric(limit.metric, **limit.labels)
    answer = limit.over(replica)
    assert answer.error == (limit.status, limit.code)
    assert answer.message["error"]["message"] == limit.told
    assert answer.headers["x-gateway-replica"] == "small"
    assert replica.metric(limit.metric, **limit.labels) == before + 1
    assert call(replica, "echo", {"text": "next"}).text == "next"


@pytest.mark.parametrize("version", [LEGACY, DRAFT])
def test_a_body_with_too_many_values_is_refused_in_sessions_too(fleet: Fleet, version: str) -> None:
    replica = fleet["small"]
    client = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    begun = post_bytes(replica, msgspec.json.encode(hello), headers)
    assert begun.result["protocolVersion"] == version
    headers |= {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-protocol-version": version}
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping", "params": {}}
    answer = {"jsonrpc": "2.0", "id": "unknown", "result": {}, "params": {}}
    before = replica.metric("gateway_requests_refused_total", reason="too_many_values")
    for message in (ping, answer):
        over = post_bytes(replica, msgspec.json.encode(with_values(message, MAX_JSON_VALUES)), headers)
        assert over.error == (400, -32600)
        assert over.message["error"]["message"] == TooManyValues(MAX_JSON_VALUES, 1 + EXTRA_VALUES).message
    assert replica.metric("gateway_requests_refused_total", reason="too_many_values") == before + 2
    under = post_bytes(replica, msgspec.json.encode(with_values(ping, MAX_JSON_VALUES - 100)), headers)
    assert under.result == {}


def test_a_call_that_collects_more_than_a_state_holds_says_so(fleet: Fleet) -> None:
    replica = fleet["small"]
    assert hoard(replica, over=False).state
    before = replica.metric("gateway_states_too_large_total")
    answer = hoard(replica, over=True)
    assert answer.result["isError"]
    assert f"the limit is {STATE_MAX_BYTES}" in answer.text
    assert replica.metric("gateway_states_too_large_total") == before + 1
    assert call(replica, "echo", {"text": "next"}).text == "next"


def token(user: str) -> str:
    return mint(SECRET, user, "tests")


def test_each_caller_sends_at_a_rate_and_no_other_is_held_back(fleet: Fleet) -> None:
    replica = fleet["rated"]
    for _ in range(BURST):
        assert post(replica, ECHO, token=token("alice")).text == "hello"
    before = replica.metric("gateway_requests_refused_total", reason="rate_limited")
    for _ in range(2):
        answer = post(replica, ECHO, token=token("alice"))
        assert answer.error == (429, -31003)
        assert 3500 <= int(answer.headers["retry-after"]) <= 3600
        assert answer.message["error"]["data"] == {"retryAfterSeconds": int(answer.headers["retry-after"])}
        assert answer.headers["x-gateway-replica"] == "rated"
    assert replica.metric("gateway_requests_refused_total", reason="rate_limited") == before + 2
    for _ in range(BURST):
        assert post(replica, ECHO, token=token("bob")).text == "hello"


def test_a_caller_over_the_rate_is_refused_before_the_body_is_read(fleet: Fleet) -> None:
    replica = fleet["rated"]
    for _ in range(BURST):
        post(replica, ECHO, token=token("carol"))
    with RawConnection(replica) as connection:
        authorization = ("Authorization", f"Bearer {token('carol')}")
        connection.head([*head_of(ECHO), authorization, ("Content-Length", str(len(ECHO_BODY)))])
        assert connection.answer().error == (429, -31003)
        connection.socket.sendall(ECHO_BODY)
        connection.head([("Host", "localhost")], method="GET", path="/healthz")
        assert connection.answer().status == 200


def test_a_request_without_a_good_token_is_not_counted_against_anybody(fleet: Fleet) -> None:
    replica = fleet["rated"]
    for _ in range(3 * BURST):
        assert post(replica, ECHO, token=token("dave") + "x").status == 401
        assert post(replica, ECHO).status == 401
    for _ in range(BURST):
        assert post(replica, ECHO, token=token("dave")).text == "hello"


@contextlib.contextmanager
def listening(replica: Replica, bearer: str | None = None) -> Iterator[None]:
    """Keep a stream open, or fail with the answer received instead."""
    body = msgspec.json.encode(LISTEN)
    headers = [*head_of(LISTEN), ("Accept", "text/event-stream"), ("Content-Length", str(len(body)))]
    if bearer is not None:
        headers.append(("Authorization", f"Bearer {bearer}"))
    with RawConnection(replica) as connection:
        connection.head(headers)
        connection.socket.sendall(body)
        first = b""
        while b"notifications/subscriptions/acknowledged" not in first:
            received = connection.socket.recv(65536)
            first += received
            assert received, first
            assert first.startswith(b"HTTP/1.1 200"), first
        yield


def test_each_caller_keeps_a_number_of_streams_open_and_no_other_is_held_back(fleet: Fleet) -> None:
    replica = fleet["rated"]
    with contextlib.ExitStack() as streams:
        for _ in range(STREAMS):
            streams.enter_context(listening(replica, token("erin")))
        before = replica.metric("gateway_requests_refused_total", reason="too_many_streams")
        answer = post(replica, LISTEN, token=token("erin"))
        assert answer.error == (429, -31003)
        assert answer.message["id"] == LISTEN["id"]
        assert answer.message["error"]["message"] == f"No more than {STREAMS} streams may be open at a time"
        assert int(answer.headers["retry-after"]) >= 1
        assert replica.metric("gateway_requests_refused_total", reason="too_many_streams") == before + 1
        assert post(replica, ECHO, token=token("erin")).text == "hello"
        with listening(replica, token("frank")):
            pass


def test_no_caller_holds_more_than_half_of_the_connections_with_streams(tmp_path: Path) -> None:
    settings = {
        "GATEWAY_AUTH": "jwt",
        "GATEWAY_JWT_SECRET": SECRET,
        "GATEWAY_MAX_CONNECTIONS": str(CONNECTIONS),
        "GATEWAY_STREAMS_PER_PRINCIPAL": "1000",
    }
    with Fleet(tmp_path, settings, names=("r1",)) as fleet, contextlib.ExitStack() as streams:
        for _ in range(CONNECTIONS // 2):
            streams.enter_context(listening(fleet["r1"], token("grace")))
        answer = post(fleet["r1"], LISTEN, token=token("grace"))
        assert answer.error == (429, -31003)
        with listening(fleet["r1"], token("heidi")):
            pass


def test_a_stream_that_is_gone_makes_room_for_another(fleet: Fleet) -> None:
    replica = fleet["small"]
    with contextlib.ExitStack() as streams:
        for _ in range(STREAMS):
            streams.enter_context(listening(replica))
        assert post(replica, LISTEN).error == (429, -31003)

    def has_room() -> bool:
        with contextlib.suppress(AssertionError), contextlib.ExitStack() as streams:
            for _ in range(STREAMS):
                streams.enter_context(listening(replica))
            return True
        return False

    wait_until(has_room, "the streams to end", SECONDS)


LONG_HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 1000
JSON_HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
PARTS: dict[str, bytes] = {
    "nothing": b"",
    "a byte": LONG_HEAD[:1],
    "half a head": LONG_HEAD[:37],
    "no body": JSON_HEAD + b"Content-Length: 900\r\n\r\n",
    "half a body": JSON_HEAD + b"Content-Length: 900\r\n\r\n{}",
    "half a chunk": JSON_HEAD + b"Transfer-Encoding: chunked\r\n\r\n900\r\n{}",
}


def slow(replica: Replica) -> float:
    return sum(replica.metric("gateway_requests_refused_total", reason=f"slow_{part}") for part in ("head", "body"))


def test_a_thousand_half_open_connections_keep_nobody_else_from_being_served(fleet: Fleet) -> None:
    replica = fleet["timed"]
    before = slow(replica)
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(RawConnection(replica)) for _ in range(HALF_OPEN)]
        sent = [list(PARTS.values())[number % len(PARTS)] for number in range(HALF_OPEN)]
        for connection, part in zip(connections, sent, strict=True):
            connection.socket.sendall(part)
        assert slow(replica) - before < HALF_OPEN, "they are still open"
        answered = 0
        while slow(replica) - before < HALF_OPEN:
            assert call(replica, "echo", {"text": "hello"}).text == "hello"
            answered += 1
        assert answered
        for connection, part in zip(connections, sent, strict=True):
            assert rest_of(connection).startswith(b"HTTP/1.1 408 " if part else b"")
    assert slow(replica) - before == HALF_OPEN
    assert call(replica, "echo", {"text": "next"}).text == "next"


def rest_of(connection: RawConnection) -> bytes:
    """Read to the end of the connection."""
    data = b""
    while received := connection.socket.recv(65536):
        data += received
    return data


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_a_byte_now_and_then_keeps_no_connection_open(fleet: Fleet, part: bytes) -> None:
    """Slowloris."""
    replica = fleet["timed"]
    with RawConnection(replica) as connection:
        connection.socket.sendall(part)
        rest = iter(LONG_HEAD[len(part) :] if LONG_HEAD.startswith(part) else b" " * 800)

        def is_answered() -> bool:
            if select.select([connection.socket], [], [], 0.3)[0]:
                return True
            connection.socket.sendall(bytes([next(rest)]))
            return False

        wait_until(is_answered, "the connection to be closed", SECONDS)
        with contextlib.suppress(ConnectionResetError):  # a byte may have crossed the answer
            assert rest_of(connection).startswith(b"HTTP/1.1 408 ")
    assert call(replica, "echo", {"text": "next"}).text == "next"


def test_time_limits_concern_neither_idle_connections_nor_long_calls(fleet: Fleet, tmp_path: Path) -> None:
    replica = fleet["timed"]
    started, release = tmp_path / "started", tmp_path / "release"
    with ThreadPoolExecutor() as pool, RawConnection(replica) as idle:
        idle.head([("Host", "localhost")], method="GET", path="/healthz")
        assert idle.answer().status == 200
        held = pool.submit(call, replica, "hold", {"started": str(started), "release": str(release)})
        wait_until(started.exists, "the call to start")
        before = slow(replica)
        with RawConnection(replica):  # the clock: it started later than both, and is closed
            wait_until(lambda: slow(replica) > before, "the limit to pass")
        release.touch()
        assert held.result().text == "released"
        idle.head([("Host", "localhost")], method="GET", path="/healthz")
        assert idle.answer().status == 200


def test_connections_over_the_limit_are_closed_at_once_and_later_ones_served(fleet: Fleet) -> None:
    replica = fleet["few"]

    def connect(stack: contextlib.ExitStack) -> RawConnection:
        connection = stack.enter_context(RawConnection(replica))
        connection.head([("Host", "localhost")], method="GET", path="/healthz")
        assert connection.answer().status == 200
        return connection

    before = replica.metric("gateway_connections_refused_total")
    with contextlib.ExitStack() as stack:
        held = [connect(stack) for _ in range(CONNECTIONS)]
        for _ in range(5):
            extra = stack.enter_context(RawConnection(replica))
            with contextlib.suppress(ConnectionResetError):
                assert extra.socket.recv(1) == b""
        assert replica.metric("gateway_connections_refused_total") == before + 5
        for connection in held:
            connection.head([("Host", "localhost")], method="GET", path="/healthz")
            assert connection.answer().status == 200
        held[0].socket.shutdown(socket.SHUT_RDWR)

        def has_room() -> bool:
            with contextlib.suppress(OSError, AssertionError, EOFError):
                connect(stack)
                return True
            return False

        wait_until(has_room, "room for a connection", SECONDS)
    wait_until(lambda: is_echoed(replica), "the connections to be closed", SECONDS)


def is_echoed(replica: Replica) -> bool:
    with contextlib.suppress(Exception):
        return call(replica, "echo", {"text": "next"}).text == "next"
    return False


def smuggled(replica: Replica, data: bytes) -> list[int]:
    """Send bytes and return the statuses of all answers until the connection is closed."""
    with RawConnection(replica) as connection:
        connection.socket.sendall(data)
        return [int(part[:3]) for part in rest_of(connection).split(b"HTTP/1.1 ")[1:]]


SECOND = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
START = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SMUGGLED: dict[str, bytes] = {
    "a length and chunks": START + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SECOND,
    "chunks and a length": START + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + SECOND,
    "two lengths": START + b"Content-Length: 0\r\nContent-Length: 62\r\n\r\n" + SECOND,
    "a bad chunk": START + b"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + SECOND,
    "a folded header": START + b"X-Header: one\r\n Content-Length: 0\r\n\r\n" + SECOND,
    "NUL in a header": START + b"X-Header: \x00\r\n\r\n" + SECOND,
    "bare LF": START.replace(b"\r\n", b"\n") + b"\n" + SECOND,
}


@pytest.mark.parametrize("data", SMUGGLED.values(), ids=SMUGGLED)
def test_nothing_is_served_behind_a_request_that_could_be_read_in_two_ways(fleet: Fleet, data: bytes) -> None:
    replica = fleet["small"]
    assert smuggled(replica, data) == [400]
    assert call(replica, "echo", {"text": "next"}).text == "next"


def test_a_body_behind_an_upgrade_is_a_body(fleet: Fleet) -> None:
    """The request is served too: some clients offer HTTP/2 with each first request."""
    replica = fleet["small"]
    with RawConnection(replica) as connection:
        upgrade = [
            ("Connection", "Upgrade, HTTP2-Settings"),
            ("Upgrade", "h2c"),
            ("HTTP2-Settings", "AAMAAABkAAQAAP__"),
        ]
        connection.head([*head_of(ECHO), *upgrade, ("Content-Length", str(len(ECHO_BODY)))])
        connection.socket.sendall(ECHO_BODY)
        assert connection.answer().text == "hello"


def test_a_header_behind_a_body_is_none(fleet: Fleet) -> None:
    """A proxy that checks headers ignores trailers."""
    replica = fleet["rated"]
    with RawConnection(replica) as connection:
        chunk = b"%x\r\n%b\r\n0\r\n" % (len(ECHO_BODY), ECHO_BODY)
        head = "".join(f"{name}: {value}\r\n" for name, value in head_of(ECHO))
        trailer = f"Authorization: Bearer {token('grace')}\r\n\r\n"
        connection.socket.sendall(
            f"POST /mcp HTTP/1.1\r\n{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk + trailer.encode()
        )
        assert connection.answer().status == 401
