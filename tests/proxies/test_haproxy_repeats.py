"""Which requests HAProxy, with the shipped file, sends again although a replica has received them.

Each request meets replicas that hang up without a reply. HAProxy has sent it twice if it takes it for one that no
upstream receives, and once otherwise.
"""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from gateway.cli.own_requests import show
from gateway.errors import RpcError
from gateway.protocol import strict_json
from gateway.protocol.jsonrpc import Request, Response, parse_message
from gateway.protocol.method_table import METHODS
from loadtest.cluster import Balancer
from tests.loadtest.stubs import WAIT_SECONDS, Exchange, StubReplica

TOOLS = "tests.proxies.own_tools"
OWN = {
    "tools/call": ("name", "pay"),
    "prompts/get": ("name", "greet"),
    "resources/read": ("uri", "own://page?a=1,b"),
}
OTHERS = {"tools/call": "up__pay", "prompts/get": "up__greet", "resources/read": "up+own://page?a=1,b"}
LARGEST_BODY = 1024 * 1024


class Site:
    """HAProxy before two replicas that hang up."""

    def __init__(self, directory: Path, own: str) -> None:
        self.balancer = Balancer(directory, own=own)
        self.stubs = (StubReplica("a"), StubReplica("b"))

    def __enter__(self) -> Site:
        self.balancer.start()
        self.balancer.wait_ready()
        for stub in self.stubs:
            stub.__enter__()
            stub.behave = Exchange.hang_up
        self.balancer.set_servers({stub.name: stub.address for stub in self.stubs})
        self.balancer.wait_up("a", "b")
        return self

    def __exit__(self, *_: object) -> None:
        self.balancer.stop()
        for stub in self.stubs:
            stub.__exit__()

    def repeats(
        self, body: bytes, headers: Mapping[str, str] | Sequence[tuple[str, str]] = (), *, chunked: bool = False
    ) -> bool:
        """Send a request, and return whether two replicas received it."""
        for stub in self.stubs:
            stub.received.clear()
        size = ("transfer-encoding", "chunked") if chunked else ("content-length", str(len(body)))
        given = headers.items() if isinstance(headers, Mapping) else headers
        with closing(http.client.HTTPConnection(urlsplit(self.balancer.url).netloc, timeout=WAIT_SECONDS)) as to:
            to.putrequest("POST", "/mcp")
            for name, value in [("content-type", "application/json"), size, *given]:
                to.putheader(name, value)
            to.endheaders(iter([body[:20], body[20:]]) if chunked else body, encode_chunked=chunked)
            with to.getresponse() as response:
                assert response.status == 502
                response.read()
        times = [len(stub.received) for stub in self.stubs]
        assert times in ([1, 1], [0, 1], [1, 0])
        return times == [1, 1]


def upstreams_file(directory: Path, **entries: Mapping[str, Any]) -> str:
    path = directory / "upstreams.json"
    path.write_text(
        json.dumps(
            {"mcpServers": {name: {"url": "http://127.0.0.1:9/mcp", **entry} for name, entry in entries.items()}}
        )
    )
    return str(path)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("list")
    with Site(directory, show(TOOLS, upstreams_file(directory, up={}))) as site:
        yield site


@pytest.fixture(scope="module", params=["", "# nothing\n\n"])
def listless(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("empty"), request.param) as site:
        yield site


