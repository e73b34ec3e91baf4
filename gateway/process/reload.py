"""Re-reads tool modules when their files change, for `--reload` of `gateway serve`, `worker` and `dev`."""

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
from gateway.authoring.modules import folders_of, loaded_from, module_name
from gateway.authoring.registry import Registry
from gateway.errors import ConfigurationError
from gateway.runtime.background import task_running

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5

Snapshot = dict[Path, tuple[int, int]]


class Reloader:
    """Watches the files of the tool modules, of their packages' submodules too, and the modules beside a tool file.

    A change that cannot be served is told in the log, and what was served before stays. Legs in flight go on
    with what they began with; lifespans that the new modules define are opened, those of the old ones stay open
    until the process ends.

    Args:
        modules: the names of the tool modules, or the paths of their files; they have been imported.
        load: imports them again; raises whatever is wrong with them.
        take: called with what they define now.
    """

    def __init__(self, modules: Iterable[str], load: Callable[[], Registry], take: Callable[[Registry], None]) -> None:
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
            registry = self._load()
            await stack.enter_async_context(open_all(registry.lifespans))
        except Exception as error:
            for name in self._loaded():
                del sys.modules[name]
            sys.modules.update(old)
            self._is_refused = True
            log.error(  # noqa: TRY400 - a broken module is the author's news, told without a trace
                "not reloaded; serving what was there before",
                extra={"reason": str(error)},
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
        if self._is_refused:  # the reason may be in a new file beside it, which is loaded nowhere
            paths |= {path for folder in self._folders for path in Path(folder).glob("*.py")}
        snapshot: Snapshot = {}
        for path in paths:
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
