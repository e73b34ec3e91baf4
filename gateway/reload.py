"""Re-reads tool modules when their files change, for `gateway serve --reload`."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from types import ModuleType

from gateway.authoring.lifespans import open_all
from gateway.authoring.registry import load_registry
from gateway.bootstrap import Services
from gateway.errors import ConfigurationError

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5

Snapshot = dict[Path, tuple[int, int]]


class Reloader:
    """Watches the files of the tool modules, of their packages' submodules too.

    A change that cannot be served is told in the log, and what was served before stays. Legs in flight go on
    with what they began with; lifespans that the new modules define are opened, those of the old ones stay open
    until the process ends.

    Args:
        services: whose dispatcher takes the new catalogue.
        modules: the names of the tool modules.
    """

    def __init__(self, services: Services, modules: Iterable[str]) -> None:
        self._services = services
        self._names = tuple(modules)
        self._snapshot = self._look()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch while the context is open."""
        async with contextlib.AsyncExitStack() as stack:
            task = asyncio.create_task(self._watch(stack))
            try:
                yield
            finally:
                task.cancel()
                await asyncio.wait({task})

    async def _watch(self, stack: contextlib.AsyncExitStack) -> None:
        log.info("watching tool modules", extra={"files": len(self._snapshot)})
        while True:
            await asyncio.sleep(POLL_SECONDS)
            seen = self._look()
            if seen != self._snapshot:
                self._snapshot = seen
                await self._reload(stack)
                self._snapshot = self._look()

    async def _reload(self, stack: contextlib.AsyncExitStack) -> None:
        old = {name: sys.modules.pop(name) for name in self._loaded()}
        importlib.invalidate_caches()
        try:
            registry = load_registry(self._names)
            await stack.enter_async_context(open_all(registry.lifespans))
        except Exception as error:
            for name in self._loaded():
                del sys.modules[name]
            sys.modules.update(old)
            log.error(  # noqa: TRY400 - a broken module is the author's news, told without a trace
                "not reloaded; serving what was there before",
                extra={"reason": str(error)},
                exc_info=None if isinstance(error, ConfigurationError) else error,
            )
            return
        self._services.dispatcher.replace(self._services.catalogue_of(registry))
        log.info("reloaded", extra={"tools": len(registry.tools), "prompts": len(registry.prompts)})

    def _loaded(self) -> list[str]:
        prefixes = tuple(f"{name}." for name in self._names)
        return [name for name in sys.modules if name in self._names or name.startswith(prefixes)]

    def _look(self) -> Snapshot:
        snapshot: Snapshot = {}
        for name in self._loaded():
            path = _file_of(sys.modules[name])
            if path is not None:
                with contextlib.suppress(OSError):
                    state = path.stat()
                    snapshot[path] = (state.st_mtime_ns, state.st_size)
        return snapshot


def _file_of(module: ModuleType) -> Path | None:
    return None if module.__spec__ is None or module.__spec__.origin is None else Path(module.__spec__.origin)