def message(method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def spelled(method: str, name: str) -> list[tuple[bytes, dict[str, str]]]:
    """Return a call as each wire sends it, its first leg and an answer."""
    target = {OWN[method][0]: name, "arguments": {"amount": 7, "note": 'a\n"quoted" \\u0041 note', "name": "up__pay"}}
    answer = {"requestState": "s1.xyz", "inputResponses": {"sure": {"action": "accept", "content": {"name": "x"}}}}
    headers = {"mcp-method": method, "mcp-name": name, "mcp-protocol-version": "2026-07-28"}
    session = {"mcp-session-id": "x", "mcp-protocol-version": "2025-11-25"}
    return [
        (message(method, **target), headers),
        (message(method, **target, **answer), headers),
        (message(method, **answer, **target), headers),
        (message(method, **target), session),
        (message(method, **target, task={"ttl": 1000}), session),
        (message(method, **target, **answer), {}),
        (message(method, _meta={"name": "x", "uri": "y"}, **target), {}),
    ]


@pytest.mark.parametrize("method", OWN)
def test_a_call_of_our_own_is_repeated_and_one_of_an_upstream_is_not(method: str, site: Site) -> None:
    assert [site.repeats(*call) for call in spelled(method, OWN[method][1])] == [True] * 7
    assert [site.repeats(*call) for call in spelled(method, OTHERS[method])] == [False] * 7


@pytest.mark.parametrize("method", OWN)
def test_without_a_list_no_call_is_repeated(method: str, listless: Site) -> None:
    assert [listless.repeats(*call) for call in spelled(method, OWN[method][1])] == [False] * 7


@pytest.mark.parametrize("method", METHODS)
def test_only_methods_that_no_upstream_acts_upon_are_repeated_without_a_list(method: str, listless: Site) -> None:
    stays_open = method == "subscriptions/listen"
    assert listless.repeats(message(method, taskId="t", uri="own://x")) == (
        not METHODS[method].relayed and not stays_open
    )


@pytest.mark.parametrize(
    "answer",
    [
        {"result": {"action": "accept", "content": {"name": "x"}}},
        {"result": {"action": "decline"}},
        {"result": {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}},
        {"result": {"roots": [{"uri": "file:///x"}]}},
        {"error": {"code": -1, "message": "no"}},
    ],
)
def test_an_answer_in_a_session_is_repeated(answer: dict[str, Any], listless: Site) -> None:
    """It counts once. If it were lost, its call would wait for an hour."""
    assert listless.repeats(json.dumps({"jsonrpc": "2.0", "id": "q1", **answer}).encode())


@pytest.mark.parametrize(
    "body",
    [
        b'\n {\t"method" : "tools/call" ,\r\n "params" : { "name" : "pay" } }',
        rb'{"method":"tools/call","params":{"name":"p\u0061y"}}',
        b'{"method":"tools/call","params":{"names":"up__pay","nam":"x","name":"pay"}}',
        b'{"params":{"method":"x","params":{"name":"up__pay"},"name":"pay"},"method":"tools/call"}',
        b'{"method":"resources/read","params":{"uri":"own://items/7"}}',
        b'{"method":"tools/call","params":{"name":"pay","arguments":' + b"[" * 40 + b"]" * 40 + b"}}",
    ],
)
def test_odd_spellings_that_have_one_meaning_are_understood(body: bytes, site: Site) -> None:
    assert site.repeats(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"pay",
        b'{"method":"tools/call","params":{"name":"pay ',
        b'[{"method":"tools/call","params":{"name":"pay"}}]',
        b'{"method":"tools/call","params":["name","pay"]}',
        b'{"method":"tools/call","params":[{"name":"pay"}]}',
        b'{"method":"tools/call","params":{"name":["pay"]}}',
        b'{"method":"tools/call","params":{"name":"up__pay","name":"pay"}}',
        b'{"method":"tools/call","params":{"arguments":{"name":"pay"},"name":"up__pay"}}',
        b'{"method":"tools/call","params.name":"pay","params":{"name":"up__pay"}}',
        b'{"method":"tools/call","name":"pay","params":{"uri":"pay"}}',
        rb'{"method":"tools/call","params":{"n\u0061me":"pay"}}',
        rb'{"m\u0065thod":"tools/call","params":{"name":"pay"}}',
        rb'{"method":"tools/call","params":{"name":"pay\u0000__x"}}',
        rb'{"method":"tools/call","params":{"name":"pay\n"}}',
        b'{"method":"tools/call","params":{"name":"pay "}}',
        b'{"method":"tools/call","params":{"name":"PAY"}}',
        b'{"method":"tools/call","params":{"name":"*"}}',
        b'{"method":"tools/call","params":{"name":"pay2"}}',
        b'{"method":"tools/call","params":{"name":"greet"}}',
        b'{"method":"prompts/get","params":{"name":"pay"}}',
        b'{"method":"resources/read","params":{"uri":"own://page?a=1"}}',
        b'{"method":"resources/read","params":{"uri":"own://page?a=1,b,c"}}',
        b'{"method":"resources/read","params":{"uri":"x+own://items/7"}}',
        b'{"method":"resources/read","params":{"uri":"under own://items/7"}}',
        b'{"method":"resources/read","params":{"uri":"up+own://x"}}',
        b'{"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"greet"}}}',
        b'{"method":"tools/call pay","params":{"name":"pay"}}',
        b'{"x":' + b"[" * 40 + b"]" * 40 + b',"method":"tools/call","params":{"name":"pay"}}',
        b'{"x":"' + b"x" * LARGEST_BODY + b'","method":"tools/call","params":{"name":"pay"}}',
        b'{"method":"tools/call","params":{"name":"pay","x":"' + b"x" * LARGEST_BODY + b'"}}',
        '{"method":"tools/call","params":{"name":"pay"}}'.encode("utf-16"),
        b'\xef\xbb\xbf{"method":"tools/call","params":{"name":"pay"}}',
        b'{"method":"unknown","params":{"name":"pay"}}',
        b'{"jsonrpc":"2.0","id":"q1","result":{"content":{"action":"accept"}}}',
    ],
)
def test_anything_else_is_sent_once(body: bytes, site: Site) -> None:
    assert not site.repeats(body)


