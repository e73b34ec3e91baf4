"""Calls in sessions: whose session it is, how it ends, what a server sends in it, and what is sent again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Unpack

import msgspec
import pytest
from prometheus_client import generate_latest

from gateway.http_client.client import HttpClient
from gateway.protocol.upstream.introductions import SessionIntroduction
from gateway.sealing.principal import Principal
from gateway.upstreams.client import connections, session_http
from gateway.upstreams.client.session import SessionClient
from gateway.upstreams.client.session_http import MAX_REPLIES
from gateway.upstreams.failures import Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.ports import NOBODY, RequestOptions, UpstreamCaller
from loadtest.cluster import wait_until
from tests.upstreams.client.serving import NAME, SECONDS, Counting, sessions_with
from tests.upstreams.servers.plain_http import Exchange
from tests.upstreams.servers.session import LOST, InSessions
from tests.waiting import until

ADA = UpstreamCaller(principal=Principal("https://issuer.example", "ada", "desk"))
BOB = UpstreamCaller(principal=Principal("https://issuer.example", "bob", "desk"))


class Calling:
    """A client of a server, and what it counts."""

    def __init__(self, client: SessionClient, counted: Counting) -> None:
        self.client = client
        self.counted = counted

    async def ask(self, method: str, params: dict[str, Any], **options: Any) -> dict[str, Any]:
        return await self.client.request(
            method, params, **{"requester": ADA, "seconds": SECONDS, "max_bytes": 1 << 20, **options}
        )

    async def call(self, tool: str, arguments: dict[str, Any] | None = None, **options: Any) -> str:
        result = await self.ask("tools/call", {"name": tool, "arguments": arguments or {}}, **options)
        text: str = result["content"][0]["text"]
        return text


@contextlib.asynccontextmanager
async def calling(server: InSessions, **options: Any) -> AsyncIterator[Calling]:
    http, counted = HttpClient(server.url), Counting()
    client = sessions_with(http, counted, **options)
    try:
        yield Calling(client, counted)
    finally:
        await client.aclose()
        await http.aclose()


async def test_a_caller_keeps_a_session_that_no_other_caller_has() -> None:
    with InSessions() as server:
        async with calling(server) as upstream:
            counts = [await upstream.call("count", requester=who) for who in (ADA, BOB, ADA, NOBODY, ADA, BOB)]
        assert counts == ["1: 1", "2: 1", "1: 2", "3: 1", "1: 3", "2: 2"]
        assert sorted(server.ended) == ["s-1", "s-2", "s-3"]


async def test_callers_with_other_headers_have_other_sessions() -> None:
    with InSessions() as server:
        async with calling(server) as upstream:
            for value in ("a", "b", "a"):
                who = UpstreamCaller(principal=ADA.principal, headers={"x-token": value})
                await upstream.call("count", requester=who)
        assert [name for name, _ in server.ran] == ["s-1", "s-2", "s-1"]


async def test_all_callers_share_a_session_where_the_scope_says_so() -> None:
    with InSessions() as server:
        async with calling(server, scope="shared") as upstream:
            await asyncio.gather(*(upstream.call("count", requester=who) for who in (ADA, BOB, NOBODY)))
        assert {name for name, _ in server.ran} == {"s-1"}


async def test_each_call_has_a_session_of_its_own_where_the_scope_says_so() -> None:
    with InSessions() as server:
        async with calling(server, scope="call") as upstream:
            for _ in range(3):
                assert (await upstream.call("count")).endswith(": 1")
            for _ in range(3):
                await upstream.ask("tools/list", {}, requester=NOBODY)
            assert len(server.open) == 1, "those of the calls are ended, that of the lists stays"
        assert len({name for name, _ in server.ran}) == 3


async def test_many_calls_at_once_open_one_session() -> None:
    with InSessions() as server:
        async with calling(server) as upstream:
            await asyncio.gather(*(upstream.call("echo", {"text": "hi"}) for _ in range(20)))
        assert server.methods.count("initialize") == 1


async def test_a_call_that_leaves_while_the_session_opens_does_not_end_that_for_others() -> None:
    with InSessions() as server:
        async with calling(server) as upstream:
            first = asyncio.create_task(upstream.call("count"))
            second = asyncio.create_task(upstream.call("count"))
            await asyncio.sleep(0)
            first.cancel()
            assert await second == "1: 1"


class Slow(InSessions):
    """Begins a session at once, and answers when the gate opens."""

    async def _post(self, exchange: Exchange, name: str) -> None:
        await super()._post(exchange, name)
        message = msgspec.json.decode(exchange.body)
        if message["method"] == "initialize":
            session = self.session
            self.begun.set()
            await self.gate.wait()
            self.session = session
            super()._initialize(exchange, message)

    def _initialize(self, exchange: Exchange, message: Any) -> None:
        """Do nothing yet."""

    async def open_gate(self) -> None:
        self.gate.set()


async def test_a_session_is_ended_though_its_call_left_before_it_had_an_id() -> None:
    with Slow() as server:
        async with calling(server, scope="call", max_connections=1) as upstream:
            call = asyncio.create_task(upstream.call("count"))
            await asyncio.to_thread(server.wait_begun)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            with pytest.raises(UpstreamFailure, match="all its connections are in use"):
                await upstream.call("count", seconds=0.1)
            server.server.run(server.open_gate())
            await asyncio.to_thread(server.wait_for, "DELETE")
            assert await upstream.call("count") == "2: 1"
        assert server.ended == ["s-1", "s-2"]
        assert server.open == {}


async def test_a_session_whose_introduction_is_refused_is_ended() -> None:
    with InSessions(offered={"tools": {}, "x": "x" * (4 << 20)}) as server:
        async with calling(server) as upstream:
            with pytest.raises(UpstreamFailure):
                await upstream.call("count")
            await asyncio.to_thread(server.wait_for, "DELETE")
        assert server.open == {}


@pytest.mark.parametrize("lost", [each for each in LOST if each != "ours"])
async def test_a_session_that_the_server_forgot_is_replaced_before_a_call_is_sent(
    lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_http, "SEEN_SECONDS", 0.0)
    with InSessions(lost=lost, has_stream=False) as server:
        async with calling(server) as upstream:
            await upstream.call("count")
            server.forget()
            assert await upstream.call("count") == "2: 1"
            server.forget()
            assert (await upstream.ask("tools/list", {}))["tools"], "what only reads is sent again"
        assert server.ran == [("s-1", "count"), ("s-2", "count")]
        assert server.methods.count("tools/call") == 2


@pytest.mark.parametrize("has_stream", [True, False])
@pytest.mark.parametrize("lost", [each for each in LOST if each != "ours"])
async def test_a_call_that_may_have_ended_its_session_is_not_sent_again(lost: str, has_stream: bool) -> None:
    class Restarting(InSessions):
        async def _count(self, exchange: Exchange, message: Any, _session: Any, _arguments: Any) -> None:
            self.open.clear()
            await self._post(exchange, "")

    with Restarting(lost=lost, has_stream=has_stream) as server:
        async with calling(server) as upstream:
            with pytest.raises(UpstreamFailure) as failed:
                await upstream.call("count")
            assert (failed.value.reason, failed.value.sent) == (Reason.LOST_SESSION, True)
            assert await upstream.call("echo", {"text": "hi"}) == "hi", "the next call has a session"
        assert [tool for _, tool in server.ran] == ["count", "echo"]


async def test_a_call_whose_loss_is_named_like_its_answer_is_not_sent_again_but_the_next_has_a_session() -> None:
    with InSessions(lost="ours") as server:
        async with calling(server) as upstream:
            await upstream.call("count")
            server.forget()
            with pytest.raises(UpstreamError, match="Session not found"):
                await upstream.call("count")
            assert await upstream.call("count") == "2: 1"
            server.forget()
            assert (await upstream.ask("tools/list", {}))["tools"], "what only reads is sent again"
        assert server.ran == [("s-1", "count"), ("s-2", "count")]


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (404, -32000, "Order 7 not found"),
        (404, -32001, "Session not found"),
        (400, -32000, "Card was charged, but the booking session is closed"),
        (400, -32600, "Training session is full"),
    ],
)
async def test_an_answer_that_looks_like_a_lost_session_is_passed_on_and_nothing_is_sent_again(
    status: int, code: int, message: str
) -> None:
    with InSessions() as server:
        async with calling(server) as upstream:
            with pytest.raises(UpstreamError, match=message):
                await upstream.call("refuses", {"status": status, "code": code, "message": message})
            assert await upstream.call("count") == "1: 2", "the session stays"
        assert server.ran == [("s-1", "refuses"), ("s-1", "count")]


@pytest.mark.parametrize(
    "answer",
    [
        {"message": "x" * 300_000},
        {"message": "no such ticket", "type": "application/problem+json"},
        {"message": "no such ticket", "type": "text/event-stream"},
    ],
)
async def test_an_answer_with_status_404_that_cannot_be_read_ends_no_session_and_nothing_is_sent_again(
    answer: dict[str, Any],
) -> None:
    with InSessions() as server:
        async with calling(server) as upstream:
            with pytest.raises(UpstreamFailure) as failed:
                await upstream.call("refuses", {"status": 404, "code": -32002, **answer})
            assert (failed.value.reason, failed.value.sent) == (Reason.MALFORMED, True)
            assert await upstream.call("count") == "1: 2", "the session stays"
        assert server.ran == [("s-1", "refuses"), ("s-1", "count")]


async def test_a_session_that_is_lost_again_and_again_ends_the_call_without_an_effect() -> None:
    class Forgetful(InSessions):
        def _initialize(self, exchange: Any, message: Any) -> None:
            super()._initialize(exchange, message)
            self.forget()

    with Forgetful() as server:
        async with calling(server) as upstream:
            with pytest.raises(UpstreamFailure) as failed:
                await upstream.call("count")
        assert failed.value.reason is Reason.LOST_SESSION
        assert not failed.value.sent
        assert server.ran == []


async def test_an_error_of_a_tool_that_speaks_of_a_session_is_passed_on_and_nothing_is_sent_again() -> None:
    with InSessions() as server:
        async with calling(server) as upstream:
            with pytest.raises(UpstreamError):
                await upstream.call("fails")
            assert await upstream.call("count") == "1: 2"
        assert server.methods.count("initialize") == 1


async def test_a_call_whose_stream_ends_without_an_answer_may_have_acted_and_is_not_sent_again() -> None:
    with InSessions() as server:
        async with calling(server) as upstream:
            with pytest.raises(UpstreamFailure) as failed:
                await upstream.call("cut")
        assert failed.value.reason is Reason.CUT
        assert failed.value.sent
        assert server.ran == [("s-1", "cut")]


@pytest.mark.parametrize("cut", [True, False])
async def test_a_stream_with_event_ids_is_resumed(cut: bool) -> None:
    with InSessions() as server:
        async with calling(server) as upstream:
            assert await upstream.call("resumed", {"cut": cut}) == "resumed"
        assert len(server.resumed_from) == 1
        assert server.ran == [("s-1", "resumed")]


@pytest.mark.parametrize("retry", [60_000, 9_999_999])
async def test_a_stream_that_is_to_be_resumed_after_the_end_of_the_call_ends_it(retry: int) -> None:
    with InSessions() as server:
        async with calling(server) as upstream:
            async with asyncio.timeout(10):
                with pytest.raises(UpstreamFailure) as failed:
                    await upstream.call("resumed", {"retry": retry}, seconds=30)
            assert (failed.value.reason, failed.value.sent) == (Reason.CUT, True)
        assert server.resumed_from == []


async def test_a_server_that_takes_no_answers_to_its_requests_does_not_prolong_a_call() -> None:
    with InSessions(takes_at_once=False, taking_seconds=30) as server:
        async with calling(server) as upstream:
            async with asyncio.timeout(5):  # not 20, as when each answer takes its own two seconds
                with pytest.raises(UpstreamFailure) as failed:
                    await upstream.call("pings", {"on": "call", "count": 40}, seconds=1)
            assert (failed.value.reason, failed.value.sent) == (Reason.TIMED_OUT, True)


@pytest.mark.parametrize("on", ["call", "session"])
async def test_many_requests_of_a_server_are_answered_a_few_at_a_time(on: str) -> None:
    with InSessions(takes_at_once=False) as server:
        async with calling(server) as upstream:
            assert await upstream.call("pings", {"on": on, "count": 60}) == "all answered"
        assert len(server.answers) == 60
        assert 1 <= server.most_taking <= MAX_REPLIES


@pytest.mark.parametrize("tool", ["ask", "ask_aside"])
@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "tasks/get", "nonsense"])
async def test_a_question_is_refused_at_once_and_the_call_ends_in_the_words_of_the_server(
    tool: str, method: str
) -> None:
    with InSessions() as server:
        async with calling(server) as upstream:
            answer = msgspec.json.decode(await upstream.call(tool, {"method": method}))
            assert upstream.counted.things == ["question"]
        assert answer["id"] == "q"
        assert answer["error"]["code"] == -32601
        assert "'shop'" in answer["error"]["message"]


@pytest.mark.parametrize("tool", ["ask", "ask_aside"])
@pytest.mark.parametrize(("method", "result"), [("ping", {}), ("roots/list", {"roots": []})])
async def test_a_ping_is_answered_and_no_directory_of_a_caller_is_told(
    tool: str, method: str, result: dict[str, Any]
) -> None:
    caller = UpstreamCaller(principal=ADA.principal, capabilities={"roots": {"listChanged": True}})
    with InSessions() as server:
        async with calling(server) as upstream:
            answer = msgspec.json.decode(await upstream.call(tool, {"method": method}, requester=caller))
        assert answer["result"] == result
        initialize = next(each for each in server.messages if each.get("method") == "initialize")
        assert initialize["params"]["capabilities"] == {}


async def test_progress_and_logs_on_the_stream_of_the_session_reach_the_call_they_belong_to() -> None:
    with InSessions() as server:
        async with calling(server) as upstream:
            told = list[Any]()

            def hear(method: str, params: dict[str, Any]) -> None:
                told.append((method.rpartition("/")[2], params))
                if len(told) == 2:
                    server.server._loop.call_soon_threadsafe(server.gate.set)

            await upstream.call("report_aside", on_notice=hear, wants_progress=True, log_level="info")
        assert told == [("progress", {"progress": 1}), ("message", {"level": "warning", "data": "aside"})]


async def test_a_log_message_in_a_session_of_all_callers_is_dropped() -> None:
    with InSessions() as server:
        async with calling(server, scope="shared") as upstream:
            told: list[str] = []

            def hear(method: str, _params: dict[str, Any]) -> None:
                told.append(method)

            options: dict[str, Any] = {"on_notice": hear, "log_level": "info"}
            report = asyncio.create_task(upstream.call("report_aside", **options))
            things = upstream.counted.things
            await asyncio.to_thread(wait_until, lambda: "log" in things, "a dropped log message")
            server.server._loop.call_soon_threadsafe(server.gate.set)
            assert await report == "done"
        assert told == []


async def test_a_log_message_that_could_be_about_two_calls_is_dropped() -> None:
    with InSessions() as server:
        async with calling(server) as upstream:
            told: list[Any] = []
            options: dict[str, Any] = {"on_notice": lambda *each: told.append(each), "log_level": "info"}
            slow = asyncio.create_task(upstream.call("slow", **options))
            await asyncio.to_thread(server.wait_begun)
            report = asyncio.create_task(upstream.call("report_aside", **options))
            things = upstream.counted.things
            await asyncio.to_thread(wait_until, lambda: {"log", "progress"} <= {*things}, "two notices dropped")
            server.server._loop.call_soon_threadsafe(server.gate.set)
            assert [*await asyncio.gather(slow, report)] == ["finally", "done"]
        assert told == []


async def test_the_level_of_logs_is_set_once_for_a_session_and_only_sinks() -> None:
    with InSessions() as server:
        async with calling(server) as upstream:
            for level in ("warning", "error", "warning", "debug", "info"):
                await upstream.call("echo", {"text": "hi"}, log_level=level)
        levels = [each["params"]["level"] for each in server.messages if each.get("method") == "logging/setLevel"]
        assert levels == ["warning", "debug"]


async def test_a_call_that_is_cancelled_is_cancelled_at_the_server() -> None:
    with InSessions() as server:
        async with calling(server) as upstream:
            task = asyncio.create_task(upstream.call("slow"))
            await asyncio.to_thread(server.wait_begun)
            task.cancel()
            await asyncio.to_thread(server.wait_for, "notifications/cancelled")
            (cancelled,) = (each for each in server.messages if each.get("method") == "notifications/cancelled")
            (called,) = (each for each in server.messages if each.get("method") == "tools/call")
            assert cancelled["params"]["requestId"] == called["id"]
            assert await upstream.call("count") == "1: 2", "the session goes on"


async def test_the_first_of_two_answers_counts_and_the_session_stays_usable() -> None:
    with InSessions() as server:
        async with calling(server) as upstream:
            assert await upstream.call("twice") == "first"
            assert await upstream.call("count") == "1: 2"


async def test_a_question_about_a_call_that_has_ended_is_refused() -> None:
    with InSessions() as server:
        async with calling(server) as upstream:
            assert await upstream.call("late") == "ended"
            await asyncio.to_thread(server.wait_for, "answer")
        assert server.answers[-1]["error"]["code"] == -32601


async def test_changes_are_heard_on_the_stream_and_resources_followed_once() -> None:
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note://today"]}
    with InSessions() as server:
        async with calling(server) as upstream, upstream.client.listen(wanted, requester=NOBODY) as changes:
            async with upstream.client.listen(wanted, requester=NOBODY):
                server.send("tools/list_changed")
                assert await anext(changes) == ("notifications/tools/list_changed", {})
            server.send("resources/updated", uri="note://today")
            assert await anext(changes) == ("notifications/resources/updated", {"uri": "note://today"})
            assert server.open["s-1"].uris == {"note://today"}, "another stream of the session still follows it"
            server.forget()
            with pytest.raises(UpstreamFailure):
                await upstream.ask("tools/list", {}, requester=NOBODY, seconds=0)
        assert server.methods.count("resources/subscribe") == 1


async def test_the_last_stream_that_follows_a_resource_ends_that_and_the_next_one_begins_it_again() -> None:
    wanted = {"resourceSubscriptions": ["note://today"]}
    with InSessions() as server:
        async with calling(server) as upstream:
            for times in (1, 2):
                async with upstream.client.listen(wanted, requester=NOBODY):
                    async with upstream.client.listen(wanted, requester=NOBODY):
                        pass
                    assert server.open["s-1"].uris == {"note://today"}
                assert server.open["s-1"].uris == set()
                for method in ("resources/subscribe", "resources/unsubscribe"):
                    assert server.methods.count(method) == times


async def test_a_stream_of_changes_ends_with_its_session() -> None:
    with InSessions() as server:
        async with calling(server) as upstream, upstream.client.listen({}, requester=NOBODY) as changes:
            server.forget()
            await upstream.ask("tools/list", {}, requester=NOBODY)
            assert await anext(changes, None) is None


async def test_a_server_without_a_stream_is_called_all_the_same_and_announces_nothing() -> None:
    with InSessions(has_stream=False) as server:
        async with calling(server) as upstream:
            assert await upstream.call("echo", {"text": "hi"}) == "hi"
            with pytest.raises(UpstreamFailure, match="no stream"):
                async with upstream.client.listen({}, requester=ADA):
                    pass
        assert server.methods.count("GET") == 1


async def test_a_session_that_nobody_uses_is_ended() -> None:
    with InSessions() as server:
        async with calling(server, idle_seconds=0.05) as upstream:
            await upstream.call("count")
            await asyncio.to_thread(server.wait_for, "DELETE")
            assert await upstream.call("count") == "2: 1"


async def test_the_session_unused_for_longest_gives_way_and_one_in_use_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ROOM_SECONDS", 0.05)
    with InSessions() as server:
        async with calling(server, max_connections=2) as upstream:
            slow = asyncio.create_task(upstream.call("slow", requester=ADA))
            await asyncio.to_thread(server.wait_begun)
            await upstream.call("count", requester=BOB)
            assert await upstream.call("count", requester=NOBODY) == "3: 1"
            assert server.ended == ["s-2"]
            other = asyncio.create_task(upstream.call("slow", requester=BOB))
            await asyncio.to_thread(wait_until, lambda: len(server.ran) == 4, "the second slow call")
            with pytest.raises(UpstreamFailure) as busy:
                await upstream.call("count", requester=NOBODY)
            assert busy.value.reason is Reason.BUSY
            assert not busy.value.sent
            server.server._loop.call_soon_threadsafe(server.gate.set)
            assert [*await asyncio.gather(slow, other)] == ["finally", "finally"]


def with_header(requester: UpstreamCaller, value: int) -> UpstreamCaller:
    return UpstreamCaller(principal=requester.principal, headers={"x-tenant": str(value)})


async def test_a_caller_with_many_sessions_ends_only_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ROOM_SECONDS", 1.0)
    with InSessions() as server:
        async with calling(server, max_connections=4) as upstream:
            assert await upstream.call("count", requester=BOB) == "1: 1"
            for number in range(10):
                await upstream.call("count", requester=with_header(ADA, number))
            assert await upstream.call("count", requester=BOB) == "1: 2"
            assert "s-1" not in server.ended


async def test_a_caller_leaves_a_connection_to_others_if_each_call_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ROOM_SECONDS", 0.5)
    with InSessions() as server:
        async with calling(server, scope="call", max_connections=4) as upstream:
            slow = [asyncio.create_task(upstream.call("slow", requester=ADA)) for _ in range(8)]
            await until(lambda: server.ran.count(("s-3", "slow")) == 1)
            for _ in range(3):
                assert (await upstream.call("count", requester=BOB)).endswith(": 1")
            assert [tool for _, tool in server.ran].count("slow") == 3
            server.server._loop.call_soon_threadsafe(server.gate.set)
            await asyncio.gather(*slow, return_exceptions=True)


async def test_a_connection_counts_until_it_is_closed() -> None:
    class Lingering:
        closing = asyncio.Event()

        async def open(self, requester: UpstreamCaller, *, seconds: float) -> SessionIntroduction:
            return SessionIntroduction({"for": requester.principal is not None, "seconds": seconds})

        async def request(
            self, method: str, params: Mapping[str, Any], **options: Unpack[RequestOptions]
        ) -> dict[str, Any]:
            raise AssertionError((method, params, options))

        async def aclose(self) -> None:
            await self.closing.wait()

    counted = Counting()
    pool = connections.ConnectionPool(NAME, lambda _: Lingering(), counted, max_connections=1, idle_seconds=300)
    async with pool.use(None, ADA, seconds=1):
        pass
    with pytest.raises(UpstreamFailure) as busy:
        async with pool.use(None, BOB, seconds=0.05):
            pass
    assert (busy.value.reason, busy.value.sent) == (Reason.BUSY, False)
    waiting = asyncio.create_task(pool.use(None, BOB, seconds=10).__aenter__())
    await asyncio.sleep(0)
    Lingering.closing.set()
    await waiting


@pytest.mark.parametrize("version", ["2024-10-07", "2026-07-28", ""])
async def test_a_session_in_a_version_that_the_gateway_does_not_speak_is_refused(version: str) -> None:
    with InSessions(version=version) as server:
        async with calling(server) as upstream:
            with pytest.raises(UpstreamFailure) as failed:
                await upstream.call("count")
        assert failed.value.reason is Reason.MALFORMED
        assert not failed.value.sent
        assert server.ran == []


async def test_the_first_of_two_answers_to_initialize_counts() -> None:
    class Twice(InSessions):
        def _initialize(self, exchange: Any, message: Any) -> None:
            result = {"protocolVersion": self.version, "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
            headers = [("content-type", "text/event-stream"), ("mcp-session-id", self.session or "")]
            exchange.head(200, [*headers, ("transfer-encoding", "chunked")])
            for answer in (result, {**result, "protocolVersion": "1999-01-01"}):
                exchange.event({"jsonrpc": "2.0", "id": message["id"], "result": answer})
            exchange.end_events()

    with Twice() as server:
        async with calling(server) as upstream:
            assert await upstream.call("count") == "1: 1"


async def test_a_server_that_never_answers_initialize_costs_a_call_its_own_time() -> None:
    class Silent(InSessions):
        def _initialize(self, exchange: Any, message: Any) -> None:
            exchange.begin_events()

    with Silent() as server:
        async with calling(server) as upstream:
            with pytest.raises(UpstreamFailure) as failed:
                await upstream.call("count", seconds=0.2)
        assert failed.value.reason in (Reason.TIMED_OUT, Reason.CUT)
        assert not failed.value.sent
        assert server.ran == []


def by_state(counted: Counting) -> tuple[float, ...]:
    return tuple(counted.value("gateway_upstream_sessions", state=state) for state in ("opening", "in_use", "idle"))


async def test_sessions_are_counted_by_state_and_those_that_opened_with_their_time() -> None:
    with InSessions() as server:
        async with calling(server, max_connections=7) as upstream:
            counted = upstream.counted
            assert "gateway_upstream_sessions{" not in generate_latest(counted.registry).decode()
            slow = asyncio.create_task(upstream.call("slow", requester=ADA))
            await asyncio.sleep(0)
            assert by_state(counted) == (1, 0, 0)
            await asyncio.to_thread(server.wait_begun)
            assert by_state(counted) == (0, 1, 0)
            await upstream.call("count", requester=BOB)
            assert by_state(counted) == (0, 1, 1)
            server.server._loop.call_soon_threadsafe(server.gate.set)
            await slow
            assert by_state(counted) == (0, 0, 2)
            assert counted.value("gateway_upstream_sessions_limit") == 7
            assert counted.value("gateway_upstream_session_open_seconds_count") == 2
        assert by_state(counted) == (0, 0, 0)
        assert counted.value("gateway_upstream_sessions_lost_total") == 0, "the gateway has ended them"


async def test_a_session_whose_first_user_leaves_while_it_opens_is_idle_once_it_is_open() -> None:
    with InSessions() as server:
        async with calling(server) as upstream:
            first = asyncio.create_task(upstream.call("count"))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait({first})
            assert by_state(upstream.counted) == (1, 0, 0)
            await until(lambda: by_state(upstream.counted) == (0, 0, 1))


@pytest.mark.parametrize("is_idle", [True, False])
async def test_a_session_that_the_server_forgot_is_counted_once(is_idle: bool) -> None:
    with InSessions() as server:
        async with calling(server) as upstream:
            await upstream.call("count")
            server.forget()
            if is_idle:  # its stream has ended, and is not given again
                await until(lambda: by_state(upstream.counted) == (0, 0, 0))
            await upstream.ask("tools/list", {})
            assert upstream.counted.value("gateway_upstream_sessions_lost_total") == 1
            assert by_state(upstream.counted) == (0, 0, 1)


async def test_a_session_that_cannot_be_opened_is_counted_by_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ROOM_SECONDS", 0.05)
    with InSessions() as server:
        async with calling(server, max_connections=1) as upstream:
            slow = asyncio.create_task(upstream.call("slow", requester=ADA))
            await asyncio.to_thread(server.wait_begun)
            with pytest.raises(UpstreamFailure):
                await upstream.call("count", requester=BOB)
            assert upstream.counted.value("gateway_upstream_session_failures_total", reason="busy") == 1
            assert Reason.BUSY in upstream.counted.reasons
            server.server._loop.call_soon_threadsafe(server.gate.set)
            await slow
        counted = upstream.counted
    async with calling(server) as upstream:
        with pytest.raises(UpstreamFailure):
            await upstream.call("count")
        assert upstream.counted.value("gateway_upstream_session_failures_total", reason="unreachable") == 1
        assert by_state(upstream.counted) == (0, 0, 0)
    assert counted.value("gateway_upstream_session_open_seconds_count") == 1


def test_the_sessions_of_two_pools_are_added_up_and_those_of_a_removed_upstream_are_forgotten() -> None:
    counted = Counting()
    replaced = counted.sessions(NAME, 5)
    replaced.move("", "opening")
    replacing = counted.sessions(NAME, 9)
    replacing.move("", "in_use")
    assert by_state(counted) == (1, 1, 0)
    assert counted.value("gateway_upstream_sessions_limit") == 9
    replaced.move("opening", "")
    assert by_state(counted) == (0, 1, 0)
    counted.forget(NAME)
    replacing.move("in_use", "")
    assert "gateway_upstream_sessions{" not in generate_latest(counted.registry).decode()
