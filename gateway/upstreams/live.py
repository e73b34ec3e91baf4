"""One upstream while it is served: its client with all limits, its lists, and the changes it announces."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

import msgspec

from gateway.errors import Overloaded
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.runtime.jitter import varied
from gateway.upstreams.breaker import Breaker
from gateway.upstreams.bulkhead import Bulkhead
from gateway.upstreams.config.definition import Definition
from gateway.upstreams.failures import NO_HOLDER, Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.guarded import GuardedClient, UpstreamClient
from gateway.upstreams.healing import Healing
from gateway.upstreams.lists.listing import (
    GATEWAY,
    PAGE_SECONDS,
    Listed,
    UnusableLists,
    discover,
    read_all,
)
from gateway.upstreams.lists.subscriptions import ChangeStream
from gateway.upstreams.served_entries import PartMaker, count_of

log = logging.getLogger(__name__)

GATHER_SECONDS: Final = 0.1
"""How long announced changes are gathered before the lists are read again."""

COALESCE_SECONDS: Final = 1.0
"""The shortest time between two readings, however often an upstream announces changes."""

SHORTEST_REFRESH_SECONDS: Final = 10.0
LONGEST_REFRESH_SECONDS: Final = 300.0
DEFAULT_REFRESH_SECONDS: Final = 60.0
"""How often lists are read again if the upstream neither says how long they stay valid nor announces changes."""

CONNECTIONS_TO_LISTEN: Final = 3
"""With fewer connections, changes are not listened for: a stream takes one, and another one while it is replaced."""

PROBE_SECONDS: Final = 5.0
"""How long an upstream may take to answer a probe of its breaker."""

_PROBER: Final = msgspec.structs.replace(GATEWAY, may_lack_token=True)

FIRST_RETRY_SECONDS: Final = 1.0
LONGEST_RETRY_SECONDS: Final = 60.0


class OpenUpstream(Protocol):
    """A client and what it holds open."""

    @property
    def client(self) -> UpstreamClient:
        """Sends requests."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class Live:
    """Serves one upstream: reads its lists, and makes its part. `changed` is called when there is another part.

    `announce` gets the exposed URI of a resource that may have changed; it is None if no client listens here.
    """

    def __init__(
        self,
        definition: Definition,
        connection: OpenUpstream,
        telemetry: UpstreamMetrics,
        *,
        make_parts: Callable[[GuardedClient], PartMaker],
        changed: Callable[[], None],
        announce: Callable[[str], None] | None,
    ) -> None:
        name = definition.name
        self.definition = definition
        self._connection = connection
        self._telemetry = telemetry
        self._changed = changed
        self._breaker = Breaker(self._can_be_reached, self._breaker_changed)
        self._bulkhead = Bulkhead(definition.max_in_flight, definition.rate, self._in_flight_changed)
        client = connection.client
        self._parts = make_parts(GuardedClient(name, client, self._breaker, self._bulkhead))
        self._subscriptions: ChangeStream | None = None
        self._is_known_to_callers_only = definition.credentials.kind == "token_exchange"
        can_listen = definition.max_connections >= CONNECTIONS_TO_LISTEN and not self._is_known_to_callers_only
        if announce is not None and can_listen:
            listen = functools.partial(client.listen, requester=GATEWAY)
            self._subscriptions = ChangeStream(
                name, listen, self.refresh_soon, lambda uri: announce(self._parts.exposed_uri(uri))
            )
        self._heal = Healing(name, telemetry)
        self._wanted = asyncio.Event()
        self._attempted = asyncio.Event()
        self._listed: Listed | None = None
        self._revision = 0
        self._problem = ""
        self._failures = 0
        self._is_retired = False
        self.part = self._parts.unlisted(self._attempted, self)

    @property
    def is_listening(self) -> bool:
        """Whether the upstream announces its changes now."""
        return self._subscriptions is not None and self._subscriptions.is_listening

    def refresh_soon(self) -> None:
        """Read the lists again soon. Several requests within a second cause one reading."""
        self._wanted.set()

    def watch(self, uri: str, caller: Hashable) -> None:
        """Announce changes of a resource to a caller, by its exposed URI, until as many calls of `unwatch`."""
        own = self._parts.upstream_uri(uri)
        if own is not None and self._subscriptions is not None:
            self._subscriptions.watch(own, caller)

    def unwatch(self, uri: str, caller: Hashable) -> None:
        """Undo one `watch`."""
        own = self._parts.upstream_uri(uri)
        if own is not None and self._subscriptions is not None:
            self._subscriptions.unwatch(own, caller)

    async def run(self) -> None:
        """Keep the lists up to date until cancelled, then close what is not in use. Calls that run are not cut off."""
        self._breaker_gauge(is_open=False)
        try:
            async with asyncio.TaskGroup() as tasks:
                if not self._is_known_to_callers_only:
                    tasks.create_task(self._keep_listed())
                tasks.create_task(self._breaker.run())
                if self._subscriptions is not None:
                    tasks.create_task(self._subscriptions.run())
                await asyncio.Event().wait()
        finally:
            self._is_retired = True
            await self._connection.aclose()

    async def _keep_listed(self) -> None:
        while True:
            if self._wanted.is_set():
                self._wanted.clear()
                self._parts.forget_lists()
            began = time.monotonic()
            succeeded = await self._refreshed()
            self._attempted.set()
            self._failures = 0 if succeeded else self._failures + 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._wanted.wait()
            if self._wanted.is_set():
                await asyncio.sleep(max(GATHER_SECONDS, began + COALESCE_SECONDS - time.monotonic()))

    def _pause(self) -> float:
        """Return how many seconds to wait before the lists are read again. It varies, so replicas spread out."""
        if self._failures:
            pause = min(FIRST_RETRY_SECONDS * float(2 ** min(self._failures - 1, 10)), LONGEST_RETRY_SECONDS)
            return varied(pause)
        ttl_ms = None if self._listed is None else self._listed.ttl_ms
        if ttl_ms is not None:
            return min(max(ttl_ms / 1000, SHORTEST_REFRESH_SECONDS), LONGEST_REFRESH_SECONDS)
        pause = LONGEST_REFRESH_SECONDS if self.is_listening else DEFAULT_REFRESH_SECONDS
        return varied(pause, 0.8)

    async def _refreshed(self) -> bool:
        """Read everything once, and return whether that succeeded."""
        try:
            return await self._refresh()
        except Exception:  # the last line of defence: a bug must not end the reading of these lists for good
            log.exception("lists of an upstream cannot be read", extra={"upstream": self.definition.name})
            self._telemetry.listed(self.definition.name, succeeded=False)
            return False

    async def _refresh(self) -> bool:
        """Read everything once; return whether that succeeded. If not, the lists of before stay in use."""
        name = self.definition.name
        try:
            discovered = await discover(self._ask, self._heal)
            by_caller = self.definition.depends_on_caller
            listed = (
                Listed.nothing(discovered)
                if by_caller
                else await read_all(name, self._ask, discovered, self._heal, turns=self._parts.turns)
            )
        except (UpstreamFailure, UpstreamError) as problem:
            if isinstance(problem, UnusableLists):  # the client counts all other failures
                self._telemetry.failed(name, problem.reason)
            self._telemetry.listed(name, succeeded=False)
            self._report(str(problem), "lists of an upstream cannot be read; those of before stay in use")
            return False
        self._telemetry.listed(name, succeeded=True)
        if self._problem:
            self._problem = ""
            log.info("lists of an upstream can be read again", extra={"upstream": name})
        if self._subscriptions is not None:
            self._subscriptions.discovered(discovered)
        revision = self._parts.revision
        if listed != self._listed or revision != self._revision:
            self.part = await self._parts.listed(listed, self)
            # What is not served is forgotten: equality goes by the digest.
            self._listed, self._revision = replace(listed, lists={}), revision
            served = count_of(self.part)
            self._telemetry.serves(name, served)
            log.info("lists of an upstream read", extra={"upstream": name, "entries": served})
            self._changed()
        return True

    def _report(self, reason: str, event: str) -> None:
        """Log a failure if it is another one than the last time."""
        if reason != self._problem:
            self._problem = reason
            log.warning(event, extra={"upstream": self.definition.name, "reason": reason})

    async def _ask(self, method: str, params: dict[str, Any]) -> Mapping[str, Any]:
        try:
            return await self._connection.client.request(
                method,
                params,
                requester=GATEWAY,
                seconds=min(self.definition.timeout_seconds, PAGE_SECONDS),
                max_bytes=self.definition.max_result_bytes,
            )
        except Overloaded:
            raise UpstreamFailure(self.definition.name, Reason.BUSY, sent=False, detail=NO_HOLDER) from None

    async def _can_be_reached(self) -> bool:
        client, limit = self._connection.client, self.definition.max_result_bytes
        try:
            await client.request(client.probe_method, {}, requester=_PROBER, seconds=PROBE_SECONDS, max_bytes=limit)
        except Overloaded:
            return False
        except UpstreamFailure as failure:
            return not failure.concerns_all
        except UpstreamError:
            pass  # it answers
        return True

    def _breaker_changed(self, is_open: bool) -> None:
        name = self.definition.name
        self._breaker_gauge(is_open=is_open)
        if is_open:
            log.warning("upstream fails repeatedly; calls are refused until a probe succeeds", extra={"upstream": name})
        else:
            log.info("upstream works again", extra={"upstream": name})

    def _breaker_gauge(self, *, is_open: bool) -> None:
        if not self._is_retired:  # the gauge belongs to the upstream that has the name now
            self._telemetry.breaker(self.definition.name, is_open=is_open)

    def _in_flight_changed(self, requests: int) -> None:
        if not self._is_retired:
            self._telemetry.in_flight(self.definition.name, requests)
