"""Whatever arrives at the endpoint, one clear answer leaves, and no altered token ever opens."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.admission.inflight import InFlight
from gateway.admission.leg_limit import FixedLimit
from gateway.auth.tokens import mint
from gateway.authoring.server import Introduction
from gateway.errors import Overloaded
from gateway.process.app import GatewayApp
from gateway.protocol.method_table import METHODS, Method
from gateway.protocol.versions import DRAFT
from gateway.registry.registry import Registry
from gateway.runtime.version import __version__
from gateway.sealing import base64url
from gateway.web.endpoint import _takes_streams
from tests.admission.test_inflight import TARGET, enter, fill_as
from tests.asgi import HOST, Client, make_app, raw_headers
from tests.identity import AUDIENCE, ISSUER, IdentityProvider, SigningKey
from tests.integration.raw import (
    META,
    META_CAPABILITIES,
    META_VERSION,
    VERSION,
    Answer,
    accept,
    headers_of,
    request,
    tool_call,
)
from tests.waiting import until

CODES = {-32700, -32600, -32601, -32602, -32020, -32021, -32022}
FROZEN = {"code": -32602, "message": "Invalid or expired requestState", "data": {"reason": "invalid_request_state"}}
ECHO = tool_call("echo", {"text": "hello"})
GREET = tool_call("greet", {"greeting": "Hi"})
LIMIT = 4096
SECRET = "a secret that only these tests know, 32 bytes"


@pytest.fixture(scope="module")
def app() -> GatewayApp:
    return make_app(max_body_bytes=LIMIT)


@pytest.fixture(scope="module")
def guarded() -> GatewayApp:
    return make_app(auth="jwt", jwt_secret=SECRET)


@pytest.fixture(autouse=True)
def _nobody_keeps_a_place(app: GatewayApp, guarded: GatewayApp) -> Iterator[None]:
    yield
    for each in (app, guarded):
        load = each._services.load
        assert (load.in_flight, load.waiting) == (0, 0)


@pytest.fixture(autouse=True)
def _no_failure_of_our_own(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert not [record for record in caplog.records if record.getMessage() == "request failed"]


def check(answer: Answer) -> None:
    """The answer is well formed, and not an error of ours."""
    assert answer.headers["x-gateway-replica"] == "r1"
    assert answer.status < 500
    if answer.status in {202, 204}:
        assert answer.body == b""
        return
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["content-length"]) == len(answer.body)
    message = json.loads(answer.body)
    assert message["jsonrpc"] == "2.0"
    if answer.status == 200:
        assert set(message) == {"jsonrpc", "id", "result"}
        assert message["result"]["resultType"] in {"complete", "input_required"}
    else:
        assert set(message) - {"id"} == {"jsonrpc", "error"}
        assert message["error"]["code"] in CODES
        assert "Traceback" not in message["error"]["message"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
member_names = st.sampled_from(
    ["jsonrpc", "id", "method", "params", "name", "arguments", "_meta", "requestState", "inputResponses", "cursor"]
)
telling_values = st.sampled_from(
    [
        *METHODS,
        *(
            "2.0",
            "echo",
            "greet",
            "add_one",
            "crash",
            "babble",
            "who",
            VERSION,
            "2025-11-25",
            "s1.",
            2**70,
            -0.0,
            1e308,
        ),
    ]
)


def test_one_application_serves_on_one_event_loop_after_another() -> None:
    app = make_app()

    async def ask() -> Answer:
        answer = await Client(app).send([json.dumps(ECHO).encode()], raw_headers(ECHO))
        patience = app._endpoint._patience
        assert patience is not None
        while patience._timer is not None:  # as it is a moment later
            patience._timer.cancel()
            patience._look()
        return answer

    assert [asyncio.run(ask()).status for _ in range(3)] == [200, 200, 200]


@given(body=st.binary(max_size=2 * LIMIT))
async def test_arbitrary_bytes_get_a_clear_answer(app: GatewayApp, body: bytes) -> None:
    answer = await Client(app).send([body], raw_headers(ECHO))
    check(answer)
    assert answer.status in {400, 413}


@given(value=json_values | st.dictionaries(member_names, json_values | telling_values))
async def test_arbitrary_json_gets_a_clear_answer(app: GatewayApp, value: Any) -> None:
    check(await Client(app).send([json.dumps(value).encode()], raw_headers(ECHO)))


@st.composite
def mutated_messages(draw: st.DrawFn) -> dict[str, Any]:
    """A good request in which a few places were replaced, removed or added."""
    message: dict[str, Any] = copy.deepcopy(
        draw(st.sampled_from([ECHO, GREET, request("tools/list"), request("server/discover")]))
    )
    for _mutation in range(draw(st.integers(1, 4))):
        holders = list(_holders(message))
        holder = draw(st.sampled_from(holders))
        name = draw(st.sampled_from([*holder, *META]) | member_names | st.text(max_size=5))
        if draw(st.booleans()):
            holder[name] = draw(telling_values | json_values)
        else:
            holder.pop(name, None)
    return message


def _holders(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for member in value.values():
            yield from _holders(member)


@settings(max_examples=3 * settings().max_examples)
@given(message=mutated_messages(), fitting=st.booleans())
async def test_a_mutated_request_gets_a_clear_answer(app: GatewayApp, message: dict[str, Any], fitting: bool) -> None:
    """Also with headers that fit the mutation, which gets past the comparison of headers and body."""
    headers = raw_headers(ECHO)
    if fitting:
        headers = [HOST, *_fitting_headers(message)]
    check(await Client(app).send([msgspec.json.encode(message)], headers))


def _fitting_headers(message: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    meta = params.get("_meta")
    version = meta.get(META_VERSION) if isinstance(meta, dict) else VERSION
    texts = {"mcp-protocol-version": version, "mcp-method": message.get("method"), "mcp-name": params.get("name")}
    return [
        (b"content-type", b"application/json"),
        *(
            (name.encode(), _header_value(text) if name == "mcp-name" else text.encode())
            for name, text in texts.items()
            if isinstance(text, str)
        ),
    ]


def _header_value(text: str) -> bytes:
    return b"=?base64?" + msgspec.json.encode(text.encode()).strip(b'"') + b"?="


known_names = st.sampled_from(
    [
        *(b"host", b"authorization", b"content-type", b"content-length", b"content-encoding", b"origin", b"accept"),
        *(b"mcp-protocol-version", b"mcp-method", b"mcp-name", b"mcp-session-id", b"mcp-param-x", b"last-event-id"),
    ]
)
header_values = st.binary(max_size=40) | st.sampled_from(
    [
        b"",
        b"application/json",
        b"tools/call",
        b"echo",
        VERSION.encode(),
        b"9" * 5000,
        b"-1",
        b"=?base64??=",
        b"127.0.0.1",
    ]
)
raw_header_lists = st.lists(st.tuples(known_names | st.binary(min_size=1, max_size=10), header_values), max_size=8)


@settings(max_examples=3 * settings().max_examples)
@given(headers=raw_header_lists, keep=st.booleans())
async def test_arbitrary_headers_get_a_clear_answer(
    app: GatewayApp, headers: list[tuple[bytes, bytes]], keep: bool
) -> None:
    given_names = {name for name, _value in headers}
    rest = [pair for pair in raw_headers(ECHO) if keep and pair[0] not in given_names]
    check(await Client(app).send([msgspec.json.encode(ECHO)], [*rest, *headers]))


@given(authorization=st.binary(max_size=200) | st.builds(lambda text: b"Bearer " + text, st.binary(max_size=200)))
async def test_arbitrary_credentials_are_refused(guarded: GatewayApp, authorization: bytes) -> None:
    headers = [*raw_headers(ECHO), (b"authorization", authorization)]
    answer = await Client(guarded).send([msgspec.json.encode(ECHO)], headers)
    check(answer)
    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Bearer ")


@settings(max_examples=3 * settings().max_examples)
@given(data=st.data())
async def test_an_altered_bearer_token_is_refused(guarded: GatewayApp, data: st.DataObject) -> None:
    token = mint(SECRET, "alice", "tests", now=2e9, ttl_seconds=10**6)
    altered = data.draw(alterations(token))
    answer = await Client(guarded).post(ECHO, authorization=f"Bearer {altered}")
    assert answer.status == 401


@st.composite
def alterations(draw: st.DrawFn, token: str) -> str:
    """A text that is nearly this token."""
    start = draw(st.integers(0, len(token)))
    end = draw(st.integers(start, min(len(token), start + 3)))
    characters = st.sampled_from("ABCXYZabcxyz0189-_.=+/ ") | st.characters(min_codepoint=0x20, max_codepoint=0x7E)
    altered = token[:start] + draw(st.text(characters, max_size=3)) + token[end:]
    return token + "A" if altered.strip() == token else altered


async def first_leg(app: GatewayApp) -> str:
    return (await Client(app).post(GREET)).state


@pytest.fixture(scope="module")
def state(app: GatewayApp) -> str:
    """The state of a call that asks, as its client keeps it."""
    return asyncio.run(first_leg(app))


async def retry(app: GatewayApp, state: Any) -> Answer:
    message = copy.deepcopy(GREET)
    message["params"] |= {"requestState": state, "inputResponses": accept(name="Ada")}
    return await Client(app).post(message)


@settings(max_examples=3 * settings().max_examples)
@given(data=st.data())
async def test_no_altered_state_ever_opens(app: GatewayApp, state: str, data: st.DataObject) -> None:
    answer = await retry(app, data.draw(alterations(state)))
    assert (answer.status, answer.message["error"]) == (400, FROZEN)


@settings(max_examples=3 * settings().max_examples)
@given(data=st.data())
async def test_no_state_opens_that_has_one_bit_changed_under_its_text(
    app: GatewayApp, state: str, data: st.DataObject
) -> None:
    raw = bytearray(base64url.decode(state.removeprefix("s1.")))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    answer = await retry(app, "s1." + base64url.encode(bytes(raw)))
    assert (answer.status, answer.message["error"]) == (400, FROZEN)


ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@pytest.mark.parametrize("size", range(3))
async def test_no_state_has_a_second_text(app: GatewayApp, size: int) -> None:
    """Bits of the last character that carry nothing must be zero. Which they are depends on the length."""
    call = tool_call("hoard", {"size": size})
    state = (await Client(app).post(call)).state
    opened = []
    for last in ALPHABET:
        call["params"] |= {"requestState": state[:-1] + last, "inputResponses": accept(name="Ada")}
        if (await Client(app).post(call)).status == 200:
            opened.append(last)
    assert opened == [state[-1]]


@given(state=st.text() | st.builds("s1.".__add__, st.text()) | json_values.filter(lambda value: value is not None))
async def test_nothing_that_we_did_not_make_opens(app: GatewayApp, state: Any) -> None:
    answer = await retry(app, state)
    assert (answer.status, answer.message["error"]) == (400, FROZEN)


@given(answers=st.dictionaries(st.just("who") | st.text(max_size=3), json_values, max_size=3))
async def test_arbitrary_answers_never_reach_the_tool(app: GatewayApp, state: str, answers: dict[str, Any]) -> None:
    """None of them is an accepted form with a text `name`, so the question is asked again."""
    message = copy.deepcopy(GREET)
    message["params"] |= {"requestState": state, "inputResponses": answers}
    answer = await Client(app).post(message)
    check(answer)
    assert list(answer.result["inputRequests"]) == ["who"]


async def test_what_was_not_altered_opens(app: GatewayApp, state: str) -> None:
    assert (await retry(app, state)).text == "Hi Ada"


@settings(max_examples=30)
@given(cuts=st.lists(st.integers(0, len(msgspec.json.encode(ECHO))), max_size=5))
async def test_a_body_may_come_in_pieces(app: GatewayApp, cuts: list[int]) -> None:
    body = msgspec.json.encode(ECHO)
    edges = [0, *sorted(cuts), len(body)]
    pieces = [body[start:end] for start, end in itertools.pairwise(edges)]
    assert (await Client(app).send(pieces, raw_headers(ECHO))).text == "hello"


async def test_nothing_is_read_beyond_the_limit(app: GatewayApp) -> None:
    client = Client(app)
    answer = await client.send(itertools.repeat(b" " * 1000), raw_headers(ECHO))
    assert answer.error == (413, -32600)
    assert answer.headers["connection"] == "close"
    assert client.asked_for == LIMIT // 1000 + 1


@pytest.mark.parametrize("length", [str(LIMIT + 1), "0" * 30 + str(LIMIT + 1), "9" * 5000])
async def test_nothing_is_read_of_a_body_that_is_announced_as_too_large(app: GatewayApp, length: str) -> None:
    client = Client(app)
    answer = await client.send(itertools.repeat(b" "), [*raw_headers(ECHO), (b"content-length", length.encode())])
    assert answer.error == (413, -32600)
    assert client.asked_for == 0


@pytest.mark.parametrize("length", ["0" * 30 + "5", "-1", "many", "²", ""])
async def test_a_length_that_says_nothing_is_not_relied_on(app: GatewayApp, length: str) -> None:
    headers = [*raw_headers(ECHO), (b"content-length", length.encode())]
    assert (await Client(app).send([msgspec.json.encode(ECHO)], headers)).text == "hello"


async def test_nothing_is_read_from_somebody_without_a_token(guarded: GatewayApp) -> None:
    client = Client(guarded)
    assert (await client.send(itertools.repeat(b" "), raw_headers(ECHO))).status == 401
    assert client.asked_for == 0


@pytest.mark.parametrize("chunks", [[], [b"{"], [msgspec.json.encode(ECHO)]])
async def test_a_client_that_disconnects_before_its_body_is_complete_gets_no_answer(
    app: GatewayApp, chunks: list[bytes]
) -> None:
    client = Client(app, leaves=True)
    await client.run(chunks, raw_headers(ECHO))
    assert client.sent == []


async def test_a_bug_of_ours_is_an_internal_error_that_reveals_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_arguments: object) -> None:
        raise RuntimeError("the secret")

    app = make_app()
    with monkeypatch.context() as patch:
        patch.setattr(app._endpoint, "_origins", SimpleNamespace(check=fail))
        answer = await Client(app).post(ECHO)
    assert answer.error == (500, -32603)
    assert answer.message["error"] == {"code": -32603, "message": "Internal error"}
    (record,) = caplog.records
    assert (record.getMessage(), record.levelno) == ("request failed", logging.ERROR)
    assert record.exc_info is not None
    assert "the secret" in str(record.exc_info[1])
    caplog.clear()
    assert (await Client(app).post(ECHO)).text == "hello"


async def test_without_identity_requests_with_the_same_header_may_use_all_of_the_room() -> None:
    app = make_app(max_inflight=8)
    headers = [(b"mcp-method", b"tools/call"), (b"authorization", b"Bearer for-somebody-else")]
    arrivals = [app._endpoint.arrived({"type": "http", "method": "POST", "headers": headers}) for _ in range(13)]
    assert [arrival.refused for arrival in arrivals] == [None] * 12 + [Overloaded]
    for arrival in arrivals:
        arrival.step_aside()
    assert app._services.load.in_flight == 0


async def test_a_request_holds_no_place_while_keys_are_fetched_and_needs_one_afterwards() -> None:
    old, new = SigningKey("old"), SigningKey("new")
    bearer = f"Bearer {new.token()}"
    with IdentityProvider(old) as provider:
        app = make_app(auth="jwt", jwks_url=provider.url, jwt_issuer=ISSUER, jwt_audience=AUDIENCE, max_inflight=1)
        load = app._services.load
        async with app._services.authenticator.running():
            publish = provider.hold_back(old, new)
            waiting = asyncio.create_task(Client(app).post(ECHO, authorization=bearer))
            await asyncio.to_thread(provider.wait_for_request, 2)
            assert load.in_flight == 0
            other = load.arrive()
            assert other is not None
            assert other.enter("other", goes_on=False) is None
            publish()
            assert (await waiting).error == (503, -31001)  # the other one has the only place
            other.leave()
            assert (await Client(app).post(ECHO, authorization=bearer)).text == "hello"
            assert load.in_flight == 0


@pytest.mark.setting("replica_id", "replica_header")
async def test_the_name_of_the_replica_is_sent_unless_it_is_off() -> None:
    assert (await Client(make_app(replica_id="left")).post(ECHO)).headers["x-gateway-replica"] == "left"
    assert "x-gateway-replica" not in (await Client(make_app(replica_header=False)).post(ECHO)).headers


@pytest.mark.setting("connection_close")
async def test_each_answer_closes_its_connection_if_so_set() -> None:
    app = make_app(connection_close=True)
    assert (await Client(app).post(ECHO)).headers["connection"] == "close"
    assert (await Client(app).send([b"{"], raw_headers(ECHO))).headers["connection"] == "close"
    assert "connection" not in (await Client(make_app()).post(ECHO)).headers


async def test_calls_at_the_same_time_do_not_mix(app: GatewayApp) -> None:
    """Each answer goes to its own request, also while others crash."""

    async def one(number: int) -> str:
        if number % 3 == 0:
            return (await Client(app).post(tool_call("crash", {"how": "base"}))).text.partition(" (")[0]
        return (await Client(app).post(tool_call("echo", {"text": str(number)}))).text

    told = await asyncio.gather(*map(one, range(60)))
    assert told == [str(number) if number % 3 else "crash failed" for number in range(60)]


async def test_other_paths_are_served_by_the_site(app: GatewayApp) -> None:
    assert (await Client(app).send([b""], [HOST], method="GET", path="/healthz")).message == {"status": "alive"}
    assert (await Client(app).send([b""], [HOST], method="GET", path="/readyz")).message == {
        "status": "ready",
        "clock": {},
    }
    assert (await Client(app).send([b""], [HOST], method="GET", path="/other")).status == 404


async def test_discovery_names_the_server_and_what_it_serves(app: GatewayApp) -> None:
    result = (await Client(app).post(request("server/discover"))).result
    assert result["supportedVersions"] == [VERSION, "2025-11-25", "2025-06-18"]
    assert "tools" in result["capabilities"]
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "sealed-gateway"
    assert META_CAPABILITIES not in result["_meta"]


async def test_reloaded_tools_introduce_the_server_anew() -> None:
    app = make_app()
    app._services.wires.serve(Registry([Introduction({"name": "shop", "title": "The shop"}, "shop.py:1")]))
    named = {"name": "shop", "version": __version__}
    found = [(await Client(app).post(request(method))).result["_meta"] for method in ("server/discover", "tools/list")]
    info = "io.modelcontextprotocol/serverInfo"
    assert [meta[info] for meta in found] == [{**named, "title": "The shop"}, named]


class Full:
    """A replica whose one place is taken by a call that is held, until `release`."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.app = make_app(max_inflight=1, **settings)
        self._started, self._release = directory / "started", directory / "release"

    async def __aenter__(self) -> GatewayApp:
        arguments = {"started": str(self._started), "release": str(self._release)}
        self._held = asyncio.create_task(Client(self.app).post(tool_call("hold", arguments)))
        await until(self._started.exists)
        return self.app

    async def __aexit__(self, *_: object) -> None:
        self._release.touch()
        assert (await self._held).text == "released"


