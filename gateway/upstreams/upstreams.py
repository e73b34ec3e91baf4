"""All upstreams of a process. When the operator's file changes, only those that it changes are replaced."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TypeAlias

from gateway.authoring.parts import Part, Watcher
from gateway.upstreams.definition import Definition
from gateway.upstreams.live import Live

MakeLive: TypeAlias = Callable[[Definition, Callable[[], None], Watcher], Live]
"""Makes a live upstream. It gets what to call when its part changes, and the watcher of its part."""

OnChange: TypeAlias = Callable[[Sequence[Part]], None]


class Upstreams:
    """Serves the upstreams that the operator's file names.

    Args:
        definitions: the upstreams, in the order in which their entries are listed.
        make: makes a live upstream. It must not connect yet.
        forget: called with the name of an upstream that is no longer served.

    Attributes:
        on_change: called with all parts when one of them is another one. Requests that arrive later must see them.
    """

    def __init__(
        self, definitions: Iterable[Definition], make: MakeLive, forget: Callable[[str], None] = lambda _name: None
    ) -> None:
        self.on_change: OnChange = lambda _parts: None
        self._make = make
        self._forget = forget
        self._watching: dict[str, _Watching] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_running = False
        self._live = {definition.name: self._made(definition) for definition in definitions}

    @property
    def parts(self) -> list[Part]:
        """The parts of all upstreams, in order."""
        return [live.part for live in self._live.values()]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the lists of all upstreams up to date while the context is open. It opens without waiting for them."""
        self._is_running = True
        for name, live in self._live.items():
            self._start(name, live)
        try:
            yield
        finally:
            self._is_running = False
            for name in list(self._running):
                self._stop(name)
            if self._ending:
                await asyncio.wait(self._ending)

    def replace(self, definitions: Iterable[Definition]) -> None:
        """Serve other upstreams from now on.

        One whose definition is the same goes on as it is. Calls that run at another one end undisturbed.
        """
        before = self._live
        self._live = {}
        for definition in definitions:
            live = before.pop(definition.name, None)
            if live is not None and live.definition == definition:
                self._live[definition.name] = live
                continue
            self._stop(definition.name)
            self._live[definition.name] = made = self._made(definition)
            self._start(definition.name, made)
        for name in before:
            self._stop(name)
            self._watching.pop(name).target = None
            self._forget(name)
        self._changed()

    def _made(self, definition: Definition) -> Live:
        watching = self._watching.setdefault(definition.name, _Watching())
        live = self._make(definition, self._changed, watching)
        watching.follow(live)
        return live

    def _start(self, name: str, live: Live) -> None:
        if self._is_running:
            self._running[name] = asyncio.create_task(live.run())

    def _stop(self, name: str) -> None:
        task = self._running.pop(name, None)
        if task is not None:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            task.cancel()

    def _changed(self) -> None:
        self.on_change(self.parts)


class _Watching:
    """The resources that clients follow, for the upstream that has a name now. It survives a new definition."""

    def __init__(self) -> None:
        self.target: Live | None = None
        self._uris: Counter[str] = Counter()

    def follow(self, live: Live) -> None:
        """Ask another upstream from now on."""
        self.target = live
        for uri in self._uris.elements():
            live.watch(uri)

    def watch(self, uri: str, /) -> None:
        """Start to follow a resource, by its exposed URI."""
        self._uris[uri] += 1
        if self.target is not None:
            self.target.watch(uri)

    def unwatch(self, uri: str, /) -> None:
        """Stop following a resource."""
        self._uris[uri] -= 1
        if self._uris[uri] <= 0:
            del self._uris[uri]
        if self.target is not None:
            self.target.unwatch(uri)
