"""The lists of an upstream that shows each caller other entries."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from gateway.authoring.served import Served
from gateway.errors import GatewayError, InternalError, Overloaded
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.protocol.caller import Requester
from gateway.registry.parts import Kind
from gateway.runtime.sources import Clock
from gateway.runtime.turns import Turns
from gateway.sealing.principal import Principal
from gateway.upstreams.callers import caller_of
from gateway.upstreams.config.definition import Definition
from gateway.upstreams.failures import Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.guarded import GuardedClient
from gateway.upstreams.healing import Healing
from gateway.upstreams.known import KnownEntries
from gateway.upstreams.lists.listing import (
    PAGE_SECONDS,
    RELAYED_CAPABILITIES,
    Entries,
    UnusableLists,
    read_list,
)
from gateway.upstreams.ports import UpstreamCaller
from gateway.upstreams.readings import Count, Readings

log = logging.getLogger(__name__)

MAX_LISTS: Final = 4_000
MAX_ENTRIES: Final = 100_000
MAX_MEMORY_BYTES: Final = 128 * 2**20
"""Limits of the lists that are kept, in all; their memory is counted by `served_bytes`. Those that were used longest
ago are forgotten first."""

SHARES: Final = 4
"""The lists of one principal may take one share of each limit, so no caller makes those of others be forgotten. A list
that takes more memory is refused."""

MAX_READINGS: Final = 4
"""How many lists of one principal are read at once."""

TURNS: Final = 8
TURN_SECONDS: Final = 1.0
"""How many lists are read before others wait, and for how long. So many callers at once have room, and lists that never
end hold up nobody for long."""

LIST_SECONDS: Final = 2.0
CALL_SECONDS: Final = 5.0
"""How long a list of the gateway waits for one of an upstream, and how long a call does that is judged by it. Reading
it continues, so that the next request may find it."""

SHORTEST_SECONDS: Final = 10.0
LONGEST_SECONDS: Final = 300.0
DEFAULT_SECONDS: Final = 60.0
"""How long a list is kept if the upstream does not say how long it stays valid."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The part of a list that one caller may see: in the upstream's order, and to look entries up."""

    served: Mapping[str, Served]
    known: KnownEntries