@pytest.mark.setting("max_inflight")
async def test_a_full_replica_refuses_without_reading_anything(tmp_path: Path) -> None:
    async with Full(tmp_path) as app:
        client = Client(app)
        answer = await client.send(itertools.repeat(b" "), raw_headers(ECHO, authorization="Bearer nonsense"))
        assert answer.error == (503, -31001)
        assert answer.message["error"] == {
            "code": -31001,
            "message": "The server is overloaded",
            "data": {"retryAfterSeconds": 1},
        }
        assert answer.message.get("id") is None
        assert answer.headers["retry-after"] == "1"
        assert answer.headers["x-gateway-replica"] == "r1"
        assert client.asked_for == 0
    assert (await Client(app).post(ECHO)).text == "hello"


async def full() -> InFlight:
    """Return an admission without a place."""
    load = InFlight(FixedLimit(1), TARGET, time.monotonic)
    enter(load)
    return load


async def shared() -> InFlight:
    """Return an admission in which one caller has its share of the room to wait in."""
    load = InFlight(FixedLimit(8), TARGET, time.monotonic)
    await fill_as(load, "greedy")
    return load


@pytest.mark.parametrize(
    ("busy", "text"),
    [(full, "The server is overloaded"), (shared, "One caller may have no more waiting requests at the moment")],
)
async def test_a_refusal_says_whether_the_server_or_the_callers_own_share_is_full(
    monkeypatch: pytest.MonkeyPatch, busy: Callable[[], Awaitable[InFlight]], text: str
) -> None:
    app = make_app()
    monkeypatch.setattr(app._endpoint, "_admission", await busy())
    monkeypatch.setattr(app._endpoint, "_has_callers", True)
    plain = {**ECHO, "params": {"name": "echo"}}
    own = (b"authorization", b"greedy")
    version = (b"mcp-protocol-version", DRAFT.encode())
    unnamed = [(b"host", b"localhost"), (b"content-type", b"application/json"), version]
    for message, headers in ((ECHO, raw_headers(ECHO)), (plain, unnamed)):
        answer = await Client(app).send([json.dumps(message).encode()], [*headers, own])
        assert answer.error[1] == -31001
        assert answer.message["error"]["message"] == text


