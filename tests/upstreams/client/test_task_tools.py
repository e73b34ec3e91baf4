"""Tools that their server runs only as tasks: a call waits for the task, and cancels it if it ends earlier."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.upstreams.client import task_tools
from gateway.upstreams.failures import Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.ports import UpstreamCaller
from loadtest.cluster import wait_until
from tests.upstreams.client.test_sessions import ADA, BOB, calling
from tests.upstreams.servers.plain_http import Exchange
from tests.upstreams.servers.session import InSessions
from tests.upstreams.servers.tasks import WithTasks


async def test_a_tool_that_runs_only_as_a_task_is_called_as_one() -> None:
    with WithTasks() as server:
        async with calling(server) as upstream:
            assert await upstream.call("study", {"subject": "bees"}) == "studied bees"
            assert await upstream.call("echo", {"text": "hi"}) == "hi"
            assert await upstream.call("study", {"subject": "ants"}) == "studied ants"
        assert [task.status for task in server.tasks.values()] == ["completed", "completed"]
        assert server.methods.count("tools/list") == 2, "two pages, once"
        assert [tool for _, tool in server.ran] == ["study", "echo", "study"]


async def test_a_list_that_the_gateway_has_read_says_which_tools_these_are() -> None:
    with WithTasks() as server:
        async with calling(server) as upstream:
            for params in ({}, {"cursor": "more"}):
                await upstream.ask("tools/list", params)
            assert await upstream.call("study", {"subject": "bees"}) == "studied bees"
        assert server.methods.count("tools/list") == 2


async def test_the_list_of_a_caller_decides_nothing_about_the_calls_of_another_one() -> None:
    class ByCaller(WithTasks):
        """Only the caller of the first session has the tool as a task."""

        async def _answered(self, exchange: Exchange, message: Any, name: str) -> None:
            if message["method"] == "tools/list" and name != "s-1":
                exchange.json({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": [{"name": "study"}]}})
            else:
                await super()._answered(exchange, message, name)

    tenant = UpstreamCaller(principal=ADA.principal, headers={"x-tenant": "1"})
    with ByCaller() as server:
        async with calling(server) as upstream:
            for _ in range(2):
                for who in (tenant, ADA, BOB):
                    await upstream.ask("tools/list", {}, requester=who)
                    await upstream.ask("tools/list", {"cursor": "more"}, requester=who)
                await upstream.call("study", {"subject": "bees"}, requester=tenant)
                refused = await upstream.call("study", {"subject": "bees"}, requester=BOB)
                assert refused == "study requires task augmentation"
        assert len(server.tasks) == 2


async def test_callers_of_one_session_whose_headers_differ_have_lists_of_their_own() -> None:
    class ByTenant(WithTasks):
        """Only one tenant has the tool as a task."""

        async def _answered(self, exchange: Exchange, message: Any, name: str) -> None:
            if message["method"] == "tools/list" and exchange.header("x-tenant") != "1":
                exchange.json({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": [{"name": "study"}]}})
            else:
                await super()._answered(exchange, message, name)

    tenant = UpstreamCaller(principal=ADA.principal, headers={"x-tenant": "1"})
    with ByTenant() as server:
        async with calling(server, scope="shared") as upstream:
            for who in (BOB, tenant, BOB, ADA):
                said = await upstream.call("study", {"subject": "bees"}, requester=who)
                assert said == ("studied bees" if who is tenant else "study requires task augmentation")
        assert server.methods.count("initialize") == 1
        assert server.methods.count("tools/list") == 3, "one page, read once for all without headers, and two pages"


async def test_a_server_without_tasks_is_not_asked_for_its_list() -> None:
    with InSessions() as server:
        async with calling(server) as upstream:
            await upstream.call("echo", {"text": "hi"})
        assert "tools/list" not in server.methods


async def test_progress_and_logs_of_a_task_reach_its_call() -> None:
    told: list[Any] = []
    with WithTasks() as server:
        async with calling(server) as upstream:
            await upstream.call(
                "study",
                wants_progress=True,
                log_level="info",
                on_notice=lambda method, params: told.append((method.rpartition("/")[2], params)),
            )
    assert told == [("progress", {"progress": 1}), ("message", {"level": "warning", "data": "studying"})]


async def test_a_question_in_a_task_is_refused() -> None:
    with WithTasks() as server:
        async with calling(server) as upstream:
            assert await upstream.call("study", {"subject": "bees", "asks": True}) == "studied bees"
        assert [answer["error"]["code"] for answer in server.answers] == [-32601]


@pytest.mark.parametrize("holds_creation", [False, True])
async def test_a_call_that_leaves_cancels_its_task(holds_creation: bool) -> None:
    with WithTasks(holds_creation=holds_creation) as server:
        async with calling(server) as upstream:
            call = asyncio.create_task(upstream.call("study", {"waits": True}))
            await asyncio.to_thread(server.wait_begun)
            call.cancel()
            if holds_creation:
                await asyncio.sleep(0)
                server.server.run(_opened(server))
            with pytest.raises(asyncio.CancelledError):
                await call
        assert [task.status for task in server.tasks.values()] == ["cancelled"]


async def test_a_task_that_takes_too_long_is_cancelled_and_may_have_acted() -> None:
    with WithTasks() as server:
        async with calling(server) as upstream:
            with pytest.raises(UpstreamFailure) as failed:
                await upstream.call("study", {"waits": True}, seconds=0.5)
        assert (failed.value.reason, failed.value.sent) == (Reason.TIMED_OUT, True)
        assert [task.status for task in server.tasks.values()] == ["cancelled"]


async def test_a_task_whose_session_is_lost_is_not_begun_again() -> None:
    class Forgetful(WithTasks):
        async def _study(self, *args: Any) -> None:
            await super()._study(*args)
            self.open.clear()

    with Forgetful() as server:
        async with calling(server) as upstream:
            with pytest.raises(UpstreamFailure) as failed:
                await upstream.call("study")
        assert (failed.value.reason, failed.value.sent) == (Reason.LOST_SESSION, True)
        assert len(server.tasks) == 1


@pytest.mark.parametrize("task_id", [7, [], "x" * 2000])
async def test_a_task_without_a_valid_id_may_have_acted(task_id: Any) -> None:
    with WithTasks(task_id=task_id) as server:
        async with calling(server) as upstream:
            with pytest.raises(UpstreamFailure) as failed:
                await upstream.call("study")
        assert (failed.value.reason, failed.value.sent) == (Reason.MALFORMED, True)


async def test_a_server_that_answers_at_once_has_answered() -> None:
    class Quick(WithTasks):
        async def _study(self, exchange: Any, message: Any, *_: Any) -> None:
            self._end(exchange, message, {"content": [{"type": "text", "text": "at once"}]})

    with Quick() as server:
        async with calling(server) as upstream:
            assert await upstream.call("study") == "at once"


async def test_a_list_that_cannot_be_read_leaves_the_call_to_the_server_and_is_read_for_the_next_one() -> None:
    class Listless(WithTasks):
        async def _answered(self, exchange: Exchange, message: Any, name: str) -> None:
            if message["method"] == "tools/list" and self.methods.count("tools/list") == 1:
                exchange.cut()
            else:
                await super()._answered(exchange, message, name)

    with Listless() as server:
        async with calling(server) as upstream:
            assert await upstream.call("study") == "study requires task augmentation"
            assert await upstream.call("study", {"subject": "bees"}) == "studied bees"


async def test_a_server_that_refuses_to_list_is_asked_once() -> None:
    class Unlisted(WithTasks):
        async def _answered(self, exchange: Exchange, message: Any, name: str) -> None:
            if message["method"] == "tools/list":
                error = {"code": -32601, "message": "no list"}
                exchange.json({"jsonrpc": "2.0", "id": message["id"], "error": error})
            else:
                await super()._answered(exchange, message, name)

    with Unlisted() as server:
        async with calling(server) as upstream:
            for _ in range(2):
                assert await upstream.call("study") == "study requires task augmentation"
        assert server.methods.count("tools/list") == 1


async def test_a_list_without_end_is_read_in_part() -> None:
    class Endless(WithTasks):
        async def _of(self, message: Any, params: Any) -> dict[str, Any]:
            if message["method"] == "tools/list":
                return {"tools": [], "nextCursor": "more"}
            return await super()._of(message, params)

    with Endless() as server:
        async with calling(server) as upstream:
            await upstream.call("echo", {"text": "hi"})
            await upstream.call("echo", {"text": "hi"})
        assert server.methods.count("tools/list") == task_tools.MAX_PAGES


async def test_an_error_of_a_task_is_the_servers_own() -> None:
    class Failing(WithTasks):
        async def _finished(self, exchange: Any, message: Any, _name: str) -> None:
            error = {"code": -32050, "message": "no bees"}
            exchange.json({"jsonrpc": "2.0", "id": message["id"], "error": error})

    with Failing() as server:
        async with calling(server) as upstream:
            with pytest.raises(UpstreamError, match="no bees"):
                await upstream.call("study")
        wait_until(lambda: "DELETE" in server.methods, "the end of the session")
        assert "tasks/cancel" not in server.methods


async def _opened(server: WithTasks) -> None:
    server.gate.set()
