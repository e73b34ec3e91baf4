"""Reads the file of upstreams again when it changes, and logs what it says that operators should know."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from gateway.runtime.file_watcher import POLL_SECONDS, FileWatcher
from gateway.upstreams.config.definition import UpstreamFile
from gateway.upstreams.config.reading import UpstreamReader

log = logging.getLogger(__name__)

SETTING = "GATEWAY_UPSTREAMS"


class UpstreamWatcher:
    """Watches a file of upstreams and the files that it refers to.

    A change that cannot be used is logged, and the current upstreams stay in use. The reader has read the file once,
    with `current` as its result. `take` is called on the event loop with what the file says now, if that differs from
    before.
    """

    def __init__(
        self,
        reader: UpstreamReader,
        current: UpstreamFile,
        take: Callable[[UpstreamFile], None],
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._current = current
        self._take = take
        self._watcher = FileWatcher(
            SETTING,
            reader.path,
            reader.parse,
            self._changed,
            poll_seconds,
            also=lambda: reader.files,
            refusal="file of upstreams rejected; the current upstreams stay in use",
        )

    def running(self) -> AbstractAsyncContextManager[None]:
        """Watch while the context is open."""
        return self._watcher.running()

    async def look(self) -> None:
        """Look at the files once. A change counts when two looks agree."""
        await self._watcher.look()

    def _changed(self, found: UpstreamFile) -> None:
        if found == self._current:
            return
        self._current = found
        log_file(found)
        self._take(found)


def log_file(found: UpstreamFile) -> None:
    """Log which lock files are old, and what has no effect."""
    for definition in found.definitions:
        if definition.pinned.is_old:
            log.warning(
                "an older release wrote the lock file, which pins only tools; check the upstream, and run "
                "`gateway upstreams pin`",
                extra={"upstream": definition.name, "pin": definition.pin},
            )
    for note in found.notes:
        log.info("file of upstreams", extra={"note": note})
