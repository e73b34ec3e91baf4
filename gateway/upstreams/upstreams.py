"""All upstreams of a process. When the operator's file changes, only those that it changes are replaced."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TypeAlias

from gateway.registry.parts import Part
from gateway.upstreams.config.definition import Definition
from gateway.upstreams.live import Live

MakeLive: TypeAlias = Callable[[Definition, Callable[[], None]], Live]
"""Makes a live upstream. It gets what to call when its part changes."""

OnChange: TypeAlias = Callable[[Sequence[Part]], None]


class Upstreams:
    """Serves the upstreams that the operator's file names.

    Their entries are listed in the order of `definitions`. `make` makes a live upstream, which must not connect yet.
    `forget` is called with the name of an upstream that is no longer served.

    Attributes:
        on_change: called with all parts when one of them is another one. Requests that arrive later must see them.
    """

    def __init__(
        self, definitions: Iterable[Definition], make: MakeLive, forget: Callable[[str], None] = lambda _name: None
    ) -> None:
        self.on_change: OnChange = lambda _parts: None
        self._make = make
        self._forget = forget
        self._running: dict[str, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_running = False
        self._live = {definition.name: make(definition, self._changed) for definition in definitions}

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

        One whose definition is the same is left alone. Calls that run at another one end undisturbed. If `make` raises,
        everything stays as it is.
        """
        served = list(definitions)
        kept = {name: live for name, live in self._live.items() if live.definition in served}
        made = {each.name: self._make(each, self._changed) for each in served if each.name not in kept}
        before = self._live
        self._live = {each.name: kept.get(each.name) or made[each.name] for each in served}
        for name in before.keys() - kept.keys():
            self._stop(name)
            if name not in self._live:
                self._forget(name)
        for name, live in made.items():
            self._start(name, live)
        self._changed()

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
