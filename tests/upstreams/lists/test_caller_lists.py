"""Lists that depend on the caller: nobody sees the list of somebody else."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.authoring.served import Served
from gateway.errors import GatewayError, Overloaded
from gateway.protocol.caller import Requester
from gateway.protocol.headers import Headers
from gateway.sealing.principal import Principal
from gateway.upstreams.failures import Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.lists import caller_lists
from gateway.upstreams.lists.caller_lists import ListsByCaller
from gateway.upstreams.ports import UpstreamCaller
from tests.upstreams.lists.fakes import FakeUpstream, definition_of, tool, unreachable, until
from tests.upstreams.lists.fakes import Served as Live

ADA, BOB = Principal("issuer", "ada", "app"), Principal("issuer", "bob", "app")


class Callers:
    """The lists of an upstream that names its tools after the caller."""

    def __init__(self, **options: Any) -> None:
        self.now = 0.0
        self.upstream = FakeUpstream()
        self.upstream.by_caller = self._tools
        definition = definition_of(forward_headers=("x-token",), scope="caller", **options)
        self.live = Live(definition, self.upstream)
        lists = self.live.live.part.lists
        assert isinstance(lists, ListsByCaller)
        lists._clock = lambda: self.now
        self.lists = lists

    def _tools(self, caller: UpstreamCaller) -> list[dict[str, Any]]:
        name = "nobody" if caller.principal is None else caller.principal.subject
        return [tool(f"{name}_{caller.headers.get('x-token', 'none')}")]

    async def names(self, principal: Principal | None, token: str | None = None) -> list[str]:
        raw = [] if token is None else [(b"x-token", token.encode()), (b"authorization", b"Bearer secret")]
        entries: Mapping[str, Served] = await self.lists.entries(
            "tools", Requester(principal=principal, headers=Headers(raw))
        )
        return list(entries)


@pytest.fixture
def callers() -> Callers:
    return Callers()


async def test_each_caller_and_each_forwarded_header_has_a_list_of_its_own(callers: Callers) -> None:
    assert await callers.names(ADA) == ["bugs__ada_none"]
    assert await callers.names(BOB) == ["bugs__bob_none"]
    assert await callers.names(ADA, "one") == ["bugs__ada_one"]
    assert await callers.names(ADA, "two") == ["bugs__ada_two"]
    assert await callers.names(None) == ["bugs__nobody_none"]
    assert all("authorization" not in caller.headers for _, caller in callers.upstream.asked)


async def test_a_list_is_kept_until_it_expires(callers: Callers) -> None:
    await callers.names(ADA)
    await callers.names(ADA)
    assert callers.upstream.count("tools/list") == 1
    callers.now += caller_lists.DEFAULT_SECONDS
    await callers.names(ADA)
    assert callers.upstream.count("tools/list") == 2


async def test_requests_for_one_list_at_once_read_it_once(callers: Callers) -> None:
    callers.upstream.gate.clear()
    requests = [asyncio.create_task(callers.names(ADA)) for _ in range(10)]
    await asyncio.sleep(0)
    callers.upstream.gate.set()
    assert {tuple(names) for names in await asyncio.gather(*requests)} == {("bugs__ada_none",)}
    assert callers.upstream.count("tools/list") == 1


async def test_a_request_that_is_cancelled_cancels_no_other(callers: Callers) -> None:
    callers.upstream.gate.clear()
    first = asyncio.create_task(callers.names(ADA))
    second = asyncio.create_task(callers.names(ADA))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait({first})
    callers.upstream.gate.set()
    assert await second == ["bugs__ada_none"]


@pytest.mark.parametrize("problem", [unreachable(), Overloaded(), UpstreamError("bugs", -32603, "Internal error")])
async def test_an_upstream_that_cannot_answer_now_keeps_the_last_list_of_each_caller(
    callers: Callers, problem: GatewayError
) -> None:
    await callers.names(ADA)
    callers.now += caller_lists.DEFAULT_SECONDS
    callers.upstream.problem = problem
    assert await callers.names(ADA) == ["bugs__ada_none"]
    with pytest.raises(type(problem)):
        await callers.names(BOB)


REFUSALS = [Reason.UNAUTHORIZED, Reason.FORBIDDEN, Reason.CREDENTIALS]


@pytest.mark.parametrize(
    "problem",
    [*(UpstreamFailure("bugs", reason, sent=False) for reason in REFUSALS), UpstreamError("bugs", -32001, "Forbidden")],
)
async def test_a_caller_whom_the_upstream_now_refuses_no_longer_sees_the_list(
    callers: Callers, problem: GatewayError
) -> None:
    await callers.names(ADA)
    callers.now += caller_lists.DEFAULT_SECONDS
    callers.upstream.problem = problem
    with pytest.raises(type(problem)):
        await callers.names(ADA)


async def test_a_bug_in_reading_one_callers_list_is_a_failure_of_that_upstream(
    callers: Callers, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise, it would cost this caller the tools of all other upstreams too."""
    await callers.names(ADA)
    callers.upstream.problem = AttributeError("'list' object has no attribute 'startswith'")
    with pytest.raises(UpstreamFailure):
        await callers.names(BOB)
    assert "lists of an upstream cannot be read" in caplog.messages
    assert await callers.names(ADA) == ["bugs__ada_none"]


