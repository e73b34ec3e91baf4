"""Lists that are being read for callers count while they grow, so stalling upstreams cannot fill the memory."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from gateway.protocol.caller import Requester
from gateway.registry.parts import KINDS, Kind
from gateway.sealing.principal import Principal
from gateway.upstreams import readings
from gateway.upstreams.failures import Reason, UpstreamFailure
from gateway.upstreams.lists import caller_lists
from gateway.upstreams.lists.caller_lists import ListsByCaller
from gateway.upstreams.lists.listing import LISTS, read_list, readings_of_lists
from gateway.upstreams.ports import UpstreamCaller
from gateway.upstreams.readings import Readings
from tests.upstreams.lists.fakes import FakeUpstream, Served, definition_of, tool, until

ADA, BOB = Principal("issuer", "ada", "app"), Principal("issuer", "bob", "app")


class Stalling(FakeUpstream):
    """Sends second pages when the gate opens. The first one is as large as a header or the subject says."""

    async def request(
        self, method: str, params: Mapping[str, Any], *, requester: UpstreamCaller, **options: Any
    ) -> dict[str, Any]:
        form = next((form for form in LISTS.values() if form.method == method), None)
        if form is None:
            return await super().request(method, params, requester=requester, **options)
        if "cursor" in params:
            await self.gate.wait()
            return {form.member: []}
        entry = {"name": "a", "uri": "a:b", "uriTemplate": "a:{b}", "description": "x" * _size_for(requester)}
        return {form.member: [entry | {"inputSchema": {"type": "object"}}], "nextCursor": "second"}


def _size_for(caller: UpstreamCaller) -> int:
    assert caller.principal is not None
    return int(caller.headers.get("x-size", caller.principal.subject.partition(" ")[2] or 0))


class Reader:
    """Reads the lists of an upstream whose second pages wait."""

    def __init__(self, name: str = "bugs", shared: Readings | None = None) -> None:
        self.upstream = Stalling()
        self.upstream.gate.clear()
        definition = definition_of(name, scope="caller", forward_headers=("x-size",))
        self.served = Served(definition, self.upstream, readings=shared)
        lists = self.served.live.part.lists
        assert isinstance(lists, ListsByCaller)
        self.lists = lists
        self.readings = lists._readings

    async def read(self, principal: Principal, kind: Kind = "tools", size: int | None = None) -> list[str]:
        caller = UpstreamCaller(principal, headers={} if size is None else {"x-size": str(size)})
        key = (kind, principal, tuple(caller.headers.items()))
        task = await self.lists._started(key, caller)
        return list((await asyncio.shield(task)).shown.served)

    async def start(self, principal: Principal, kind: Kind = "tools", size: int | None = None) -> asyncio.Task[Any]:
        """Begin to read, and return when the first page counts, or when the reading has failed."""
        before = self.readings.memory
        task = asyncio.create_task(self.read(principal, kind, size))
        await until(lambda: task.done() or self.readings.memory != before)
        return task


def caller(number: int, size: int) -> Principal:
    return Principal("issuer", f"{number} {size}", "app")


def failed(task: asyncio.Task[Any]) -> bool:
    """Return whether a reading ended because all of them took too much."""
    problem = task.exception() if task.done() else None
    return isinstance(problem, UpstreamFailure) and problem.reason is Reason.TOO_LARGE


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "MAX_BYTES_OF_UPSTREAM", 400_000)
    monkeypatch.setattr(readings, "MAX_BYTES", 600_000)


@pytest.mark.parametrize("kind", KINDS)
async def test_lists_of_many_callers_that_are_being_read_take_no_more_than_the_limit(kind: Kind) -> None:
    reader = Reader()
    tasks = [await reader.start(caller(number, 100_000), kind) for number in range(6)]
    assert [failed(task) for task in tasks] == [False] * 3 + [True] * 3
    assert 300_000 < reader.readings.memory <= 400_000
    reader.upstream.gate.set()
    assert [len(names) for names in await asyncio.gather(*tasks[:3])] == [1, 1, 1]
    assert reader.readings.memory == 0
    assert reader.served.telemetry.failures == {Reason.TOO_LARGE: 3}


async def test_the_largest_list_gives_way_to_smaller_ones() -> None:
    reader = Reader()
    large = await reader.start(caller(0, 300_000))
    small = [await reader.start(caller(number, 50_000)) for number in range(1, 4)]
    await until(large.done)
    assert failed(large)
    reader.upstream.gate.set()
    assert all(await asyncio.gather(*small))


async def test_a_caller_with_many_values_of_a_header_makes_only_their_own_lists_fail() -> None:
    reader = Reader()
    other = await reader.start(BOB, size=150_000)
    mine = [await reader.start(ADA, size=100_000 + number) for number in range(3)]
    await until(mine[2].done)
    assert [failed(task) for task in mine] == [False, False, True]
    newcomer = await reader.start(caller(0, 10_000))
    reader.upstream.gate.set()
    assert await other
    assert await newcomer


async def test_the_lists_of_all_upstreams_count_together_and_the_upstream_with_most_gives_way() -> None:
    shared = readings_of_lists()
    hostile, second, honest = (Reader(name, shared) for name in ("one", "two", "three"))
    large = [await hostile.start(caller(number, 110_000)) for number in range(3)]
    others = [await second.start(caller(number, 100_000)) for number in range(2)]
    mine = await honest.start(caller(0, 100_000))
    await until(lambda: any(map(failed, large)))
    assert [failed(task) for task in large] == [False, False, True]
    assert shared.memory <= 600_000
    for reader in (hostile, second, honest):
        reader.upstream.gate.set()
    assert all(await asyncio.gather(*large[:2], *others, mine))


async def test_a_list_that_is_larger_than_a_callers_share_is_refused_and_nobodys_list_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(caller_lists, "MAX_MEMORY_BYTES", 400_000)
    reader = Reader()
    reader.upstream.gate.set()
    for number in range(10):
        await reader.read(caller(number, 10_000))
    with pytest.raises(UpstreamFailure, match="take more than 100000 bytes") as refused:
        await reader.read(BOB, size=100_000)
    assert refused.value.reason is Reason.TOO_LARGE
    assert len(reader.lists._kept) == 10


async def test_only_a_few_lists_are_read_at_once_but_those_that_stall_do_not_hold_up_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(caller_lists, "TURN_SECONDS", 60)
    reader = Reader()
    stalled = [await reader.start(caller(number, 0)) for number in range(caller_lists.TURNS)]
    next_one = asyncio.create_task(reader.read(caller(-1, 0)))
    held = reader.readings.memory
    await until(lambda: reader.lists._turns._waiters)
    monkeypatch.setattr(caller_lists, "TURN_SECONDS", 0.01)
    impatient = asyncio.create_task(reader.read(caller(-2, 0)))
    await until(lambda: reader.readings.memory > held)
    assert reader.readings.memory == held // caller_lists.TURNS * (caller_lists.TURNS + 1)
    reader.upstream.gate.set()
    assert all(await asyncio.gather(*stalled, next_one, impatient))


class _Page(dict[str, Any]):
    """An object that tells when it is no longer in memory."""


def _second(answer: Callable[[], Awaitable[dict[str, Any]]]) -> tuple[list[weakref.ref[_Page]], Any]:
    """Return what sees a first page and its entry, and a server that answers for the second one."""
    seen: list[weakref.ref[_Page]] = []

    async def ask(_method: str, params: dict[str, Any]) -> Mapping[str, Any]:
        if "cursor" in params:
            return await answer()
        entry = _Page(tool("a"))
        page = _Page(tools=[entry], more=[[]] * 1000, nextCursor="second")
        seen.extend((weakref.ref(page), weakref.ref(entry)))
        return page

    return seen, ask


async def test_of_a_page_only_its_entries_stay_while_the_next_one_is_read() -> None:
    alive: list[bool] = []

    async def answer() -> dict[str, Any]:
        alive.extend(reference() is not None for reference in seen)
        return {"tools": []}

    seen, ask = _second(answer)
    await read_list("bugs", ask, "tools")
    assert alive == [False, True]


async def test_the_cursors_of_a_list_count() -> None:
    counted: list[int] = []
    seen, ask = _second(lambda: asyncio.sleep(0, {"tools": []}))
    _, _, memory = await read_list("bugs", ask, "tools", count=counted.append)
    assert seen
    assert counted[1] == 4 * len("second")
    assert sum(counted) == memory


async def test_nothing_of_a_list_stays_with_the_error_of_its_reading() -> None:
    async def answer() -> dict[str, Any]:
        raise UpstreamFailure("bugs", Reason.CUT, sent=True)

    seen, ask = _second(answer)
    with pytest.raises(UpstreamFailure) as problem:
        await readings_of_lists().read("bugs", ADA, lambda count: read_list("bugs", ask, "tools", count=count))
    assert problem.value.reason is Reason.CUT
    assert [reference() for reference in seen] == [None, None]


async def test_a_request_whose_list_gives_way_gets_the_answer_of_a_list_that_cannot_be_read() -> None:
    reader = Reader()
    first = await reader.start(caller(0, 300_000))
    finder = reader.served.live.part.finder
    assert finder is not None
    call = await finder.find_for("tools", "bugs__a", Requester(principal=caller(1, 350_000)))
    assert call is not None
    assert call.catalogue_entry() == {"name": "bugs__a"}, "a relay that no list shapes, and that sends nothing"
    assert not first.done()


async def test_a_reading_that_is_interrupted_leaves_nothing_in_memory() -> None:
    shared = readings_of_lists()
    seen: list[weakref.ref[_Page]] = []

    async def large(count: Callable[[int], None]) -> None:
        page = _Page(tools=[])
        seen.append(weakref.ref(page))
        count(300_000)
        try:
            await asyncio.Event().wait()
        except BaseException as problem:  # noqa: BLE001 - it is raised again
            kept = problem  # the exception and its frame have each other now
            raise kept from None

    async def small(count: Callable[[int], None]) -> None:
        count(150_000)

    gc.disable()
    try:
        task = asyncio.create_task(shared.read("bugs", ADA, large))
        await until(lambda: shared.memory == 300_000)
        await shared.read("bugs", BOB, small)
        await until(task.done)
        assert failed(task)
        assert seen[0]() is None
    finally:
        gc.enable()
