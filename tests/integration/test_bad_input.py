"""Bad requests get a clear answer each time, and the replica serves the next request."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
import jwt
import msgspec
import pytest

from gateway.auth.tokens import mint
from loadtest.cluster import Replica, wait_until
from tests.integration.fleet import Fleet
from tests.integration.raw import (
    META,
    META_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_VERSION,
    SECONDS,
    VERSION,
    Answer,
    RawConnection,
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
MAX_BODY_BYTES = 65536
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32020, -32021, -32022
ECHO = tool_call("echo", {"text": "hello"})
ECHO_BODY = msgspec.json.encode(ECHO)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    environ = {
        "GATEWAY_TOOLS": "tests.integration.tools",
        "GATEWAY_MAX_BODY_BYTES": str(MAX_BODY_BYTES),
        "GATEWAY_JWT_SECRET": SECRET,
    }
    with Fleet(
        tmp_path_factory.mktemp("bad"), environ, names=("open", "guarded"), own={"guarded": {"GATEWAY_AUTH": "jwt"}}
    ) as fleet:
        yield fleet


@pytest.fixture
def replica(fleet: Fleet) -> Iterator[Replica]:
    """The replica without identity; after each test it serves as before and has logged no failure of its own."""
    replica = fleet["open"]
    pid = replica.pid
    failures = len(replica.logged("request failed"))
    yield replica
    assert call(replica, "echo", {"text": "still here"}).text == "still here"
    assert (replica.pid, replica.alive) == (pid, True)
    assert len(replica.logged("request failed")) == failures


@pytest.fixture
def guarded(fleet: Fleet) -> Replica:
    """The replica that requires identity."""
    return fleet["guarded"]


def check_error(answer: Answer, status: int, code: int, *, request_id: Any = None) -> str:
    """Check that the answer is one JSON-RPC error, and return its message."""
    assert answer.error == (status, code), answer
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-gateway-replica"] in {"open", "guarded"}
    assert set(answer.message) == {"jsonrpc", "id", "error"}
    assert answer.message["id"] == request_id
    assert "Traceback" not in answer.body.decode()
    message = answer.message["error"]["message"]
    assert isinstance(message, str)
    return message


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


def in_arguments(value: str) -> bytes:
    """Replace an argument by a piece of JSON, valid or not."""
    return ECHO_BODY.replace(b'"hello"', value.encode("utf-8", "surrogatepass"))


UNREADABLE: dict[str, bytes] = {
    "empty": b"",
    "blank": b" \n",
    "no JSON": b"hello",
    "half": ECHO_BODY[:-1],
    "trailing": ECHO_BODY + b"x",
    "two messages": ECHO_BODY + b"\n" + ECHO_BODY,
    "single quotes": ECHO_BODY.replace(b'"', b"'"),
    "comment": b"/* hello */" + ECHO_BODY,
    "trailing comma": b'{"jsonrpc": "2.0",}',
    "byte order mark": b"\xef\xbb\xbf" + ECHO_BODY,
    "UTF-16": ECHO_BODY.decode().encode("utf-16"),
    "no UTF-8": in_arguments('"\udcff"').replace(b"\xed\xb3\xbf", b"\xff"),
    "overlong UTF-8": ECHO_BODY.replace(b"hello", b"\xc0\xaf"),
    "NUL": ECHO_BODY.replace(b"hello", b"\x00"),
    "NaN": in_arguments("NaN"),
    "Infinity": in_arguments("-Infinity"),
    "a number beyond floats": in_arguments("1e999"),
    "a huge integer": in_arguments("1" * 400),
    "a huge integer in the id": ECHO_BODY.replace(b'"id":1', b'"id":' + b"9" * 5000),
    "an escaped lone surrogate": in_arguments(r'"\ud800"'),
    "surrogates in the wrong order": in_arguments(r'"\udc00\ud800"'),
    "an encoded lone surrogate": in_arguments('"\ud800"'),
    "a lone surrogate in a name": in_arguments(r'{"\udfff": 1}'),
    "a repeated name": ECHO_BODY.replace(b'"method"', b'"method":"tools/list","method"'),
    "a repeated name in the arguments": in_arguments('{"a":1,"a":2}'),
    "a repeated name, once escaped": in_arguments(r'{"a":1,"\u0061":2}'),
    "10,000 arrays": deep(10_000).encode(),
    "10,000 arrays without end": b"[" * 10_000,
    "10,000 objects": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "10,000 arrays in an argument": in_arguments(deep(10_000)),
    "a little too deep": in_arguments(deep(98)),
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
def test_a_body_that_not_every_reader_reads_alike(replica: Replica, body: bytes) -> None:
    check_error(post_bytes(replica, body, headers_of(ECHO)), 400, PARSE_ERROR)


def message(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in {**ECHO, **members}.items() if value is not ...}


NO_REQUEST: dict[str, tuple[Any, Any]] = {
    "an array": ([ECHO], None),
    "an empty array": ([], None),
    "null": (None, None),
    "true": (True, None),
    "a number": (1, None),
    "a text": ("hello", None),
    "an empty object": ({}, None),
    "no version": (message(jsonrpc=...), 1),
    "version 1": (message(jsonrpc="1.0"), 1),
    "version as a number": (message(jsonrpc=2.0), 1),
    "method as a number": (message(method=7), 1),
    "method null": (message(method=None), 1),
    "params as an array": (message(params=[]), 1),
    "id null": (message(id=None), None),
    "id true": (message(id=True), None),
    "id as a fraction": (message(id=1.5), None),
    "id as an object": (message(id={}), None),
    "id too long": (message(id="x" * 2049), None),
    "method and result": (message(result={}), 1),
    "a posted response": ({"jsonrpc": "2.0", "id": 1, "result": {}}, None),
    "a posted error": ({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}}, None),
}


@pytest.mark.parametrize(("body", "request_id"), NO_REQUEST.values(), ids=NO_REQUEST)
def test_json_that_is_not_a_request(replica: Replica, body: Any, request_id: Any) -> None:
    answer = post_bytes(replica, msgspec.json.encode(body), headers_of(ECHO))
    check_error(answer, 400, INVALID_REQUEST, request_id=request_id)


def with_meta(call: Mapping[str, Any] = ECHO, /, **members: Any) -> dict[str, Any]:
    """Change members of `_meta`; `...` leaves one out."""
    meta = {name: value for name, value in {**META, **members}.items() if value is not ...}
    return {**call, "params": {**call["params"], "_meta": meta}}


WRONG_VALUES: dict[tuple[str, str], list[Any]] = {
    ("protocolVersion", META_VERSION): [..., None, 7, True, [], {}],
    ("clientCapabilities", META_CAPABILITIES): [
        *(..., None, 7, "all", [], True),
        {"elicitation": True},
        {"elicitation": {"form": []}},
        {"elicitation": {"url": "yes"}},
        {"sampling": {"tools": 1}},
        {"extensions": {"x": 1}},
    ],
    ("clientInfo", META_CLIENT_INFO): [7, "me", [], {}, {"name": "me"}, {"name": "me", "version": 1}],
    ("logLevel", META_LOG_LEVEL): [7, "loud", "INFO", [], {}],
    ("progressToken", "progressToken"): [True, 1.5, [], {}],
}
WRONG_META = [(named, key, value) for (named, key), values in WRONG_VALUES.items() for value in values]


@pytest.mark.parametrize(("named", "key", "value"), WRONG_META)
def test_a_wrong_type_in_meta_is_named(replica: Replica, named: str, key: str, value: Any) -> None:
    answer = post(replica, with_meta(**{key: value}))
    assert named in check_error(answer, 400, INVALID_PARAMS, request_id=1)


@pytest.mark.parametrize("meta", [..., None, 7, "x", [], True])
def test_meta_itself_must_be_an_object(replica: Replica, meta: Any) -> None:
    params = {"name": "echo", "arguments": {"text": "hello"}}
    if meta is not ...:
        params["_meta"] = meta
    answer = post(replica, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    assert "_meta" in check_error(answer, 400, INVALID_PARAMS, request_id=1)


@pytest.mark.parametrize("version", ["2026-07-29", "", "x" * 1000, "DRAFT-2026-v1"])
def test_the_refusal_of_another_version_lists_the_served_ones(replica: Replica, version: str) -> None:
    body = msgspec.json.encode(with_meta(**{META_VERSION: version}))
    answer = post_bytes(replica, body, {**headers_of(ECHO), "mcp-protocol-version": version})
    check_error(answer, 400, UNSUPPORTED_VERSION, request_id=1)
    served = [VERSION, "2025-11-25", "2025-06-18"]
    assert answer.message["error"]["data"] == {"supported": served, "requested": version}


OTHER_HEADERS: dict[str, Mapping[str, str | None]] = {
    "no version": {"mcp-protocol-version": None},
    "another version": {"mcp-protocol-version": "2025-11-25"},
    "no method": {"mcp-method": None},
    "another method": {"mcp-method": "tools/list"},
    "another case of the method": {"mcp-method": "Tools/Call"},
    "no name": {"mcp-name": None},
    "another name": {"mcp-name": "greet"},
    "a name that is no Base64": {"mcp-name": "=?base64?!?="},
    "a name in another alphabet": {"mcp-name": "=?base64?_-8=?="},
    "an empty name": {"mcp-name": ""},
}


@pytest.mark.parametrize("changes", OTHER_HEADERS.values(), ids=OTHER_HEADERS)
def test_headers_that_differ_from_the_body(replica: Replica, changes: Mapping[str, str | None]) -> None:
    headers = {name: value for name, value in {**headers_of(ECHO), **changes}.items() if value is not None}
    check_error(post_bytes(replica, ECHO_BODY, headers), 400, HEADER_MISMATCH, request_id=1)


def test_a_name_may_come_in_base64(replica: Replica) -> None:
    answer = post_bytes(replica, ECHO_BODY, {**headers_of(ECHO), "mcp-name": "=?base64?ZWNobw==?="})
    assert answer.text == "hello"


REPEATED = ("Host", "Authorization", "Mcp-Method", "Mcp-Name", "MCP-Protocol-Version", "Mcp-Param-Region", "mcp-other")


@pytest.mark.parametrize("name", REPEATED)
def test_a_header_that_decides_something_may_come_only_once(replica: Replica, name: str) -> None:
    """Two values, even equal ones: a proxy might have used one, and the gateway the other."""
    values = dict(head_of(ECHO))
    value = values.get(name) or values.get(name.lower(), "x")
    given = [(key, text) for key, text in head_of(ECHO) if key.lower() != name.lower()]
    with RawConnection(replica) as connection:
        connection.head([*given, (name, value), (name.upper(), value), ("Content-Length", str(len(ECHO_BODY)))])
        connection.socket.sendall(ECHO_BODY)
        message = check_error(connection.answer(), 400, INVALID_REQUEST)
    assert name.lower() in message


def test_a_header_that_decides_nothing_may_be_repeated(replica: Replica) -> None:
    with RawConnection(replica) as connection:
        connection.head([*head_of(ECHO), ("X", "1"), ("X", "2"), ("Content-Length", str(len(ECHO_BODY)))])
        connection.socket.sendall(ECHO_BODY)
        assert connection.answer().text == "hello"


@pytest.mark.parametrize("tool", ["", "Echo", "echo ", "unknown", "__init__", "../echo", "é", "x" * 5000])
def test_an_unknown_tool(replica: Replica, tool: str) -> None:
    message = tool_call(tool)
    encoded = f"=?base64?{msgspec.json.encode(tool.encode()).decode()[1:-1]}?="
    answer = post_bytes(replica, msgspec.json.encode(message), {**headers_of(ECHO), "mcp-name": encoded})
    assert check_error(answer, 400, INVALID_PARAMS, request_id=1).startswith("Unknown tool")


@pytest.mark.parametrize("method", ["", "tools", "tools/Call", "initialize2", "rpc.discover", "tasks/list", "x" * 1000])
def test_an_unknown_method(replica: Replica, method: str) -> None:
    check_error(post(replica, request(method)), 404, METHOD_NOT_FOUND, request_id=1)


WRONG_PARAMS: dict[str, dict[str, Any]] = {
    "name": {"name": 7},
    "arguments": {"name": "echo", "arguments": []},
    "inputResponses": {"name": "echo", "inputResponses": []},
}


@pytest.mark.parametrize(("named", "params"), WRONG_PARAMS.items())
def test_a_parameter_of_a_wrong_type_is_named(replica: Replica, named: str, params: dict[str, Any]) -> None:
    answer = post(replica, request("tools/call", params))
    assert named in check_error(answer, 400, INVALID_PARAMS, request_id=1)


@pytest.mark.parametrize("cursor", ["", "x", 7, [], {}])
def test_a_cursor_that_we_never_gave(replica: Replica, cursor: Any) -> None:
    check_error(post(replica, request("tools/list", {"cursor": cursor})), 400, INVALID_PARAMS, request_id=1)


WRONG_ARGUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({}, "text"),
    "null": ({"text": None}, "text"),
    "a number": ({"text": 7}, "text"),
    "an object": ({"text": {}}, "text"),
    "unknown": ({"text": "hello", "colour": 1}, "colour"),
    "several": ({"colour": 1}, "text"),
}


@pytest.mark.parametrize(("arguments", "named"), WRONG_ARGUMENTS.values(), ids=WRONG_ARGUMENTS)
def test_wrong_arguments_are_a_tool_error_that_names_them(
    replica: Replica, arguments: dict[str, Any], named: str
) -> None:
    answer = call(replica, "echo", arguments)
    assert answer.result["isError"] is True
    assert answer.text.startswith("Invalid arguments for echo: ")
    assert f"{named}: " in answer.text
    assert "pydantic" not in answer.text


@pytest.mark.parametrize("number", [2**53 + 1, 2**63, -(2**64), 10**30, int("9" * 308)])
def test_a_huge_integer_that_is_accepted_reaches_the_tool_exactly(replica: Replica, number: int) -> None:
    assert call(replica, "add_one", {"number": number}).text == str(number + 1)


@pytest.mark.parametrize("request_id", [0, -1, 2**63, 10**30, "", "é", "\U0001f511", "x" * 2048])
def test_an_id_comes_back_as_it_was_sent(replica: Replica, request_id: Any) -> None:
    answer = post(replica, {**ECHO, "id": request_id})
    assert answer.message["id"] == request_id
    assert type(answer.message["id"]) is type(request_id)


@pytest.mark.parametrize("capabilities", [{}, {"sampling": {}}, {"elicitation": {"url": {}}}])
def test_nothing_is_asked_that_the_client_did_not_declare(replica: Replica, capabilities: dict[str, Any]) -> None:
    answer = post(replica, with_meta(tool_call("greet"), **{META_CAPABILITIES: capabilities}))
    check_error(answer, 400, MISSING_CAPABILITY, request_id=1)
    assert answer.message["error"]["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}


def test_a_notification_is_taken_without_an_answer(replica: Replica) -> None:
    answer = post(replica, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"_meta": META}})
    assert (answer.status, answer.body) == (202, b"")
    assert answer.headers["x-gateway-replica"] == "open"


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS"])
def test_only_posts_are_taken(replica: Replica, method: str) -> None:
    response = httpx.request(method, replica.url, timeout=SECONDS, trust_env=False, verify=False)
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
    assert response.headers["x-gateway-replica"] == "open"


@pytest.mark.parametrize(("method", "lines"), [("GET", 0), ("DELETE", 0), ("PUT", 1)])
def test_what_each_client_with_a_session_tries_is_no_matter_for_the_audit_log(
    replica: Replica, method: str, lines: int
) -> None:
    def noted() -> tuple[int, float]:
        counted = replica.metric("gateway_requests_refused_total", reason="http_method")
        return len(replica.logged(audit="refused")), counted

    audited, counted = noted()
    assert httpx.request(method, replica.url, timeout=SECONDS, trust_env=False, verify=False).status_code == 405
    wait_until(lambda: noted() == (audited + lines, counted + 1), "the audit log")


OTHER_CONTENT: dict[str, Mapping[str, str]] = {
    "no media type": {},
    "plain text": {"content-type": "text/plain"},
    "a form": {"content-type": "application/x-www-form-urlencoded"},
    "JSON lines": {"content-type": "application/jsonl"},
    "JSON of a kind": {"content-type": "application/vnd.api+json"},
    "another character set": {"content-type": "application/json; charset=latin-1"},
    "gzip": {"content-type": "application/json", "content-encoding": "gzip"},
    "several encodings": {"content-type": "application/json", "content-encoding": "identity, br"},
}


@pytest.mark.parametrize("headers", OTHER_CONTENT.values(), ids=OTHER_CONTENT)
def test_another_media_type_or_encoding(replica: Replica, headers: Mapping[str, str]) -> None:
    given = {name: value for name, value in headers_of(ECHO).items() if name != "content-type"}
    check_error(post_bytes(replica, ECHO_BODY, {**given, **headers}), 415, INVALID_REQUEST)


@pytest.mark.parametrize(
    "content_type", ["Application/JSON", "application/json; charset=UTF-8", "application/json;x=y"]
)
def test_another_spelling_of_the_media_type(replica: Replica, content_type: str) -> None:
    assert post_bytes(replica, ECHO_BODY, {**headers_of(ECHO), "content-type": content_type}).text == "hello"


def padded(size: int) -> bytes:
    """A call whose body has exactly this size."""
    return in_arguments('"' + "x" * (size - len(ECHO_BODY) + len("hello")) + '"')


def test_a_body_as_large_as_the_limit_is_served(replica: Replica) -> None:
    body = padded(MAX_BODY_BYTES)
    assert len(body) == MAX_BODY_BYTES
    assert post_bytes(replica, body, headers_of(ECHO)).text.startswith("xxx")
    check_error(post_bytes(replica, padded(MAX_BODY_BYTES + 1), headers_of(ECHO)), 413, INVALID_REQUEST)


@pytest.mark.parametrize("length", [MAX_BODY_BYTES + 1, 2**62])
def test_a_body_that_is_announced_as_too_large_is_refused_before_any_of_it_came(replica: Replica, length: int) -> None:
    with RawConnection(replica) as connection:
        connection.head([*head_of(ECHO), ("Content-Length", str(length))])
        answer = connection.answer()
    check_error(answer, 413, INVALID_REQUEST)
    assert answer.headers["connection"] == "close"


def test_a_body_that_never_ends_is_refused_while_it_streams_in(replica: Replica) -> None:
    with RawConnection(replica) as connection:
        connection.head([*head_of(ECHO), ("Transfer-Encoding", "chunked")])
        sent = 0
        while sent <= MAX_BODY_BYTES:
            assert not select.select([connection.socket], [], [], 0)[0], "refused before the limit"
            connection.socket.sendall(b"1000\r\n" + b" " * 0x1000 + b"\r\n")
            sent += 0x1000
        # The end of the body was not sent, and will not be.
        answer = connection.answer()
        check_error(answer, 413, INVALID_REQUEST)
        assert answer.headers["connection"] == "close"
        assert connection.socket.recv(1) == b""


@pytest.mark.parametrize(
    "framing", [("Content-Length", "70000"), ("Content-Length", "100"), ("Transfer-Encoding", "chunked")]
)
def test_a_client_that_leaves_in_the_middle_of_its_body_disturbs_nobody(
    replica: Replica, framing: tuple[str, str]
) -> None:
    with RawConnection(replica) as connection:
        connection.head([*head_of(ECHO), framing])
        connection.socket.sendall(b"5\r\n")
    assert call(replica, "echo", {"text": "next"}).text == "next"


NO_HTTP: dict[str, bytes] = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "no method": b"/mcp HTTP/1.1\r\n\r\n",
    "two lengths": b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    "length and chunks": (
        b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "length below zero": b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "length beyond all": b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "chunk without length": b"POST /mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "a tunnel": b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "a broken address": b"POST http://[ HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("data", NO_HTTP.values(), ids=NO_HTTP)
def test_bytes_that_are_not_http_are_refused_and_their_connection_closed(replica: Replica, data: bytes) -> None:
    with RawConnection(replica) as connection:
        connection.socket.sendall(data)
        answer = connection.answer()
        assert 400 <= answer.status < 500
        assert b"Traceback" not in answer.body
        connection.socket.shutdown(1)
        assert connection.socket.recv(1) == b""


@pytest.mark.parametrize(
    "path",
    ["/", "/mcp//", "/mcp/x", "/MCP", "/%6dcp", "/mc%70", "//mcp", "/docs", "/openapi.json", "/metrics", "/%6dcp/.."],
)
def test_other_paths_do_not_exist(replica: Replica, path: str) -> None:
    with RawConnection(replica) as connection:
        connection.head([*head_of(ECHO), ("Content-Length", str(len(ECHO_BODY)))], path=path)
        connection.socket.sendall(ECHO_BODY)
        assert connection.answer().status == 404


@pytest.mark.parametrize("path", ["/healthz/", "/readyz/"])
def test_no_redirect_reflects_the_host(replica: Replica, path: str) -> None:
    with RawConnection(replica) as connection:
        connection.head([("Host", "localhost:4711")], method="GET", path=path)
        answer = connection.answer()
    assert answer.status == 404
    assert "4711" not in str(answer)


TOKENS: dict[str, tuple[Callable[[], str | None], bool]] = {
    "none": (lambda: None, False),
    "empty": (lambda: "", False),
    "another scheme": (lambda: "Basic YWxpY2U6c2VjcmV0", False),
    "no token": (lambda: "Bearer", True),
    "no JWT": (lambda: "Bearer hello", True),
    "two tokens": (lambda: f"Bearer {good_token()} {good_token()}", True),
    "another secret": (lambda: f"Bearer {mint('x' * 32, 'alice', 'tests')}", True),
    "another audience": (lambda: f"Bearer {mint(SECRET, 'alice', 'production')}", True),
    "expired": (lambda: f"Bearer {mint(SECRET, 'alice', 'tests', now=time.time() - 7200)}", True),
    "from the future": (lambda: f"Bearer {mint(SECRET, 'alice', 'tests', now=time.time() + 7200)}", True),
    "no expiry": (lambda: f"Bearer {jwt.encode({'sub': 'alice', 'aud': 'tests'}, SECRET, 'HS256')}", True),
    "unsigned": (lambda: f"Bearer {jwt.encode({'sub': 'alice', 'aud': 'tests', 'exp': 10**10}, '', 'none')}", True),
    "another algorithm": (
        lambda: f"Bearer {jwt.encode({'sub': 'alice', 'aud': 'tests', 'exp': 10**10}, SECRET * 2, 'HS512')}",
        True,
    ),
    "no user": (lambda: f"Bearer {mint(SECRET, '', 'tests')}", True),
    "a changed signature": (lambda: f"Bearer {good_token()[:-4]}AAAA", True),
    "very long": (lambda: "Bearer " + "x" * 10_000, True),
}


def good_token() -> str:
    return mint(SECRET, "alice", "tests")


@pytest.mark.parametrize(("make", "was_sent"), TOKENS.values(), ids=TOKENS)
def test_without_a_good_token_nobody_is_served(
    guarded: Replica, make: Callable[[], str | None], was_sent: bool
) -> None:
    authorization = make()
    headers = headers_of(ECHO) if authorization is None else {**headers_of(ECHO), "authorization": authorization}
    answer = post_bytes(guarded, ECHO_BODY, headers)
    check_error(answer, 401, INVALID_REQUEST)
    challenge = answer.headers["www-authenticate"]
    assert challenge.startswith("Bearer ")
    assert ('error="invalid_token"' in challenge) is was_sent
    assert SECRET not in answer.body.decode() + guarded.log_text()
    assert post(guarded, ECHO, token=good_token()).text == "hello"


def test_without_a_good_token_no_body_is_read(guarded: Replica) -> None:
    """The answer arrives although the body never does."""
    with RawConnection(guarded) as connection:
        connection.head([*head_of(ECHO), ("Transfer-Encoding", "chunked")])
        assert connection.answer().status == 401


def test_health_needs_no_token(guarded: Replica) -> None:
    for path in ("healthz", "readyz"):
        response = httpx.get(guarded.url.replace("mcp", path), timeout=SECONDS, trust_env=False, verify=False)
        assert response.status_code == 200