@pytest.mark.parametrize("method", ["server/discover", "notifications/cancelled"])
async def test_methods_that_show_clients_the_protocol_are_served_by_a_full_replica(tmp_path: Path, method: str) -> None:
    message = request(method)
    if method.startswith("notifications/"):
        del message["id"]
    async with Full(tmp_path) as app:
        assert (await Client(app).post(message)).status in {200, 202}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
async def test_a_full_replica_refuses_all_methods_but_those_that_the_table_exempts(
    tmp_path: Path, method: Method
) -> None:
    async with Full(tmp_path) as app:
        assert ((await Client(app).post(request(method.name))).status != 503) == method.never_refused


async def test_a_method_in_the_headers_alone_opens_no_back_door(tmp_path: Path) -> None:
    async with Full(tmp_path) as app:
        headers = {**headers_of(ECHO), "mcp-method": "server/discover"}
        given = [HOST, *((name.encode(), value.encode()) for name, value in headers.items())]
        answer = await Client(app).send([msgspec.json.encode(ECHO)], given)
        assert answer.error == (400, -32020)


@pytest.mark.setting("allowed_origins")
async def test_a_web_page_can_read_that_the_replica_is_full(tmp_path: Path) -> None:
    async with Full(tmp_path, allowed_origins=("https://app.example.com",)) as app:
        answer = await Client(app).post(ECHO, origin="https://app.example.com")
        assert answer.headers["access-control-allow-origin"] == "https://app.example.com"
        assert (
            "access-control-allow-origin" not in (await Client(app).post(ECHO, origin="https://evil.example")).headers
        )


