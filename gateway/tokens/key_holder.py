"""The seal keys of one process. Nothing else changes while it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from gateway.runtime.sources import Clock, RandomBytes
from gateway.sealing.call_id import CallIds
from gateway.sealing.envelope import Sealer
from gateway.sealing.keyring import KeyRing
from gateway.sealing.list_cursor import CursorMaker

log = logging.getLogger(__name__)


class KeyHolder:
    """Holds the current keys, and everything else that a process needs to seal and open.

    Read `current` when a leg, a message or an access to the store begins, and drop it at the end. Nothing else may keep
    a key, or anything made from one.

    A sealer counts its seals without a lock, so seal and open only on the event loop's thread.

    Attributes:
        call_ids: derives the ids of calls that a trusted proxy may begin twice.
        audience: the name that all processes of the deployment share; everything sealed is bound to it.
        clock: seconds since the epoch.
        random_bytes: a source of strong randomness.
    """

    __slots__ = ("_ring", "_watchers", "audience", "call_ids", "clock", "current", "cursors", "random_bytes")

    def __init__(self, ring: KeyRing, audience: str, *, clock: Clock, random_bytes: RandomBytes) -> None:
        self.audience = audience
        self.clock = clock
        self.random_bytes = random_bytes
        self._watchers: list[Callable[[Sequence[str]], object]] = []
        self._use(ring)

    @property
    def key_ids(self) -> list[str]:
        """The ids of the keys in use, the sealing one first."""
        return [key.key_id.hex() for key in self._ring.keys]

    @property
    def folder_names(self) -> list[str]:
        """The names of the folders that processes of this host may share, that of the sealing key first."""
        return [key.folder_name(self.audience) for key in self._ring.keys]

    def replace(self, ring: KeyRing) -> None:
        """Use these keys from now on; an equal ring changes nothing."""
        if ring == self._ring:
            return
        self._use(ring)
        log.info("seal keys replaced", extra={"key_ids": ", ".join(self.key_ids)})
        for watcher in self._watchers:
            watcher(self.key_ids)

    def show(self, show: Callable[[Sequence[str]], object]) -> None:
        """Call `show` with the ids of the keys in use, the sealing one first: now, and after each change."""
        self._watchers.append(show)
        show(self.key_ids)

    def _use(self, ring: KeyRing) -> None:
        self._ring = ring
        self.current = Sealer(ring, self.random_bytes)
        self.cursors = CursorMaker(ring)
        self.call_ids = CallIds(ring)
