"""Listens to the changes that an upstream announces: of its lists, and of the resources that clients subscribe to."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from gateway.runtime.jitter import varied
from gateway.upstreams.failures import UpstreamError, UpstreamFailure
from gateway.upstreams.lists.listing import Discovered
from gateway.upstreams.ports import Changes

log = logging.getLogger(__name__)

MAX_URIS: Final = 1_000
"""How many resources of one upstream are subscribed to at once. Changes of further ones are not announced: they are the
last ones of the callers that watch most."""

MAX_TRIALS: Final = 40
"""How many streams may be opened to find out which resources an upstream refuses. One of 1,000 takes about 20."""

GATHER_SECONDS: Final = 0.05
"""How long changed subscriptions are gathered before the upstream is asked again."""

UNDER_WAY_SECONDS: Final = 0.05
"""How long changes may take that an upstream announced on a stream before it acknowledged the next one."""

FIRST_RETRY_SECONDS: Final = 1.0
LONGEST_RETRY_SECONDS: Final = 60.0
STEADY_SECONDS: Final = 30.0
"""A stream that stays open this long was a success, so the next one is opened again soon."""

Listen: TypeAlias = Callable[[dict[str, Any]], AbstractAsyncContextManager[Changes]]
"""Opens a `subscriptions/listen` stream with a filter. Entering it ends with the upstream's acknowledgement."""

_Followed: TypeAlias = tuple[Hashable, str]
"""A caller and a resource."""

_LISTS: Final = ("tools", "prompts", "resources")
_LIST_CHANGED: Final = frozenset(f"notifications/{name}/list_changed" for name in _LISTS)
_RESOURCES: Final = "resourceSubscriptions"
_UPDATED: Final = "notifications/resources/updated"


@dataclass(frozen=True, slots=True)
class _Stream:
    wanted: dict[str, Any]
    task: asyncio.Task[None]


