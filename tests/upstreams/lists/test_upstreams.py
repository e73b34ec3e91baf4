"""All upstreams of a process: their order, and what a new file changes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from gateway.errors import ConfigurationError
from gateway.protocol.caller import Requester
from gateway.registry.parts import Part
from gateway.upstreams.config.definition import Definition
from gateway.upstreams.live import Live
from gateway.upstreams.upstreams import Upstreams
from tests.upstreams.lists.fakes import FakeUpstream, Telemetry, definition_of, make_live, until


class Process:
    """Upstreams with fakes behind them."""

    def __init__(self, *definitions: Definition) -> None:
        self.fakes: list[tuple[Definition, FakeUpstream]] = []
        self.forgotten: list[str] = []
        self.served: list[Sequence[Part]] = []
        self.moved = asyncio.Event()
        self.upstreams = Upstreams(definitions, self._make, self.forgotten.append)
        self.upstreams.on_change = self._serve

    def _make(self, definition: Definition, changed: Callable[[], None]) -> Live:
        if definition.url.startswith("wrong"):
            raise ConfigurationError("no")
        upstream = FakeUpstream("search")
        self.fakes.append((definition, upstream))
        return make_live(definition, upstream, Telemetry(), changed)

    def _serve(self, parts: Sequence[Part]) -> None:
        self.served.append(parts)
        self.moved.set()

    def fake(self, name: str) -> FakeUpstream:
        """Return the newest upstream of a name."""
        return next(upstream for definition, upstream in reversed(self.fakes) if definition.name == name)

    @property
    def names(self) -> list[str]:
        return [name for part in self.upstreams.parts for name in part.tools]

    async def lists(self, *names: str) -> None:
        """Wait until these tools are served."""
        async with asyncio.timeout(5):
            while self.names != list(names):
                self.moved.clear()
                await self.moved.wait()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.upstreams.running():
            yield


async def test_parts_have_the_order_of_the_file_however_fast_they_answer() -> None:
    process = Process(definition_of("one"), definition_of("two"))
    process.fake("one").gate.clear()
    async with process.running():
        await process.lists("two__search")
        process.fake("one").gate.set()
        await process.lists("one__search", "two__search")


async def test_opening_waits_for_no_upstream() -> None:
    process = Process(definition_of("one"))
    process.fake("one").gate.clear()
    async with asyncio.timeout(5), process.running():
        assert [part.name for part in process.upstreams.parts] == ["one"]


async def test_a_new_file_leaves_unchanged_upstreams_alone() -> None:
    process = Process(definition_of("one"), definition_of("two"))
    async with process.running():
        await process.lists("one__search", "two__search")
        kept, gone = process.fake("one"), process.fake("two")
        part = process.upstreams.parts[0]
        process.upstreams.replace([definition_of("three"), definition_of("one")])
        await process.lists("three__search", "one__search")
        assert process.upstreams.parts[1] is part
        assert kept.count("tools/list") == 1
        await until(lambda: gone.is_closed)
        assert not kept.is_closed
        assert process.forgotten == ["two"]


async def test_a_changed_upstream_is_replaced_and_its_calls_end_undisturbed() -> None:
    process = Process(definition_of("one"))
    async with process.running():
        await process.lists("one__search")
        before = process.fake("one")
        finder = process.upstreams.parts[0].completer
        assert finder is not None
        before.results["completion/complete"] = {"completion": {"values": ["done"]}}
        before.gate.clear()
        call = asyncio.create_task(finder.complete("prompt", "one__p", "a", "", {}, Requester()))
        await asyncio.sleep(0)
        process.upstreams.replace([definition_of("one", timeout_seconds=5.0)])
        assert process.fake("one") is not before
        await process.lists("one__search")
        before.gate.set()
        assert await call == {"values": ["done"]}
        assert not process.forgotten


async def test_a_file_with_an_upstream_that_cannot_be_made_changes_nothing() -> None:
    process = Process(definition_of("one"))
    async with process.running():
        await process.lists("one__search")
        part = process.upstreams.parts[0]
        with pytest.raises(ConfigurationError):
            process.upstreams.replace([definition_of("two"), Definition("bad", "bad", "http", "wrong")])
        assert process.upstreams.parts == [part]
        assert not process.fake("one").is_closed


async def test_at_the_end_every_upstream_is_closed() -> None:
    process = Process(definition_of("one"), definition_of("two"))
    async with process.running():
        await process.lists("one__search", "two__search")
        process.upstreams.replace([definition_of("two")])
    assert all(upstream.is_closed for _, upstream in process.fakes)
