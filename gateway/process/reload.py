"""Reloads tool modules when their files change, for `--reload` of `gateway serve`, `worker` and `dev`."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import ModuleType

from gateway.authoring.lifespans import open_all
from gateway.errors import ConfigurationError
from gateway.registry.modules import folders_of, loaded_from, module_name
from gateway.registry.registry import Registry
from gateway.runtime.background import task_running

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5

Snapshot = dict[Path, tuple[int, int]]


class Reloader:
    """Watches the files of tool modules, of the submodules of their packages, and of modules next to a tool file.

    If a change cannot be loaded, the log says so and the previous tools stay in use. Running legs keep the tools that
    they started with. Lifespans of the new modules are opened; those of the old ones stay open until the process ends.

    The modules must be imported already; `load` imports them again, and raises if anything is wrong with them.
    """

    def __init__(
        self, modules: Iterable[str], load: Callable[[], Registry], take: Callable[[Registry], object]
    ) -> None:
        entries = tuple(modules)
        self._names = tuple(module_name(entry) for entry in entries)
        self._folders = folders_of(entries)
        self._is_refused = False
        self._load = load
        self._take = take
        self._snapshot = self._look()

    def running(self) -> AbstractAsyncContextManager[None]:
        """Watch while the context is open."""
        return task_running(self._watch())

    async def _watch(self) -> None:
        log.info("watching tool modules", extra={"files": len(self._snapshot)})
        # The task that opens a lifespan also closes it, as task groups require.
        async with contextlib.AsyncExitStack() as stack:
            while True:
                await asyncio.sleep(POLL_SECONDS)
                seen = self._look()
                if seen != self._snapshot:
                    _forget_bytecode(seen)
                    await self._reload(stack)
                    # Keep the earlier state of known files, so a change during the reload is noticed. Only files that
                    # appeared with the reload get their current state.
                    self._snapshot = {path: seen.get(path, state) for path, state in self._look().items()}

    async def _reload(self, stack: contextlib.AsyncExitStack) -> None:
        old = {name: sys.modules.pop(name) for name in self._loaded()}
        importlib.invalidate_caches()
        try:
            registry = self._load()
            await stack.enter_async_context(open_all(registry.lifespans))
        except Exception as error:
            for name in self._loaded():
                del sys.modules[name]
            sys.modules.update(old)
            self._is_refused = True
            log.exception(
                "reload failed; the previous tools stay in use",
                extra={"reason": str(error)},
                # The author needs the reason, not a traceback of the gateway.
                exc_info=None if isinstance(error, ConfigurationError) else error,
            )
            return
        self._is_refused = False
        self._take(registry)
        log.info("reloaded", extra={"tools": len(registry.tools), "prompts": len(registry.prompts)})

    def _loaded(self) -> list[str]:
        prefixes = tuple(f"{name}." for name in self._names)
        beside = set(loaded_from(self._folders))
        return [name for name in sys.modules if name in self._names or name.startswith(prefixes) or name in beside]

    def _look(self) -> Snapshot:
        paths = {path for name in self._loaded() for path in _files_of(sys.modules[name])}
        if self._is_refused:  # the reason may be in a new file next to a tool file, which was never loaded
            paths |= {path for folder in self._folders for path in Path(folder).glob("*.py")}
        snapshot: Snapshot = {}
        for path in paths:
            with contextlib.suppress(OSError):
                state = path.stat()
                snapshot[path] = (state.st_mtime_ns, state.st_size)
        return snapshot


def _files_of(module: ModuleType) -> Iterator[Path]:
    """Yield the module's file and, for a package, all its files, since a file that failed to import is not a module."""
    spec = module.__spec__
    if spec is None:
        return
    if spec.origin is not None:
        yield Path(spec.origin)
    for folder in spec.submodule_search_locations or ():
        yield from Path(folder).rglob("*.py")


def _forget_bytecode(sources: Iterable[Path]) -> None:
    """Remove cached bytecode, since Python does not notice an edit of the same size within the same second."""
    for source in sources:
        with contextlib.suppress(OSError, NotImplementedError):
            Path(importlib.util.cache_from_source(str(source))).unlink(missing_ok=True)