Make: TypeAlias = Callable[[Kind, Entries], Awaitable[Shown]]
_Key: TypeAlias = tuple[Kind, Principal | None, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class _KeptList:
    shown: Shown
    until: float
    memory: int


@dataclass(slots=True)
class _MemoryUse:
    """The share of the limits that kept lists take, of one principal or of all."""

    lists: int = 0
    entries: int = 0
    memory: int = 0

    def count(self, kept: _KeptList, sign: int) -> None:
        """Add a list, or with -1 take it away."""
        self.lists += sign
        self.entries += sign * len(kept.shown.served)
        self.memory += sign * kept.memory

    def exceeds(self, shares: int) -> bool:
        """Return whether the lists take more than one of so many shares of a limit."""
        return (
            self.lists * shares > MAX_LISTS
            or self.entries * shares > MAX_ENTRIES
            or self.memory * shares > MAX_MEMORY_BYTES
        )


class ListsByCaller:
    """Reads and keeps the lists of each caller.

    A list belongs to the caller's principal and the forwarded headers of its request, so no caller sees the list of
    another one. Several requests for one list cause one reading. Callers without a principal cannot be told apart, so
    they have no shares.
    """

    def __init__(
        self,
        definition: Definition,
        client: GuardedClient,
        make: Make,
        telemetry: UpstreamMetrics,
        readings: Readings,
        *,
        turns: Turns | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._turns_of_pages = turns
        self._definition = definition
        self._client = client
        self._make = make
        self._telemetry = telemetry
        self._heal = Healing(definition.name, telemetry)
        self._readings = readings
        self._clock = clock
        self._kept: OrderedDict[_Key, _KeptList] = OrderedDict()
        self._use = _MemoryUse()
        self._use_of: dict[Principal, _MemoryUse] = {}
        self._reading: dict[_Key, asyncio.Task[_KeptList]] = {}
        self._turns = asyncio.Semaphore(TURNS)

    async def entries(self, kind: Kind, requester: Requester, /) -> Mapping[str, Served]:
        """Return what one caller may see, by exposed name or URI, in the upstream's order; see `shown`."""
        return (await self.shown(kind, requester, LIST_SECONDS)).served

    async def shown(self, kind: Kind, requester: Requester, seconds: float = CALL_SECONDS) -> Shown:
        """Return what one caller may see of a list.

        A list that is due is read again while the request waits. If that fails or takes longer than these seconds, the
        list of before is returned; without one, a `GatewayError` is raised.
        """
        caller = caller_of(requester, self._definition, RELAYED_CAPABILITIES)
        key = (kind, caller.principal, tuple(sorted(caller.headers.items())))
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            if self._clock() < kept.until:
                return kept.shown
        requester.step_aside()
        try:
            async with asyncio.timeout(seconds):
                return (await asyncio.shield(await self._started(key, caller))).shown
        except (TimeoutError, Overloaded, UpstreamFailure, UpstreamError) as problem:
            if kept is not None and not _is_refusal(problem):
                return kept.shown
            if not isinstance(problem, TimeoutError):
                raise
            raise UpstreamFailure(self._definition.name, Reason.TIMED_OUT, sent=True) from None

    def expire(self) -> None:
        """Read every list again when it is asked for next."""
        for key, kept in self._kept.items():
            self._kept[key] = replace(kept, until=0.0)

    async def _started(self, key: _Key, caller: UpstreamCaller) -> asyncio.Task[_KeptList]:
        """Return the reading of a list that is under way, or start one when the caller has few others."""
        while caller.principal is not None and key not in self._reading:
            others = [task for (_, principal, _), task in self._reading.items() if principal == caller.principal]
            if len(others) < MAX_READINGS:
                break
            await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        running = self._reading.get(key)
        if running is None:
            running = self._reading[key] = asyncio.create_task(self._read(key, caller))
            running.add_done_callback(lambda task: self._ended(key, task))
        return running

    def _ended(self, key: _Key, task: asyncio.Task[_KeptList]) -> None:
        del self._reading[key]
        if not task.cancelled():
            task.exception()  # mark it as seen: those that wait get it, and without them nobody needs it

    async def _read(self, key: _Key, caller: UpstreamCaller) -> _KeptList:
        name, succeeded = self._definition.name, False
        try:
            async with self._turn():
                kept = await self._readings.read(
                    name, caller.principal or key, lambda count: self._kept_of(key[0], caller, count)
                )
            succeeded = True
        except UnusableLists as problem:
            self._telemetry.failed(name, problem.reason)
            raise
        except (GatewayError, TimeoutError):
            raise
        except Exception:  # the last line of defence: a bug must not cost callers the tools of all others
            log.exception("lists of an upstream cannot be read", extra={"upstream": name})
            raise UnusableLists(name, Reason.MALFORMED, sent=True) from None
        finally:
            self._telemetry.listed(name, succeeded=succeeded)
        self._keep(key, kept)
        return kept

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait until few other lists are read, but not for long."""
        has_turn = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TURN_SECONDS):
                has_turn = await self._turns.acquire()
        try:
            yield
        finally:
            if has_turn:
                self._turns.release()

    async def _kept_of(self, kind: Kind, caller: UpstreamCaller, count: Count) -> _KeptList:
        """Read a list, and return what is kept of it."""

        async def ask(method: str, params: dict[str, Any]) -> Mapping[str, Any]:
            return await self._client.request(
                method,
                params,
                requester=caller,
                seconds=min(self._definition.timeout_seconds, PAGE_SECONDS),
                max_bytes=self._definition.max_result_bytes,
            )

        share = MAX_MEMORY_BYTES // SHARES
        name = self._definition.name
        raw, ttl_ms, memory = await read_list(
            name, ask, kind, count=count, max_memory=share, heal=self._heal, turns=self._turns_of_pages
        )
        seconds = DEFAULT_SECONDS if ttl_ms is None else min(max(ttl_ms / 1000, SHORTEST_SECONDS), LONGEST_SECONDS)
        return _KeptList(await self._make(kind, raw), self._clock() + seconds, memory)

    def _keep(self, key: _Key, kept: _KeptList) -> None:
        """Keep a list as the one used last, and forget others that are too much."""
        if key in self._kept:
            self._forget(key)
        principal = key[1]
        self._kept[key] = kept
        self._use.count(kept, 1)
        if principal is not None:
            mine = self._use_of.setdefault(principal, _MemoryUse())
            mine.count(kept, 1)
            while mine.exceeds(SHARES):
                self._forget(next(each for each in self._kept if each[1] == principal))
        while self._use.exceeds(1):
            self._forget(next(iter(self._kept)))

    def _forget(self, key: _Key) -> None:
        kept, principal = self._kept.pop(key), key[1]
        self._use.count(kept, -1)
        if principal is not None:
            mine = self._use_of[principal]
            mine.count(kept, -1)
            if not mine.lists:
                del self._use_of[principal]


def _is_refusal(problem: Exception) -> bool:
    """Return whether the upstream refused this caller, who may then no longer see the list of before.

    An error of JSON-RPC may mean that, unless it is an internal one.
    """
    if isinstance(problem, UpstreamError):
        return problem.code != InternalError.CODE
    reasons = (Reason.UNAUTHORIZED, Reason.FORBIDDEN, Reason.CREDENTIALS)
    return isinstance(problem, UpstreamFailure) and problem.reason in reasons
