"""How the client of an upstream learns its era, and what it sends in each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, NoReturn

import msgspec
import pytest

from gateway.http_client.client import HttpClient
from gateway.upstreams.client.dialects import Sessionless, Stateless
from gateway.upstreams.client.eras import LEARNT_SECONDS, SUSPECTED_SECONDS, EraClient
from gateway.upstreams.client.stateless import StatelessClient
from gateway.upstreams.config.definition import ByGlob, Era
from gateway.upstreams.credentials import PlainHeaders
from gateway.upstreams.failures import Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.ports import NOBODY
from tests.upstreams.client.serving import CLIENT_INFO, NAME, SECONDS, Counting, Shop, result, sessions_with
from tests.upstreams.client.test_sessions import Slow
from tests.upstreams.servers.earlier import OFFERED, REFUSALS, VERSIONS, Earlier, text
from tests.upstreams.servers.plain_http import Exchange, Served
from tests.upstreams.servers.recording import Recording
from tests.upstreams.servers.session import InSessions
from tests.upstreams.servers.tasks import STUDY, TASKS

OPTIONS: dict[str, Any] = {"requester": NOBODY, "seconds": SECONDS, "max_bytes": 1 << 20}
AUTO: ByGlob[Era] = ByGlob("auto")


class Speaking:
    """A client of an upstream, with a clock that tests move."""

    def __init__(self, http: HttpClient, eras: ByGlob[Era]) -> None:
        self.counted = Counting()
        self.now = 0.0
        dialect = Sessionless()
        stateless, sessionless = (
            StatelessClient(NAME, http, PlainHeaders(), self.counted, client_info=CLIENT_INFO, dialect=each)
            for each in (Stateless(), dialect)
        )
        self.sessions = sessions_with(http, self.counted)
        self.client = EraClient(
            NAME, eras, stateless, sessionless, self.sessions, dialect=dialect, clock=lambda: self.now
        )

    async def discover(self) -> dict[str, Any]:
        return await self.client.request("server/discover", {}, **OPTIONS)

    async def call(self, tool: str = "echo", **options: Any) -> dict[str, Any]:
        arguments = options.pop("arguments", {"text": "hi"})
        return await self.client.request("tools/call", {"name": tool, "arguments": arguments}, **{**OPTIONS, **options})


@contextlib.asynccontextmanager
async def speaking(server: Served, eras: ByGlob[Era] = AUTO) -> AsyncIterator[Speaking]:
    http = HttpClient(server.url)
    upstream = Speaking(http, eras)
    try:
        yield upstream
    finally:
        await upstream.sessions.aclose()
        await http.aclose()


@pytest.fixture
def earlier() -> Iterator[Earlier]:
    with Earlier() as server:
        yield server


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("sends_events", [True, False])
async def test_a_server_that_refuses_discovery_and_gives_no_session_is_sessionless(
    refusal: str, sends_events: bool
) -> None:
    with Earlier(refusal=refusal, sends_events=sends_events) as server:
        async with speaking(server) as upstream:
            found = await upstream.discover()
            assert upstream.client.era == "sessionless"
            assert found["capabilities"] == {name: {} for name in OFFERED}, "it cannot announce changes"
            assert found["instructions"] == "Be kind."
            assert (await upstream.call())["content"][0]["text"] == "hi"
            assert server.methods == ["server/discover", "initialize", "tools/call"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_requests_are_written_in_the_version_that_was_learnt_and_declare_nothing(version: str) -> None:
    with Earlier(version=version) as server:
        async with speaking(server) as upstream:
            await upstream.call()
            initialize, call = server.messages[1:]
            assert initialize["params"] == {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": CLIENT_INFO,
            }
            assert call["params"] == {"name": "echo", "arguments": {"text": "hi"}}
            assert server.exchanges[1].header("mcp-protocol-version") is None
            assert server.exchanges[2].header("mcp-protocol-version") == version


async def test_a_server_that_gives_a_session_is_called_in_sessions_and_the_first_one_is_ended() -> None:
    with InSessions() as server:
        async with speaking(server) as upstream:
            for _ in range(2):
                found = await upstream.discover()
                assert found == {"capabilities": OFFERED, "instructions": "Be kind."}, "it can announce changes"
                assert upstream.client.era == "session"
            assert (await upstream.call())["content"][0]["text"] == "hi"
            server.wait_for("GET")
            assert server.methods == [
                *("server/discover", "initialize", "DELETE"),
                *("initialize", "notifications/initialized", "GET", "tools/call"),
            ]
            assert server.ended == ["s-1"]


async def test_a_session_that_was_begun_to_learn_the_era_is_ended_though_the_call_has_left() -> None:
    with Slow() as server:
        async with speaking(server) as upstream:
            call = asyncio.create_task(upstream.call())
            await asyncio.to_thread(server.wait_begun)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            server.server.run(server.open_gate())
            await asyncio.to_thread(server.wait_for, "DELETE")
            assert (await upstream.call())["content"][0]["text"] == "hi"
        assert server.open == {}


async def test_a_server_without_sessions_may_run_a_tool_only_as_a_task() -> None:
    class Studying(Earlier):
        async def _result(self, exchange: Exchange, message: Any, params: Mapping[str, Any]) -> dict[str, Any] | None:
            if message["method"] == "tools/list":
                return {"tools": [STUDY]}
            if message["method"] == "tools/call" and "task" in params:
                return {"task": {"taskId": "t-1", "status": "working"}}
            if message["method"] == "tasks/result" and params == {"taskId": "t-1"}:
                return text("studied")
            return await super()._result(exchange, message, params)

    with Studying(offered={**OFFERED, "tasks": TASKS}) as server:
        async with speaking(server) as upstream:
            assert (await upstream.call("study"))["content"][0]["text"] == "studied"
            assert server.methods == ["server/discover", "initialize", "tools/list", "tools/call", "tasks/result"]


async def test_a_server_of_both_eras_is_called_stateless() -> None:
    with Recording() as server:
        async with speaking(server) as upstream:
            await upstream.call()
            assert upstream.client.era == "stateless"
            assert [call.method for call in server.calls] == ["server/discover", "tools/call"]


async def refuse(exchange: Exchange, message: Any, status: int, code: int | None) -> None:
    if code is None:
        exchange.reply(status, b"", [("location", "/mcp/")])
    else:
        exchange.json({"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": "no"}}, status)


@pytest.mark.parametrize(
    ("status", "code"), [(401, None), (403, None), (403, -32601), (500, -32603), (502, None), (503, None), (307, None)]
)
async def test_a_refusal_that_says_nothing_about_the_era_is_reported_and_no_other_era_is_tried(
    status: int, code: int | None
) -> None:
    with Shop(answers=[lambda exchange, message: refuse(exchange, message, status, code)]) as server:
        async with speaking(server) as upstream:
            with pytest.raises((UpstreamFailure, UpstreamError)):
                await upstream.discover()
            assert upstream.client.era is None
            with pytest.raises(UpstreamFailure) as failed:
                await upstream.call()
            assert not failed.value.sent, "the call itself was not sent"
            assert {message["method"] for message in server.messages} == {"server/discover"}


@pytest.mark.parametrize("version", ["2024-10-07", "2026-07-28", "1.0", ""])
async def test_a_version_that_the_gateway_does_not_speak_is_refused(version: str) -> None:
    with Earlier(version=version) as server:
        async with speaking(server) as upstream:
            with pytest.raises(UpstreamFailure) as failed:
                await upstream.discover()
            assert failed.value.reason is Reason.MALFORMED
            assert "2025-03-26" in failed.value.detail


@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list", "ping"])
async def test_a_question_ends_the_call_at_once(earlier: Earlier, method: str) -> None:
    async with speaking(earlier) as upstream, asyncio.timeout(5):
        with pytest.raises(UpstreamFailure) as asked:
            await upstream.call("ask", arguments={"method": method})
        assert asked.value.reason is Reason.NEEDS_SESSION
        assert asked.value.sent
        await asyncio.to_thread(earlier.wait_left, "ask")
        assert earlier.methods.count("tools/call") == 1


async def test_a_result_that_poses_as_a_question_of_a_later_version_is_refused(earlier: Earlier) -> None:
    async def asking(exchange: Exchange, message: Any) -> None:
        if message["method"] == "initialize":
            exchange.json(result(message["id"], protocolVersion="2025-11-25", capabilities={}))
        else:
            exchange.json(result(message["id"], resultType="input_required", requestState="s"))

    with Shop(answers=[asking]) as server:
        async with speaking(server, ByGlob("sessionless")) as upstream:
            with pytest.raises(UpstreamFailure) as asked:
                await upstream.call()
            assert asked.value.reason is Reason.NEEDS_SESSION


@pytest.mark.parametrize("more", [{"requestState": "s"}, {"inputResponses": {}}])
async def test_a_call_that_began_stateless_is_not_begun_again(earlier: Earlier, more: dict[str, Any]) -> None:
    async with speaking(earlier) as upstream:
        with pytest.raises(UpstreamFailure) as refused:
            await upstream.client.request(
                "tools/call", {"name": "echo", "arguments": {"text": "hi"}, **more}, **OPTIONS
            )
        assert refused.value.reason is Reason.CHANGED
        assert "tools/call" not in earlier.methods


async def test_progress_and_logs_are_heard(earlier: Earlier) -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    async with speaking(earlier) as upstream:
        await upstream.call(
            "report", on_notice=lambda *notice: told.append(notice), wants_progress=True, log_level="info"
        )
    assert told == [
        ("notifications/progress", {"progress": 1, "total": 2, "message": "half"}),
        ("notifications/message", {"level": "warning", "data": "said"}),
    ]


async def test_two_replicas_send_other_ids(earlier: Earlier) -> None:
    for _ in range(2):
        async with speaking(earlier) as upstream:
            await upstream.call()
    ids = [message["id"] for message in earlier.messages if message["method"] == "tools/call"]
    assert len(set(ids)) == 2
    assert all(0 <= each < 2**31 for each in ids)


async def test_the_era_is_learnt_once_an_hour_and_after_an_error_that_may_mean_another(earlier: Earlier) -> None:
    async with speaking(earlier) as upstream:
        for _ in range(3):
            await upstream.discover()
        assert earlier.methods == ["server/discover", "initialize", "initialize", "initialize"]
        upstream.now += LEARNT_SECONDS
        await upstream.discover()
        assert earlier.methods[4:] == ["server/discover", "initialize"]
        earlier.version = "2025-06-18"
        with pytest.raises(UpstreamError):
            await upstream.call()  # the version is not the one that was learnt
        await upstream.discover()
        assert earlier.methods[6:] == ["tools/call", "server/discover", "initialize"]
        assert (await upstream.call())["content"][0]["text"] == "hi"


async def test_errors_of_calls_have_an_upstream_asked_again_only_now_and_then(earlier: Earlier) -> None:
    async with speaking(earlier) as upstream:
        await upstream.call()
        for number, version in enumerate(("2025-06-18", "2025-03-26", "2025-11-25", "2025-03-26")):
            earlier.version = version  # it is not the one that was learnt
            with pytest.raises(UpstreamError):
                await upstream.call()
            with contextlib.suppress(UpstreamError):
                await upstream.call()
            assert earlier.methods.count("server/discover") == 2, number
        upstream.now += SUSPECTED_SECONDS
        earlier.version = "2025-11-25"
        with pytest.raises(UpstreamError):
            await upstream.call()
        assert (await upstream.call())["content"][0]["text"] == "hi"
        assert earlier.methods.count("server/discover") == 3


async def test_calls_that_wait_for_an_upstream_that_cannot_be_reached_do_not_try_one_after_the_other(
    earlier: Earlier,
) -> None:
    tries = 0

    async def lost(*_: object, **__: object) -> NoReturn:
        nonlocal tries
        tries += 1
        await asyncio.sleep(0)
        raise UpstreamFailure(NAME, Reason.UNREACHABLE, sent=False)

    async with speaking(earlier) as upstream:
        upstream.client._stateless.request = lost  # type: ignore[method-assign]
        for number in (1, 2):
            found = await asyncio.gather(*(upstream.call() for _ in range(10)), return_exceptions=True)
            assert [isinstance(each, UpstreamFailure) and each.concerns_all for each in found] == [True] * 10
            assert tries == number


async def test_many_calls_at_once_learn_the_era_once(earlier: Earlier) -> None:
    async with speaking(earlier) as upstream:
        await asyncio.gather(*(upstream.call() for _ in range(10)))
    assert earlier.methods[:2] == ["server/discover", "initialize"]
    assert earlier.methods[2:] == ["tools/call"] * 10


async def test_the_option_decides_without_asking(earlier: Earlier) -> None:
    async with speaking(earlier, ByGlob("sessionless")) as upstream:
        await upstream.call()
        assert earlier.methods == ["initialize", "tools/call"]
    async with speaking(earlier, ByGlob("stateless")) as upstream:
        with pytest.raises(UpstreamError):
            await upstream.discover()
        assert earlier.methods[2:] == ["server/discover"]


async def test_the_option_of_one_tool_is_its_own() -> None:
    with Recording() as server:
        async with speaking(server, ByGlob("auto", (("ec*", "stateless"),))) as upstream:
            await upstream.call()
            assert [call.method for call in server.calls] == ["tools/call"]
    with Earlier() as server:
        async with speaking(server, ByGlob("stateless", (("ec*", "sessionless"),))) as upstream:
            await upstream.call()
            assert server.methods == ["initialize", "tools/call"]
            assert upstream.client.era is None


async def test_a_call_that_was_sent_is_not_sent_again(earlier: Earlier) -> None:
    async def broken(exchange: Exchange, message: Any) -> None:
        if message["method"] == "initialize":
            exchange.json(result(message["id"], protocolVersion="2025-11-25", capabilities={}))
        else:
            exchange.cut()

    with Shop(answers=[broken]) as server:
        async with speaking(server, ByGlob("sessionless")) as upstream:
            with pytest.raises(UpstreamFailure) as cut:
                await upstream.call()
            assert cut.value.sent
            assert [msgspec.json.decode(each.body)["method"] for each in server.exchanges] == [
                "initialize",
                "tools/call",
            ]


async def test_calls_find_out_that_a_server_no_longer_gives_sessions() -> None:
    with InSessions() as server, Earlier() as other:
        async with speaking(server) as upstream:
            await upstream.call()
            server.server.run(server.server.stop())
            server.server._handler = other.handle  # a new version of it is deployed
            server.server.run(server.server.listen())
            assert (await upstream.call())["content"][0]["text"] == "hi"
            eras = [upstream.client.era]
            upstream.now += LEARNT_SECONDS
            assert (await upstream.call())["content"][0]["text"] == "hi"
            assert [*eras, upstream.client.era] == ["session", "sessionless"]


@pytest.mark.parametrize("refusal", ["internal", "sdk1_params", "text", "page"])
async def test_a_stateless_server_stays_so_unless_it_clearly_says_otherwise(refusal: str) -> None:
    with Earlier(refusal=refusal) as server:
        async with speaking(server) as upstream:
            upstream.client._era = "stateless"
            with pytest.raises((UpstreamError, UpstreamFailure)):
                await upstream.discover()
            assert upstream.client.era == "stateless"
            assert server.methods == ["server/discover"]


async def test_a_server_that_gives_sessions_is_not_asked_for_each_call_though_an_option_says_otherwise() -> None:
    with Earlier(session="s-1") as server:
        async with speaking(server, ByGlob("sessionless")) as upstream:
            upstream.now = 1.0
            for _ in range(3):
                with pytest.raises(UpstreamFailure) as refused:
                    await upstream.call()
                assert refused.value.reason is Reason.NEEDS_SESSION
                assert not refused.value.sent
            assert server.methods == ["initialize", "DELETE"]