async def test_a_list_that_takes_too_long_is_missing_now_and_there_later(
    callers: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller_lists, "LIST_SECONDS", 0.01)
    callers.upstream.gate.clear()
    with pytest.raises(UpstreamFailure) as late:
        await callers.names(ADA)
    assert late.value.reason is Reason.TIMED_OUT
    callers.upstream.gate.set()
    monkeypatch.setattr(caller_lists, "LIST_SECONDS", 30)
    assert await callers.names(ADA) == ["bugs__ada_none"]
    assert callers.upstream.count("tools/list") == 1


async def test_a_call_waits_longer_for_its_callers_list_than_a_list_does(
    callers: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller_lists, "LIST_SECONDS", 0.01)
    finder = callers.live.live.part.finder
    assert finder is not None
    callers.upstream.gate.clear()
    call = asyncio.ensure_future(finder.find_for("tools", "bugs__ada_none", Requester(principal=ADA)))
    with pytest.raises(UpstreamFailure):
        await callers.names(ADA)
    callers.upstream.gate.set()
    assert await call is not None


async def test_lists_are_bounded_and_the_one_used_longest_ago_is_forgotten(
    callers: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller_lists, "MAX_ENTRIES", 3)
    for number in range(5):
        await callers.names(None, str(number))
        await callers.names(None, "0")
    assert len(callers.lists._kept) == 3
    before = callers.upstream.count("tools/list")
    await callers.names(None, "0")
    assert callers.upstream.count("tools/list") == before
    await callers.names(None, "1")
    assert callers.upstream.count("tools/list") == before + 1


async def test_large_lists_of_many_callers_are_not_all_kept(callers: Callers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller_lists, "MAX_MEMORY_BYTES", 24_000)
    callers.upstream.by_caller = lambda caller: [tool(caller.headers["x-token"], description="x" * 1_000)]
    for number in range(5):
        await callers.names(None, str(number))
        await callers.names(None, str(number))
    assert len(callers.lists._kept) == 4
    assert callers.upstream.count("tools/list") == 5


@pytest.mark.parametrize(("limit", "value"), [("MAX_LISTS", 12), ("MAX_ENTRIES", 12), ("MAX_MEMORY_BYTES", 96_000)])
async def test_the_lists_of_one_caller_take_no_more_than_a_share_and_the_oldest_ones_go(
    callers: Callers, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(caller_lists, limit, value)
    callers.upstream.by_caller = lambda _caller: [tool("any", description="x" * 3_000)]
    await callers.names(BOB)
    for number in range(20):
        await callers.names(ADA, str(number))
        await callers.names(ADA, "0")
    mine = [dict(headers)["x-token"] for _, principal, headers in callers.lists._kept if principal == ADA]
    assert mine == ["18", "19", "0"]
    before = callers.upstream.count("tools/list")
    await callers.names(BOB)
    assert callers.upstream.count("tools/list") == before


async def test_a_list_that_is_read_again_counts_once_and_one_that_is_forgotten_does_not_count(
    callers: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await callers.names(ADA)
        callers.now += caller_lists.DEFAULT_SECONDS
    assert (callers.lists._use.lists, callers.lists._use.entries) == (1, 1)
    assert callers.lists._use_of[ADA] == callers.lists._use
    monkeypatch.setattr(caller_lists, "MAX_LISTS", 4)
    for token in ("one", "two", "three", "four"):
        await callers.names(None, token)
    await callers.names(BOB)
    for token in ("two", "three", "four"):
        callers.lists._forget(("tools", None, (("x-token", token),)))
    assert list(callers.lists._use_of) == [BOB]
    assert callers.lists._use_of[BOB] == callers.lists._use


async def test_only_a_few_lists_of_one_caller_are_read_at_once_and_those_of_others_do_not_wait(
    callers: Callers,
) -> None:
    callers.upstream.gate.clear()
    mine = [asyncio.create_task(callers.names(ADA, str(number))) for number in range(10)]
    again = asyncio.create_task(callers.names(ADA, "0"))
    await asyncio.sleep(0)
    other = asyncio.create_task(callers.names(BOB))
    await until(lambda: callers.upstream.asked and callers.upstream.asked[-1][1].principal == BOB)
    assert callers.upstream.count("tools/list") == caller_lists.MAX_READINGS + 1
    callers.upstream.gate.set()
    assert await other == ["bugs__bob_none"]
    assert await again == ["bugs__ada_0"]
    assert await asyncio.gather(*mine) == [[f"bugs__ada_{number}"] for number in range(10)]
    assert callers.upstream.count("tools/list") == 10 + 1


async def test_a_tool_that_one_caller_sees_is_found_with_all_that_its_entry_says(callers: Callers) -> None:
    await callers.names(ADA)
    finder = callers.live.live.part.finder
    assert finder is not None
    found = await finder.find_for("tools", "bugs__ada_none", Requester(principal=ADA))
    assert found is not None
    assert found.label == "bugs__ada_none"


async def test_a_request_gives_up_its_place_only_while_its_list_is_read(callers: Callers) -> None:
    left: list[bool] = []
    requester = Requester(principal=ADA, step_aside=lambda: left.append(True))
    await callers.lists.entries("tools", requester)
    assert left == [True]
    await callers.lists.entries("tools", requester)
    assert left == [True]
