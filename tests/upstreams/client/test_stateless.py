"""Requests to a stateless server: what it gets, and how each kind of answer ends."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from gateway.protocol.upstream.deviations import Deviation
from gateway.protocol.upstream.responses import read_message
from gateway.runtime.turns import PAUSES, Turns
from gateway.upstreams import readings
from gateway.upstreams.client import stateless
from gateway.upstreams.client.decoding import QUICK_COMMAS
from gateway.upstreams.client.dialects import Sessionless
from gateway.upstreams.client.hearing import MAX_NOTICE_BYTES
from gateway.upstreams.failures import Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.healing import Healing
from gateway.upstreams.ports import NOBODY, UpstreamCaller
from gateway.upstreams.readings import readings_of_answers
from gateway.upstreams.texts import sentence_of
from tests.upstreams.client.serving import CLIENT_INFO, SECONDS, Asking, Shop, asking, fine, notice, result
from tests.upstreams.lists.fakes import until
from tests.upstreams.servers.hostile import CALLS, FAILURES, SECRET, SILENT, UNSENT, Hostile, bytes_of
from tests.upstreams.servers.plain_http import Exchange

META = "io.modelcontextprotocol/"


@pytest.fixture(scope="module")
def hostile() -> Iterator[Hostile]:
    with Hostile() as server:
        yield server


@pytest.fixture
async def hostiles_client(hostile: Hostile) -> AsyncIterator[Asking]:
    async with asking(hostile.url) as client:
        yield client


@pytest.fixture
def shop() -> Iterator[Shop]:
    with Shop() as shop:
        yield shop


@pytest.fixture
async def client(shop: Shop) -> AsyncIterator[Asking]:
    async with asking(shop.server.url) as client:
        yield client


async def failure_of(client: Asking, tool: str = "echo", **options: Any) -> UpstreamFailure:
    with pytest.raises(UpstreamFailure) as raised:
        await client.call(tool, **options)
    assert SECRET not in str(raised.value)
    assert client.counted.reasons == [raised.value.reason]
    assert client.counted.ended == [("tools/call", raised.value.reason.value)]
    return raised.value


@pytest.mark.parametrize("fault", FAILURES)
async def test_each_fault_has_one_outcome(hostile: Hostile, hostiles_client: Asking, fault: str) -> None:
    hostile.asked.clear()

    failure = await failure_of(hostiles_client, fault, max_bytes=20_000)

    assert (failure.reason, failure.sent) == (FAILURES[fault], True)
    assert hostile.asked == [f"tools/call {fault}"]  # it was not sent again


@pytest.mark.parametrize("fault", SILENT)
async def test_silence_ends_in_time(hostiles_client: Asking, fault: str) -> None:
    failure = await failure_of(hostiles_client, fault, seconds=0.3)

    assert (failure.reason, failure.sent) == (Reason.TIMED_OUT, True)


@pytest.mark.parametrize("fault", UNSENT)
async def test_a_refusal_says_that_nothing_was_done(hostile: Hostile, hostiles_client: Asking, fault: str) -> None:
    hostile.asked.clear()

    failure = await failure_of(hostiles_client, fault)

    assert (failure.reason, failure.sent, failure.refused) == (UNSENT[fault], False, True)
    assert len(hostile.asked) == 1
    assert hostile.followed == 0


def test_every_fault_of_the_hostile_server_is_tried() -> None:
    asks = {name for name in CALLS if name.startswith(("asks_", "state_", "error_consent"))}  # for relays
    here = {"echo", "lone_surrogate", "reserved_meta", "error_long", "error_control", "two_responses", "endless_head"}
    here |= {
        "error_ours",
        "error_reserved",
        "error_version",
        "error_of_a_state",
        "error_no_code",
        "error_no_object",
    }

    assert FAILURES.keys() | UNSENT.keys() | set(SILENT) | asks | here == CALLS.keys()


async def test_an_endless_head_ends(hostiles_client: Asking) -> None:
    failure = await failure_of(hostiles_client, "endless_head", seconds=5)

    assert failure.reason in {Reason.TOO_LARGE, Reason.MALFORMED}


async def test_what_is_only_odd_is_passed_on(hostiles_client: Asking) -> None:
    assert (await hostiles_client.call("lone_surrogate"))["content"][0]["text"] == "a\ufffdb"
    meta = (await hostiles_client.call("reserved_meta"))["_meta"]
    assert meta.keys() == {"io.modelcontextprotocol/serverInfo", "example.com/kept"}
    assert (await hostiles_client.call("two_responses"))["content"][0]["text"] == "the first"


async def test_an_error_of_the_upstream_is_raised_as_it_came(hostiles_client: Asking) -> None:
    with pytest.raises(UpstreamError) as raised:
        await hostiles_client.call("error_long")

    error = raised.value
    assert (error.upstream, error.code, len(error.message), error.data) == ("shop", 5, 16_384, {"kept": True})
    assert hostiles_client.counted.ended == [("tools/call", "error")]
    assert hostiles_client.counted.reasons == []


class Tracing:
    """Satisfies `UpstreamTracing`, and notes each span that has ended."""

    traceparent = "00-aa-bb-01"

    def __init__(self) -> None:
        self.spans: list[tuple[str, str, str]] = []

    def upstream_request(self, upstream: str, method: str) -> Tracing:
        self._begun = (upstream, method)
        return self

    def end(self, outcome: str) -> None:
        self.spans.append((*self._begun, outcome))


async def test_a_request_is_complete_in_itself(shop: Shop) -> None:
    declared: dict[str, Any] = {"elicitation": {}, "experimental": {"x": {}}}
    tracing = Tracing()
    async with asking(shop.server.url, tracing=tracing) as client:
        await client.call("écho", requester=UpstreamCaller(capabilities=declared), param_headers=[("Mcp-Param-A", "ü")])

    message, exchange = shop.messages[0], shop.exchanges[0]
    assert message["method"] == "tools/call"
    assert message["params"]["_meta"] == {
        META + "protocolVersion": "2026-07-28",
        META + "clientInfo": CLIENT_INFO,
        META + "clientCapabilities": {"elicitation": {"form": {}}},
        "traceparent": "00-aa-bb-01",
    }
    assert exchange.header("mcp-name") == "=?base64?w6ljaG8=?="
    assert exchange.header("mcp-param-a") == "=?base64?w7w=?="
    assert exchange.header("traceparent") == "00-aa-bb-01"
    assert tracing.spans == [("shop", "tools/call", "completed")]
    assert exchange.header("authorization") is None
    assert len({name for name, _ in exchange.headers}) == len(exchange.headers)


async def test_each_request_has_an_id_of_its_own(shop: Shop, client: Asking) -> None:
    await asyncio.gather(*(client.call() for _ in range(5)))

    assert len({message["id"] for message in shop.messages}) == 5


async def test_notices_of_the_request_are_heard_and_others_counted(shop: Shop, client: Asking) -> None:
    async def telling(exchange: Exchange, message: Any) -> None:
        token = message["params"]["_meta"]["progressToken"]
        exchange.event(notice("progress", progressToken=token, progress=1, total=2))
        exchange.event(notice("progress", progressToken="another", progress=1))
        exchange.event(notice("message", level="info", data="working", _meta={"x": 1}))
        exchange.event(notice("message", level=7, data="what"))
        exchange.event(notice("tools/list_changed"))
        exchange.event(result(message["id"], done=True))
        exchange.end_events()

    shop.answers = [telling]
    heard: list[tuple[str, Any]] = []

    answer = await client.call(
        on_notice=lambda method, params: heard.append((method, params)), wants_progress=True, log_level="info"
    )

    assert answer == {"resultType": "complete", "done": True}
    assert heard == [
        ("notifications/progress", {"progress": 1, "total": 2}),
        ("notifications/message", {"level": "info", "data": "working"}),
    ]
    assert client.counted.things == ["progress", "log", "notification"]
    assert shop.messages[0]["params"]["_meta"][META + "logLevel"] == "info"


async def test_notices_that_nobody_asked_for_are_counted(shop: Shop, client: Asking) -> None:
    async def telling(exchange: Exchange, message: Any) -> None:
        exchange.event(notice("progress", progressToken=message["id"], progress=1))
        exchange.event(notice("message", level="info", data="working"))
        exchange.event(result(message["id"]))
        exchange.end_events()

    shop.answers = [telling]
    heard: list[Any] = []

    await client.call(on_notice=lambda *told: heard.append(told))

    assert heard == []
    assert client.counted.things == ["progress", "log"]


async def test_a_large_notice_is_dropped_and_what_follows_is_heard(shop: Shop, client: Asking) -> None:
    async def telling(exchange: Exchange, message: Any) -> None:
        for size in (MAX_NOTICE_BYTES // 2, MAX_NOTICE_BYTES, 1):
            exchange.event(notice("message", level="info", data="x" * size))
        exchange.event(result(message["id"]))
        exchange.end_events()

    shop.answers = [telling]
    heard: list[int] = []

    await client.call(on_notice=lambda _, params: heard.append(len(params["data"])), log_level="info")

    assert heard == [MAX_NOTICE_BYTES // 2, 1]
    assert client.counted.things == ["log"]


async def turns_during(client: Asking) -> int:
    """Return how often other work has its turn between the first notice of a call and its answer."""
    turns, counting = 0, asyncio.Event()

    async def count() -> None:
        nonlocal turns
        await counting.wait()
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count())
    await client.call(on_notice=lambda *_: counting.set(), wants_progress=True, max_bytes=1 << 20)
    other.cancel()
    return turns


@pytest.mark.parametrize(
    ("kind", "many", "least"),
    [
        (b'data:{"jsonrpc":"2.0","method":"n"}\n\n', 6_400, 90),
        (b"data:\n\n", 40_960, 20),
        (b":\n", 163_840, 30),
        (b"\n", 327_680, 30),
    ],
)
async def test_other_work_has_its_turn_however_much_of_a_stream_is_ready(
    shop: Shop, client: Asking, kind: bytes, many: int, least: int
) -> None:
    async def flooding(exchange: Exchange, message: Any) -> None:
        token = message["params"]["_meta"]["progressToken"]
        exchange.event(notice("progress", progressToken=token, progress=1))
        exchange.chunk(kind * many)
        exchange.event(result(message["id"]))
        exchange.end_events()

    shop.answers = [flooding]

    assert await turns_during(client) >= least


@pytest.mark.parametrize("more", [0, 1])
async def test_a_call_gets_a_limited_number_of_notices(
    shop: Shop, client: Asking, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    monkeypatch.setattr(stateless, "MAX_NOTICES", 3)

    async def telling(exchange: Exchange, message: Any) -> None:
        for _ in range(3 + more):
            exchange.event(notice("any"))
        exchange.event(result(message["id"]))
        exchange.end_events()

    shop.answers = [telling]

    if more:
        failure = await failure_of(client)
        assert (failure.reason, failure.sent) == (Reason.TOO_LARGE, True)
    else:
        assert await client.call() == {"resultType": "complete"}


async def test_a_stream_that_stays_open_after_its_answer_does_not_hold_the_caller(shop: Shop, client: Asking) -> None:
    async def staying(exchange: Exchange, message: Any) -> None:
        exchange.event(result(message["id"]))
        await asyncio.Event().wait()

    shop.answers = [staying]

    assert await asyncio.wait_for(client.call(), 5) == {"resultType": "complete"}


async def test_a_connection_is_used_again_if_the_stream_ends_soon_after_its_answer(
    shop: Shop, client: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def streaming(exchange: Exchange, message: Any) -> None:
        exchange.event(result(message["id"]))
        await asyncio.sleep(0.01)
        exchange.end_events()

    monkeypatch.setattr(stateless, "FINISH_SECONDS", 10.0)
    shop.answers = [streaming]
    for _ in range(3):
        await client.call()

    assert len({exchange.connection for exchange in shop.exchanges}) == 1


async def test_cancelling_a_request_closes_its_connection(shop: Shop, client: Asking) -> None:
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def silent(_exchange: Exchange, _message: Any) -> None:
        loop.call_soon_threadsafe(began.set)
        await asyncio.Event().wait()

    shop.answers = [silent]
    calling = asyncio.create_task(client.call())
    await began.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling

    await asyncio.to_thread(shop.server.run, shop.exchanges[0].connection.ended.wait())
    assert shop.exchanges[0].gone
    assert client.counted.ended == [("tools/call", "cancelled")]
    assert client.counted.reasons == []


async def test_cancelling_a_request_tells_a_sessionless_server_whose_connection_does_not_say_it(shop: Shop) -> None:
    began, told = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def silent(_exchange: Exchange, _message: Any) -> None:
        loop.call_soon_threadsafe(began.set)
        await asyncio.Event().wait()

    async def accepted(exchange: Exchange, _message: Any) -> None:
        exchange.head(202, [("content-length", "0")])
        loop.call_soon_threadsafe(told.set)

    shop.answers = [silent, accepted]
    dialect = Sessionless()
    dialect.version = "2025-11-25"
    async with asking(shop.url, dialect=dialect) as client, asyncio.timeout(SECONDS):
        calling = asyncio.create_task(client.call())
        await began.wait()
        calling.cancel()
        await told.wait()
    assert shop.messages[1]["method"] == "notifications/cancelled"
    assert shop.messages[1]["params"] == {"requestId": shop.messages[0]["id"]}


async def unavailable(exchange: Exchange, _message: Any) -> None:
    """Refuse as a server does that is full, and keep the connection."""
    exchange.head(503, [("content-length", "10"), ("retry-after", "1")])
    await asyncio.Event().wait()


async def test_a_refused_call_is_not_sent_again_because_it_may_have_acted_nevertheless(
    shop: Shop, client: Asking
) -> None:
    shop.answers = [unavailable, fine]

    failure = await failure_of(client)

    assert (failure.reason, failure.sent, failure.refused) == (Reason.SERVER_ERROR, False, True)
    assert len(shop.messages) == 1


@pytest.mark.parametrize("method", ["prompts/get", "resources/read", "completion/complete", "tools/list"])
async def test_a_refused_request_that_only_reads_is_sent_again(shop: Shop, client: Asking, method: str) -> None:
    shop.answers = [unavailable, fine]

    params = {"name": "x", "uri": "x"}
    assert await client.client.request(method, params, requester=NOBODY, seconds=5, max_bytes=1 << 20)

    assert [message["method"] for message in shop.messages] == [method, method]


async def test_the_failure_of_a_second_attempt_does_not_hide_that_the_first_one_arrived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Shop([unavailable]) as shop:
        async with asking(shop.server.url) as client:
            attempt = client.client._attempt

            async def second(*args: Any) -> Any:
                if shop.messages:
                    raise UpstreamFailure("up", Reason.UNREACHABLE, sent=False)
                return await attempt(*args)

            monkeypatch.setattr(client.client, "_attempt", second)
            failure = await failure_of(client, repeatable=True)

    assert (failure.reason, failure.sent, failure.refused) == (Reason.UNREACHABLE, False, True)


async def test_a_refused_call_that_may_be_repeated_is_tried_once_more_and_its_connection_is_free_by_then(
    shop: Shop,
) -> None:
    shop.answers = [unavailable, fine]

    async with asking(shop.server.url, connections=1) as client:
        assert await client.call(seconds=5, repeatable=True) == {"resultType": "complete"}

    assert len(shop.messages) == 2
    assert shop.messages[0] == shop.messages[1]
    assert client.counted.ended == [("tools/call", "completed")]


async def test_503_of_a_proxy_does_not_make_a_tool_run_twice(shop: Shop, client: Asking) -> None:
    text = b"upstream connect error or disconnect/reset before headers. reset reason: connection termination"
    shop.answers = [lambda exchange, message: bytes_of(text, 503)(exchange, message["id"]), fine]

    failure = await failure_of(client)

    assert (failure.reason, failure.sent) == (Reason.SERVER_ERROR, True)
    assert len(shop.messages) == 1


async def test_an_encoding_that_was_not_asked_for_is_refused(shop: Shop, client: Asking) -> None:
    async def encoded(exchange: Exchange, message: Any) -> None:
        exchange.json(result(message["id"]), headers=[("content-encoding", "br")])

    shop.answers = [encoded]

    assert (await failure_of(client)).reason is Reason.MALFORMED


async def test_an_upstream_that_is_not_there_was_sent_nothing(shop: Shop, client: Asking) -> None:
    await asyncio.to_thread(shop.server.run, shop.server.stop())

    failure = await failure_of(client)

    assert (failure.reason, failure.sent) == (Reason.UNREACHABLE, False)
    await asyncio.to_thread(shop.server.run, shop.server.listen())


@pytest.mark.parametrize("status", [400, 404, 409, 500])
async def test_a_json_rpc_error_counts_whatever_its_status(shop: Shop, client: Asking, status: int) -> None:
    async def refusing(exchange: Exchange, message: Any) -> None:
        error = {"code": -32601, "message": "Method not found"}
        exchange.json({"jsonrpc": "2.0", "id": message["id"], "error": error}, status)

    shop.answers = [refusing]

    with pytest.raises(UpstreamError, match="Method not found"):
        await client.call()


@pytest.mark.parametrize(("status", "is_error"), [(400, True), (404, True), (500, False), (502, False)])
async def test_an_error_without_an_id_counts_unless_the_server_failed(
    shop: Shop, client: Asking, status: int, is_error: bool
) -> None:
    body = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}'
    shop.answers = [lambda exchange, message: bytes_of(body, status)(exchange, message["id"])]

    with pytest.raises(UpstreamError if is_error else UpstreamFailure):
        await client.call()


@pytest.mark.parametrize("status", [404, 500])
@pytest.mark.parametrize("body", [b'{"jsonrpc":"2.0","id":ID,"result":{}}', b"{}", b"[", b" " * 300_000])
async def test_a_body_that_is_no_json_rpc_error_does_not_count(
    shop: Shop, client: Asking, status: int, body: bytes
) -> None:
    shop.answers = [lambda exchange, message: bytes_of(body, status)(exchange, message["id"])]

    assert (await failure_of(client)).reason in {Reason.NOT_FOUND, Reason.SERVER_ERROR}


@pytest.mark.parametrize(
    ("status", "concerns_all"), [(400, False), (422, False), (429, False), (500, False), (503, True)]
)
async def test_only_a_status_that_serves_nobody_concerns_other_callers(
    shop: Shop, client: Asking, status: int, concerns_all: bool
) -> None:
    shop.answers = [lambda exchange, message: bytes_of(b"blocked by a firewall", status)(exchange, message["id"])] * 2

    assert (await failure_of(client)).concerns_all is concerns_all


@pytest.mark.parametrize("method", ["tools/list", "completion/complete", "server/discover"])
async def test_a_question_where_none_may_be_asked_is_a_failure(shop: Shop, client: Asking, method: str) -> None:
    async def asks(exchange: Exchange, message: Any) -> None:
        exchange.json(result(message["id"], resultType="input_required", requestState="s"))

    shop.answers = [asks]

    with pytest.raises(UpstreamFailure) as raised:
        await client.client.request(method, {}, requester=NOBODY, seconds=5, max_bytes=1000)

    assert raised.value.reason is Reason.UNASKED
    assert client.counted.things == ["question"]


async def test_a_question_of_a_tool_is_a_result(shop: Shop, client: Asking) -> None:
    async def asks(exchange: Exchange, message: Any) -> None:
        exchange.json(result(message["id"], resultType="input_required", requestState="s"))

    shop.answers = [asks]

    assert (await client.call())["requestState"] == "s"
    assert client.counted.ended == [("tools/call", "input_required")]


@pytest.mark.parametrize("more", [0, 1])
async def test_an_answer_may_be_as_large_as_the_limit(shop: Shop, client: Asking, more: int) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"result":{"a":"xxxxxxxx"}}'
    shop.answers = [lambda exchange, _message: bytes_of(body)(exchange, 1)]

    if more:
        failure = await failure_of(client, max_bytes=len(body) - more)
        assert failure.reason is Reason.TOO_LARGE
        assert '"max_result_bytes"' in failure.detail
        assert '"max_result_bytes" of the upstream sets the limit. It may have acted' in sentence_of(failure)
    else:
        assert await client.call(max_bytes=len(body)) == {"a": "xxxxxxxx"}


@pytest.mark.parametrize("given", ["server-error", 7, None, True, {"a": 1}])
async def test_a_refusal_may_have_another_id_and_its_message_is_shown(shop: Shop, client: Asking, given: Any) -> None:
    error = {"code": -32600, "message": "Bad Request: Missing session ID"}

    async def refusing(exchange: Exchange, _message: Any) -> None:
        exchange.json({"jsonrpc": "2.0", "id": given, "error": error}, shown.pop(0))

    shop.answers, shown = [refusing], [400, 404, 422]
    for _ in range(3):
        with pytest.raises(UpstreamError) as refused:
            await client.call()
        assert (refused.value.code, refused.value.message) == (-32600, error["message"])


@pytest.mark.parametrize("status", [200, 500])
async def test_an_error_with_another_id_is_not_ours_if_the_server_fails_or_succeeds(
    shop: Shop, client: Asking, status: int
) -> None:
    async def failing(exchange: Exchange, _message: Any) -> None:
        exchange.json({"jsonrpc": "2.0", "id": "server-error", "error": {"code": 1, "message": "x"}}, status)

    shop.answers = [failing]
    assert (await failure_of(client)).reason in {Reason.WRONG_ID, Reason.SERVER_ERROR}


async def large_json(exchange: Exchange, message: Any) -> None:
    exchange.json(result(message["id"], text="x" * 70_000))


async def large_event(exchange: Exchange, message: Any) -> None:
    exchange.event(result(message["id"], text="x" * 70_000))
    exchange.end_events()


async def many_values(exchange: Exchange, message: Any) -> None:
    exchange.json(result(message["id"], values=list(range(QUICK_COMMAS))))


async def large_error(exchange: Exchange, message: Any) -> None:
    error = {"code": 1, "message": "no", "data": list(range(QUICK_COMMAS + 1))}
    exchange.json({"jsonrpc": "2.0", "id": message["id"], "error": error}, status=400)


@pytest.mark.parametrize("answer", [large_json, large_event, many_values, large_error])
async def test_large_answers_of_all_upstreams_are_handled_one_after_the_other(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    shop.answers = [answer]
    rounds, handled = 0, list[tuple[str, int]]()

    def noted(body: bytes, request_id: Any, **options: Any) -> Any:
        handled.append(("decoded", rounds))
        return read_message(body, request_id, **options)

    async def call(client: Asking) -> None:
        with contextlib.suppress(UpstreamError):
            await client.call()
        handled.append(("used", rounds))

    async def go_round() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(stateless, "read_message", noted)
    going_round, turns = asyncio.create_task(go_round()), Turns()
    async with asking(shop.server.url, turns=turns) as one, asking(shop.server.url, turns=turns) as other:
        await asyncio.gather(*(call(client) for client in (one, other) * 4))
    going_round.cancel()

    assert [what for what, _ in handled] == ["decoded", "used"] * 8
    at = [when for _, when in handled]
    assert all(later - earlier >= PAUSES for earlier, later in pairwise(at))


@pytest.mark.parametrize("answer", [large_json, large_event, many_values, large_error])
async def test_a_large_answer_is_decoded_in_a_thread_and_its_deviations_are_counted_on_the_loop(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    async def deviating(exchange: Exchange, message: Any) -> None:
        await answer(exchange, {**message, "id": str(message["id"])})

    shop.answers = [deviating]
    decoded, counted = set[int](), set[int]()

    def noted(body: bytes, request_id: Any, **options: Any) -> Any:
        decoded.add(threading.get_ident())
        return read_message(body, request_id, **options)

    def heal(_healing: Healing, deviation: Deviation) -> None:
        assert deviation is Deviation.ID_TYPE
        counted.add(threading.get_ident())

    monkeypatch.setattr(stateless, "read_message", noted)
    monkeypatch.setattr(Healing, "__call__", heal)
    async with asking(shop.server.url) as client:
        with contextlib.suppress(UpstreamError):
            await client.call()
    assert len(decoded) == 1
    assert counted == {threading.get_ident()}
    assert counted.isdisjoint(decoded)


class NoTurns(Turns):
    """Turns that nobody gets."""

    async def begin(self, group: Hashable, caller: Hashable) -> None:
        await asyncio.Event().wait()


async def test_a_call_ends_in_its_time_though_its_answer_waits_for_a_turn(shop: Shop) -> None:
    shop.answers = [large_json]
    async with asking(shop.server.url, turns=NoTurns()) as client:
        failure = await failure_of(client, seconds=0.5)
        assert (failure.reason, failure.sent) == (Reason.TIMED_OUT, True)


class Stalling:
    """Sends answers of 100 kB, and their last bytes when the gate opens."""

    def __init__(self, kind: str) -> None:
        self.gate = threading.Event()
        self.kind = kind

    async def __call__(self, exchange: Exchange, message: Any) -> None:
        body = msgspec.json.encode(result(message["id"], text="x" * 100_000))
        if self.kind == "json":
            exchange.head(200, [("content-type", "application/json"), ("content-length", str(len(body)))])
        else:
            exchange.begin_events()
            body = b"data: " + body + b"\n\n"
        send = exchange.raw if self.kind == "json" else exchange.chunk
        send(body[:-50])
        await asyncio.to_thread(self.gate.wait)
        send(body[-50:])
        if self.kind == "json":
            exchange.finished = True
        else:
            exchange.end_events()


@pytest.mark.parametrize("kind", ["json", "events"])
async def test_answers_that_have_arrived_in_part_take_no_more_memory_than_the_limit(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(readings, "MAX_BYTES_OF_UPSTREAM", 350_000)
    stalling = Stalling(kind)
    shop.answers = [stalling]
    answers = readings_of_answers()
    async with asking(shop.server.url, readings=answers) as client:
        calls: list[asyncio.Task[Any]] = []
        for number in range(1, 6):
            calls.append(asyncio.create_task(client.call()))
            await until(lambda: answers.memory >= min(number, 3) * 90_000 and len(shop.exchanges) == number)  # noqa: B023
        await until(lambda: sum(call.done() for call in calls) == 2)
        assert answers.memory <= 350_000
        stalling.gate.set()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        failures = [end for end in ends if isinstance(end, UpstreamFailure)]
        assert [(end.reason, end.sent) for end in failures] == [(Reason.TOO_LARGE, True)] * 2
        assert [len(end["text"]) for end in ends if isinstance(end, dict)] == [100_000] * 3
        assert answers.memory == 0


@pytest.mark.parametrize("character", ["x", "\N{GRINNING FACE}"])
async def test_a_large_answer_counts_until_its_result_is_not_used_any_more(shop: Shop, character: str) -> None:
    async def large(exchange: Exchange, message: Any) -> None:
        exchange.json(result(message["id"], text="x" * 100_000 + character))

    shop.answers = [large, fine]
    answers = readings_of_answers()
    kept: list[Callable[[], None]] = []
    async with asking(shop.server.url, readings=answers) as client:
        text = (await client.call(keep=kept.append))["text"]
        counted = answers.memory
        await client.call(keep=kept.append)
    assert counted >= sys.getsizeof(text)
    assert answers.memory == counted  # and the small answer counts no more
    (release,) = kept
    release()
    assert answers.memory == 0


async def test_other_calls_go_on_while_one_is_silent(hostile: Hostile) -> None:
    async with asking(hostile.url) as client:
        silent = [asyncio.create_task(client.call(fault, seconds=0.5)) for fault in SILENT]
        for _ in range(20):
            assert (await client.call(seconds=1))["content"][0]["text"] == "fine"
        assert all(isinstance(end, UpstreamFailure) for end in await asyncio.gather(*silent, return_exceptions=True))