async def test_requests_that_only_wait_for_others_give_up_their_place(tmp_path: Path) -> None:
    app = make_app(max_inflight=1)
    listening = asyncio.create_task(
        Client(app).post(request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
    )
    for _ in range(20):
        await asyncio.sleep(0)
    assert not listening.done()
    assert (await Client(app).post(ECHO)).text == "hello"
    app.leave()
    assert (await listening).status == 200


def hold(app: GatewayApp, directory: Path) -> asyncio.Task[Answer]:
    """Call a tool that says in a directory that it has started, and ends once `release` is there."""
    directory.mkdir()
    arguments = {"started": str(directory / "started"), "release": str(directory / "release")}
    return asyncio.create_task(Client(app).post(tool_call("hold", arguments)))


async def test_a_request_waits_for_a_place_and_then_is_served(tmp_path: Path) -> None:
    app = make_app(max_inflight=2)
    first, second = tmp_path / "first", tmp_path / "second"
    held = [hold(app, path) for path in (first, second)]
    await until((second / "started").exists)
    waiting = asyncio.create_task(Client(app).post(ECHO))
    for _ in range(20):
        await asyncio.sleep(0)
    assert app._services.load.waiting == 1
    assert (await Client(app).post(ECHO)).error == (503, -31001)
    (first / "release").touch()
    assert (await waiting).text == "hello"
    (second / "release").touch()
    assert [(await call).text for call in held] == ["released", "released"]


async def test_a_request_that_continues_a_call_is_admitted_before_new_calls(tmp_path: Path) -> None:
    app = make_app(max_inflight=4, queue_target_ms=60_000)
    going_on = copy.deepcopy(GREET)
    going_on["params"] |= {"requestState": await first_leg(app), "inputResponses": accept(name="Ada")}
    held = [hold(app, tmp_path / str(number)) for number in range(4)]
    await until(lambda: all((tmp_path / str(number) / "started").exists() for number in range(4)))
    served: list[str] = []
    waiting = []
    for message in (ECHO, going_on):
        waiting.append(asyncio.create_task(Client(app).post(message)))
        waiting[-1].add_done_callback(lambda call: served.append(call.result().text))
        await until(lambda: app._services.load.waiting >= len(waiting))
    (tmp_path / "0" / "release").touch()
    await asyncio.gather(*waiting)
    assert served == ["Hi Ada", "hello"]
    for number in range(1, 4):
        (tmp_path / str(number) / "release").touch()
    assert [(await call).text for call in held] == ["released"] * 4


@pytest.mark.parametrize(
    ("accepted", "streams"),
    [
        ("text/event-stream", True),
        ("TEXT/Event-Stream", True),
        ("*/*", True),
        ("text/*", True),
        ("application/json", False),
    ],
)
async def test_a_client_accepts_streams_in_any_of_the_usual_ways(accepted: str, streams: bool) -> None:
    assert _takes_streams(accepted.encode()) is streams