class ChangeStream:
    """Keeps one `subscriptions/listen` stream to an upstream open (MCP 2026-07-28, "Subscriptions").

    If the stream breaks, it is opened again, with pauses that grow. Then everything may have changed meanwhile, so all
    of it is announced. To change what it listens for, a new stream is opened before the old one ends, so that nothing
    is missed. `updated` gets the upstream's own URI.

    An upstream should acknowledge what it can follow. If it refuses a whole stream instead, the resources that it
    refuses are left out, and new ones of the callers that named them. After a while, they are tried again.
    """

    def __init__(
        self, upstream: str, listen: Listen, lists_changed: Callable[[], None], updated: Callable[[str], None]
    ) -> None:
        self._upstream = upstream
        self._listen = listen
        self._lists_changed = lists_changed
        self._updated = updated
        self._discovered = Discovered()
        self._uris: Counter[str] = Counter()
        self._uris_of: dict[Hashable, Counter[str]] = {}
        self._accepted: dict[Hashable, AbstractSet[str]] = {}  # of the callers of whom something was refused
        self._trying_again: asyncio.TimerHandle | None = None
        self._trial_pause = FIRST_RETRY_SECONDS
        self._tried_at = -math.inf
        self._look_again = asyncio.Event()
        self._streams: set[asyncio.Task[None]] = set()
        self._has_missed = False
        self._is_rejected = False
        self.is_listening = False
        self._current: _Stream | None = None
        self._opened_at = 0.0
        self._pause = FIRST_RETRY_SECONDS

    def discovered(self, discovered: Discovered) -> None:
        """Take note of what the upstream can announce."""
        if discovered.capabilities != self._discovered.capabilities:
            self._look_again.set()
        self._discovered = discovered

    def watch(self, uri: str, caller: Hashable) -> None:
        """Listen for changes of a resource, by the upstream's own URI, until as many calls of `unwatch`."""
        own = self._uris_of.setdefault(caller, Counter())
        for uris in (self._uris, own):
            uris[uri] += 1
        if own[uri] == 1:
            self._look_again.set()

    def unwatch(self, uri: str, caller: Hashable) -> None:
        """Undo one `watch`."""
        own = self._uris_of[caller]
        for uris in (self._uris, own):
            uris[uri] -= 1
            if not uris[uri]:
                del uris[uri]
                self._look_again.set()
        if not own:
            del self._uris_of[caller]

    async def run(self) -> None:
        """Listen until cancelled."""
        try:
            while True:
                self._look_again.clear()
                wanted = self._wanted()
                current = self._current
                if current is not None and current.task.done():
                    await self._recover()
                elif not wanted:
                    await self._replace(None)
                    await self._look_again.wait()
                elif current is None or current.wanted != wanted:
                    await self._listen_to(wanted)
                else:
                    await self._news(current)
        finally:
            if self._trying_again is not None:
                self._trying_again.cancel()
            for task in self._streams:
                task.cancel()
            if self._streams:
                await asyncio.wait(self._streams)

    async def _recover(self) -> None:
        """Pause after a stream has ended."""
        self.is_listening = False
        self._has_missed = True
        if asyncio.get_running_loop().time() - self._opened_at >= STEADY_SECONDS:
            self._pause = FIRST_RETRY_SECONDS
        self._current = None
        await self._rest()

    async def _listen_to(self, wanted: dict[str, Any]) -> None:
        """Open a stream, and end the older one if there is one. Pause if that fails."""
        newer = await self._open(wanted)
        if newer is None and self._is_rejected and _RESOURCES in wanted:
            trial = await self._leave_out_refused()
            try:
                wanted = self._wanted()
                if not wanted or (self._current is not None and self._current.wanted == wanted):
                    return
                newer = await self._open(wanted)
            finally:
                await _end(trial)
        if newer is None:
            await self._rest()
            return
        await self._replace(newer)
        self._opened_at = asyncio.get_running_loop().time()
        self._catch_up()

    def _wanted(self) -> dict[str, Any]:
        """Return the filter to listen with; it is empty if there is nothing to listen for."""
        offers = self._discovered.offers
        wanted: dict[str, Any] = {f"{name}ListChanged": True for name in _LISTS if offers(name, "listChanged")}
        shared = self._shared() if offers("resources", "subscribe") else ()
        return {**wanted, _RESOURCES: sorted(shared)} if shared else wanted

    def _shared(self) -> Collection[str]:
        """Return the resources to subscribe to. Of too many, callers get one each in turn, their oldest first."""
        if len(self._uris) <= MAX_URIS and not self._accepted:
            return self._uris
        chosen: dict[str, None] = {}
        for turn in itertools.zip_longest(*map(self._wanted_by, self._uris_of)):
            for uri in turn:
                if uri is not None:
                    chosen[uri] = None
                if len(chosen) == MAX_URIS:
                    return chosen
        return chosen

    def _wanted_by(self, caller: Hashable) -> list[str]:
        """Return the resources of a caller, without those that the upstream refuses."""
        own, accepted = self._uris_of[caller], self._accepted.get(caller)
        return [uri for uri in own if accepted is None or uri in accepted]

    async def _leave_out_refused(self) -> _Stream | None:
        """Find out which resources the upstream refuses, adding fewer and fewer. They are tried again later.

        Return the last stream that the upstream accepted. It stays open, so that no change is missed until another one
        is: each of these streams listens for all that the one before listened for.
        """
        last: _Stream | None = None
        shared = set(self._shared())
        followed = [(caller, uri) for caller in self._uris_of for uri in self._wanted_by(caller) if uri in shared]
        untried, accepted, trials = deque(_halves(followed)), set[_Followed](), MAX_TRIALS
        while untried and trials:
            some, trials = untried.popleft(), trials - 1
            trial = await self._open({_RESOURCES: sorted({uri for _, uri in (*accepted, *some)})})
            if trial is not None:
                await _end(last)
                last = trial
                accepted.update(some)
            elif not self._is_rejected:
                break  # it cannot be asked now
            else:
                untried.extend(_halves(some))
        for caller in {caller for caller, uri in followed if (caller, uri) not in accepted}:
            self._accepted[caller] = {uri for each, uri in accepted if each == caller}
        self._try_again_later()
        return last

    def _try_again_later(self) -> None:
        """Let resources that were left out be tried again after a pause. It grows, unless the last one was long ago."""
        loop = asyncio.get_running_loop()
        if self._trying_again is not None:
            return
        if loop.time() - self._tried_at > 2 * LONGEST_RETRY_SECONDS:
            self._trial_pause = FIRST_RETRY_SECONDS
        self._tried_at = loop.time()
        self._trying_again = loop.call_later(varied(self._trial_pause), self._try_again)
        self._trial_pause = min(2 * self._trial_pause, LONGEST_RETRY_SECONDS)

    def _try_again(self) -> None:
        self._accepted, self._trying_again = {}, None
        self._has_missed = True
        self._look_again.set()

    async def _open(self, wanted: dict[str, Any]) -> _Stream | None:
        """Open a stream; return None if the upstream does not acknowledge it."""
        opened = asyncio.Event()
        self._is_rejected = False
        task = asyncio.create_task(self._receive(wanted, opened))
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)
        waiting = asyncio.create_task(opened.wait())
        try:
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        return _Stream(wanted, task) if opened.is_set() else None

    async def _replace(self, newer: _Stream | None) -> None:
        older, self._current = self._current, newer
        await _end(older)
        self.is_listening = newer is not None

    async def _receive(self, wanted: dict[str, Any], opened: asyncio.Event) -> None:
        try:
            async with self._listen(wanted) as notices:
                opened.set()
                async for method, params in notices:
                    self._take(method, params)
        except (UpstreamFailure, UpstreamError) as failure:
            self._is_rejected = isinstance(failure, UpstreamError) and not opened.is_set()
            log.debug("stream of changes ended", extra={"upstream": self._upstream, "reason": str(failure)})

    def _take(self, method: str, params: dict[str, Any]) -> None:
        if method in _LIST_CHANGED:
            self._lists_changed()
        elif method == _UPDATED:
            uri = params.get("uri")
            if isinstance(uri, str) and uri in self._uris:
                self._updated(uri)

    def _catch_up(self) -> None:
        """Announce everything, if changes may have been missed."""
        if self._has_missed:
            self._has_missed = False
            self._lists_changed()
            for uri in list(self._uris):
                self._updated(uri)

    async def _news(self, current: _Stream) -> None:
        """Wait until there is something else to listen for, or the stream has ended."""
        looking = asyncio.create_task(self._look_again.wait())
        try:
            await asyncio.wait({looking, current.task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            looking.cancel()
        if self._look_again.is_set():
            await asyncio.sleep(GATHER_SECONDS)

    async def _rest(self) -> None:
        """Pause before the next attempt. Random pauses keep replicas from returning all at once."""
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_RETRY_SECONDS)
        await asyncio.sleep(varied(pause))


async def _end(stream: _Stream | None) -> None:
    """End a stream when another one is open. Changes that came before that one may still be under way on it."""
    if stream is not None:
        await asyncio.wait({stream.task}, timeout=UNDER_WAY_SECONDS)
        stream.task.cancel()
        await asyncio.wait({stream.task})


def _halves(some: list[_Followed]) -> list[list[_Followed]]:
    """Return two parts of what callers follow: each with other callers, or with half of the resources of one.

    One resource has no parts.
    """
    callers = list(dict.fromkeys(caller for caller, _ in some))
    if len(callers) > 1:
        first = set(callers[: len(callers) // 2])
        return [[each for each in some if (each[0] in first) is is_first] for is_first in (True, False)]
    half = len(some) // 2
    return [some[:half], some[half:]] if half else []