@pytest.mark.parametrize(
    "headers",
    [
        {"mcp-method": "tools/call", "mcp-name": "up__pay"},
        {"mcp-name": "up__pay"},
        {"mcp-method": "prompts/get"},
        {"mcp-method": "tools/call", "mcp-name": f"=?base64?{base64.b64encode(b'pay').decode()}?="},
        {"mcp-method": "tools/call", "mcp-name": "PAY"},
        {"mcp-name": ""},
        [("mcp-name", "pay"), ("mcp-name", "up__pay")],
    ],
)
def test_a_header_that_differs_from_the_body_is_sent_once(
    headers: Mapping[str, str] | Sequence[tuple[str, str]], site: Site
) -> None:
    body = message("tools/call", name="pay")
    assert site.repeats(body, {"mcp-method": "tools/call", "mcp-name": "pay"})
    assert not site.repeats(body, headers)


def test_a_body_in_chunks_is_read_like_any_other(site: Site) -> None:
    assert site.repeats(message("tools/call", name="pay"), chunked=True)
    assert not site.repeats(message("tools/call", name="up__pay"), chunked=True)


def test_a_star_stands_for_everything(tmp_path: Path) -> None:
    with Site(tmp_path, show(TOOLS, None)) as site:
        assert [site.repeats(body) for body in (b"", b"x", message("tools/call", name="up__pay"))] == [True] * 3


NAMES = st.sampled_from(["pay", "up__pay", "p\\u0061y", "pay\\u0000x", "pay\\n", " pay", "greet", 'pay\\"'])
KEYS = st.sampled_from(
    [
        "method",
        "params",
        "name",
        "uri",
        "params.name",
        "m\\u0065thod",
        "n\\u0061me",
        "result",
        "error",
        "action",
        "code",
        "x",
    ]
)
SPACES = st.sampled_from(["", " ", "\n\t", "\r\n"])
SCALARS = st.one_of(
    NAMES.map(lambda name: f'"{name}"'),
    st.sampled_from(
        [
            '"tools/call"',
            '"tools/list"',
            '"tools\\/call"',
            "1",
            "-0.5e3",
            "true",
            "null",
            '"own://items/1"',
            "[]",
            "{}",
            '"{\\"name\\":\\"pay\\"}"',
        ]
    ),
)


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    member = st.tuples(SPACES, KEYS, SPACES, values).map(lambda parts: f'{parts[0]}"{parts[1]}"{parts[2]}:{parts[3]}')
    return st.lists(member, max_size=4).map(lambda members: "{" + ",".join(members) + "}")


VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(objects(inner), st.lists(inner, max_size=2).map(lambda parts: f"[{','.join(parts)}]")),
)
BODIES = st.tuples(
    st.permutations(["a", "b"]),
    st.sampled_from(['"tools/call"', '"resources/read"', '"tools\\/call"']),
    objects(st.one_of(SCALARS, VALUES)),
    st.lists(st.tuples(KEYS, VALUES), max_size=2),
).map(
    lambda parts: (
        "{"
        + ",".join(
            [f'"method":{parts[1]}', f'"params":{parts[2]}'][:: 1 if parts[0][0] == "a" else -1]
            + [f'"{key}":{value}' for key, value in parts[3]]
            + ['"jsonrpc":"2.0","id":1']
        )
        + "}"
    )
)


@settings(max_examples=400)
@given(body=BODIES)
def test_whatever_the_body_no_call_of_an_upstream_is_repeated(body: str, site: Site) -> None:
    """A replica reads the same bodies strictly: what it would run, or that it runs nothing."""
    try:
        read = parse_message(strict_json.decode(body.encode(), 64))
    except RpcError:
        return  # a replica runs nothing
    repeats = site.repeats(body.encode())
    event(f"repeated: {repeats}")
    if not repeats or isinstance(read, Response):
        return
    assert isinstance(read, Request)
    if read.method in OWN:
        member, name = OWN[read.method]
        assert read.params[member] == name or str(read.params[member]).startswith("own://items/")
    else:
        assert not METHODS[read.method].relayed
