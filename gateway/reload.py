"""Re-reads tool modules when their files change, for `gateway serve --reload`."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import logging
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from types import ModuleType

from gateway.authoring.lifespans import open_all
from gateway.bootstrap import Services
from gateway.errors import ConfigurationError
from gateway.preflight import load_tools

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
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _watch(self) -> None:
        log.info("watching tool modules", extra={"files": len(self._snapshot)})
        # Lifespans close in the task that opened them: that is a rule of task groups and the like.
        async with contextlib.AsyncExitStack() as stack:
            while True:
                await asyncio.sleep(POLL_SECONDS)
                seen = self._look()
                if seen != self._snapshot:
                    _forget_bytecode(seen)
                    await self._reload(stack)
                    # What changed meanwhile is a change still; only files that are new to us count as they are now.
                    self._snapshot = {path: seen.get(path, state) for path, state in self._look().items()}

    async def _reload(self, stack: contextlib.AsyncExitStack) -> None:
        old = {name: sys.modules.pop(name) for name in self._loaded()}
        importlib.invalidate_caches()
        try:
            registry = load_tools(self._services.settings)
            self._services.wires.check(registry)
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
        # Made anew: the keys of its cursors may have changed meanwhile.
        self._services.wires.serve(registry)
        log.info("reloaded", extra={"tools": len(registry.tools), "prompts": len(registry.prompts)})

    def _loaded(self) -> list[str]:
        prefixes = tuple(f"{name}." for name in self._names)
        return [name for name in sys.modules if name in self._names or name.startswith(prefixes)]

    def _look(self) -> Snapshot:
        snapshot: Snapshot = {}
        for name in self._loaded():
            for path in _files_of(sys.modules[name]):
                with contextlib.suppress(OSError):
                    state = path.stat()
                    snapshot[path] = (state.st_mtime_ns, state.st_size)
        return snapshot


def _files_of(module: ModuleType) -> Iterator[Path]:
    """Give the module's file, and all files of a package: one that failed to import is loaded nowhere."""
    spec = module.__spec__
    if spec is None:
        return
    if spec.origin is not None:
        yield Path(spec.origin)
    for folder in spec.submodule_search_locations or ():
        yield from Path(folder).rglob("*.py")


def _forget_bytecode(sources: Iterable[Path]) -> None:
    """Remove cached bytecode: Python takes an edit of the same size in the same second for none."""
    for source in sources:
        with contextlib.suppress(OSError, NotImplementedError):
            Path(importlib.util.cache_from_source(str(source))).unlink(missing_ok=True)
