"""An upstream without a network, which tests let answer, fail and wait; and telemetry that can be read."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.registry.parts import Part
from gateway.upstreams.config.definition import Definition
from gateway.upstreams.credentials import credentials_of
from gateway.upstreams.failures import Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.guarded import GuardedClient
from gateway.upstreams.lists.listing import readings_of_lists
from gateway.upstreams.live import Live
from gateway.upstreams.ports import Changes, UpstreamCaller
from gateway.upstreams.readings import Readings
from gateway.upstreams.relay import UpstreamRelay
from gateway.upstreams.served_entries import PartMaker

CHANGING = {"listChanged": True}
CAPABILITIES = {"tools": CHANGING, "prompts": CHANGING, "resources": {**CHANGING, "subscribe": True}, "completions": {}}


def definition_of(name: str = "bugs", **options: Any) -> Definition:
    return Definition(name, options.pop("prefix", name), "http", f"https://{name}.example/mcp", **options)


def tool(name: str, **members: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **members}


class Telemetry(UpstreamMetrics):
    """Counts what happens."""

    def __init__(self) -> None:
        super().__init__(CollectorRegistry())
        self.refreshes: Counter[bool] = Counter()
        self.drops: Counter[str] = Counter()
        self.failures: Counter[Reason] = Counter()
        self.entries: dict[str, int] = {}
        self.open: dict[str, bool] = {}
        self.flying: dict[str, int] = {}

    def failed(self, _upstream: str, reason: str) -> None:
        self.failures[Reason(reason)] += 1

    def dropped(self, _upstream: str, what: str, count: int = 1) -> None:
        self.drops[what] += count

    def listed(self, _upstream: str, *, succeeded: bool) -> None:
        self.refreshes[succeeded] += 1

    def serves(self, upstream: str, entries: int) -> None:
        self.entries[upstream] = entries

    def breaker(self, upstream: str, *, is_open: bool) -> None:
        self.open[upstream] = is_open

    def in_flight(self, upstream: str, requests: int) -> None:
        self.flying[upstream] = requests


class FakeUpstream:
    """A client and its server at once. Each request waits for `gate`; `problem` is raised instead of an answer."""

    probe_method = "server/discover"

    def __init__(self, *tools: str) -> None:
        self.lists: dict[str, Sequence[Any]] = {"tools": [tool(name) for name in tools]}
        self.about: dict[str, Any] = {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES}
        self.problem: Exception | None = None
        self.by_caller: Callable[[UpstreamCaller], Sequence[Any]] | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked: list[tuple[str, UpstreamCaller]] = []
        self.results: dict[str, Any] = {}
        self.params: list[Mapping[str, Any]] = []
        self.options: list[Mapping[str, Any]] = []
        self.streams: dict[asyncio.Queue[tuple[str, dict[str, Any]]], Mapping[str, Any]] = {}
        self.moved = asyncio.Condition()
        self.is_closed = False

    @property
    def client(self) -> FakeUpstream:
        return self

    async def aclose(self) -> None:
        self.is_closed = True

    def count(self, method: str) -> int:
        return sum(asked == method for asked, _ in self.asked)

    async def request(
        self, method: str, params: Mapping[str, Any], *, requester: UpstreamCaller, **options: Any
    ) -> dict[str, Any]:
        self.options.append(options)
        self.asked.append((method, requester))
        self.params.append(params)
        await self.gate.wait()
        if self.problem is not None:
            raise self.problem
        if method in self.results:
            return dict(self.results[method])
        if method == "server/discover":
            return self.about
        if method == "tools/list" and self.by_caller is not None:
            return {"tools": list(self.by_caller(requester))}
        member = "resourceTemplates" if method == "resources/templates/list" else method.removesuffix("/list")
        if member not in ("tools", "prompts", "resources", "resourceTemplates"):
            raise UpstreamError("bugs", -32601, "Method not found")
        return {member: list(self.lists.get(member, ()))}

    @contextlib.asynccontextmanager
    async def listen(self, wanted: Mapping[str, Any], *, requester: UpstreamCaller) -> AsyncIterator[Changes]:
        assert requester.principal is None
        queue: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()

        async def notices() -> Changes:
            while True:
                yield await queue.get()

        self.streams[queue] = wanted
        await self._move()
        try:
            yield notices()
        finally:
            del self.streams[queue]

    async def _move(self) -> None:
        async with self.moved:
            self.moved.notify_all()

    async def listening(self, is_right: Callable[[Mapping[str, Any]], bool] = bool) -> None:
        """Wait until a stream with the right filter is open."""
        async with asyncio.timeout(5), self.moved:
            await self.moved.wait_for(lambda: any(is_right(wanted) for wanted in self.streams.values()))

    def tell(self, method: str, **params: Any) -> None:
        for queue in self.streams:
            queue.put_nowait((method, params))


class Served:
    """A live upstream, and the parts that it has made."""

    def __init__(
        self,
        definition: Definition,
        upstream: FakeUpstream,
        telemetry: Telemetry | None = None,
        readings: Readings | None = None,
    ) -> None:
        self.upstream = upstream
        self.telemetry = telemetry or Telemetry()
        self.parts: asyncio.Queue[Part] = asyncio.Queue()
        self.announced: asyncio.Queue[str] = asyncio.Queue()
        self.live = make_live(
            definition, upstream, self.telemetry, self._changed, self.announced.put_nowait, readings=readings
        )

    def _changed(self) -> None:
        self.parts.put_nowait(self.live.part)

    async def next_part(self) -> Part:
        async with asyncio.timeout(5):
            return await self.parts.get()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.live.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled(), task.exception()


def make_live(
    definition: Definition,
    upstream: FakeUpstream,
    telemetry: Telemetry,
    changed: Callable[[], None],
    announce: Callable[[str], None] | None = None,
    *,
    readings: Readings | None = None,
) -> Live:
    def make_parts(client: GuardedClient) -> PartMaker:
        relay = UpstreamRelay(definition, client, credentials_of(definition), telemetry)
        return PartMaker(definition, client, relay, telemetry, readings or readings_of_lists())

    return Live(definition, upstream, telemetry, make_parts=make_parts, changed=changed, announce=announce)


def unreachable() -> UpstreamFailure:
    return UpstreamFailure("bugs", Reason.UNREACHABLE, sent=False)


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds that nothing announces."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.002)
