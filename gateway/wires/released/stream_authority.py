"""The authority of a `subscriptions/listen` stream, judged again with each registry."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.calls.authority import Authorities
from gateway.calls.task_access import scopes_of
from gateway.protocol.caller import Caller
from gateway.registry.registry import Registry
from gateway.tasks.model import TaskView
from gateway.wires.watches import Watches

URIS_AT_ONCE: Final = 2
"""How many URIs of a stream are judged in one turn. To judge a long one takes a few milliseconds."""


@dataclass(frozen=True, slots=True)
class WatchedResource:
    """A resource of a stream.

    Attributes:
        uri: as its changes are announced: clients may spell it in another way.
        upstream: the part that serves it.
        scopes: what callers needed when the stream opened.
    """

    uri: str
    upstream: str
    scopes: frozenset[str]


class StreamAuthority:
    """Knows whether the caller of one stream may still have it, and of which resources it may still learn.

    The resources are looked up once in each registry, a few in each turn: one caller may listen to thousands. Until
    that is done, `judged` waits, and the stream may send nothing. Use it only on the event loop.
    """

    def __init__(
        self,
        caller: Caller,
        resources: Mapping[str, WatchedResource],
        tasks: Sequence[TaskView],
        registry: Registry,
        *,
        turn: Callable[[], Awaitable[None]],
        watches: Watches,
    ) -> None:
        self.caller = caller
        self._resources = resources
        self._tasks = tasks
        self._turn = turn
        self._watches = watches
        self._served = registry
        self._judged = registry
        self._scopes = {uri: each.scopes for uri, each in resources.items()}
        self._judging: asyncio.Task[None] | None = None

    def needs(self, registry: Registry) -> frozenset[str]:
        """Return the scopes that the stream requires with the registry that is served now, as far as it is judged."""
        self._served = registry
        if registry is not self._judged and self._judging is None:
            self._judging = asyncio.create_task(self._judge())
        return _union((*self._scopes.values(), *(scopes_of(task, registry) for task in self._tasks)))

    async def judged(self) -> None:
        """Wait until the resources are judged by the registry that is served now.

        If they are, this returns without yielding to other tasks.
        """
        while self._judging is not None:
            await asyncio.shield(self._judging)

    def serves(self, uri: str) -> bool:
        """Return whether a resource, by the client's URI, was still served when it was last judged."""
        return uri in self._scopes

    @contextlib.contextmanager
    def watching(self, authorities: Authorities, end: Callable[[], None]) -> Iterator[None]:
        """While the context is open, watch the resources, and call `end` as soon as the caller's authority ends."""
        upstreams = {each.uri: each.upstream for each in self._resources.values()}
        with (
            authorities.watching(self.caller, self.needs, end) as self._standing,
            self._watches.listening(upstreams, self.caller.principal),
        ):
            try:
                yield
            finally:
                if self._judging is not None:
                    self._judging.cancel()

    async def _judge(self) -> None:
        while (registry := self._served) is not self._judged:
            scopes: dict[str, frozenset[str]] = {}
            for number, (uri, watched) in enumerate(self._resources.items()):
                if number % URIS_AT_ONCE == 0:
                    await self._turn()
                if registry is not self._served:
                    break
                found = registry.find_resource(uri)
                resource = None if found is None else found[0]
                self._watches.follow(watched.uri, self.caller.principal, resource)
                if resource is not None:
                    scopes[uri] = resource.scopes
            else:
                self._judged, self._scopes = registry, scopes
        self._judging = None
        self._standing.look()


def _union(scopes: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*scopes)
