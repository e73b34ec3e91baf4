"""Which resources of upstreams clients listen to, so that each upstream is asked for their changes once."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import TypeAlias

from gateway.registry.parts import Part, Watcher
from gateway.registry.registry import Registry

_Followed: TypeAlias = tuple[str, Hashable]
"""A resource, by its exposed URI, and the caller that listens to it; the anonymous one is None."""


class Watches:
    """Counts the listeners of each caller to each resource, and informs its part of the first and the last one.

    Use it only on the event loop.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._listeners: Counter[_Followed] = Counter()
        self._watchers: dict[_Followed, Watcher] = {}

    def serve(self, registry: Registry) -> None:
        """Use a new registry from now on. Resources whose part has another watcher are handed over to it."""
        before, self._registry = self._registry, registry
        if _watchers(before) != _watchers(registry):
            for followed in self._listeners:
                self._follow(followed, self._watcher_of(followed[0]))

    @contextlib.contextmanager
    def listening(self, uris: Mapping[str, str], caller: Hashable) -> Iterator[None]:
        """Count one listener of a caller to each of these resources while the context is open.

        Their changes are announced; the values name the parts that serve them, so that they are not looked up again.
        """
        for uri, name in uris.items():
            followed = uri, caller
            self._listeners[followed] += 1
            if self._listeners[followed] == 1:
                self._follow(followed, _watcher(self._registry.part_named(name)))
        try:
            yield
        finally:
            for uri in uris:
                followed = uri, caller
                self._listeners[followed] -= 1
                if not self._listeners[followed]:
                    del self._listeners[followed]
                    self._follow(followed, None)

    def _follow(self, followed: _Followed, watcher: Watcher | None) -> None:
        """Let this watcher follow a resource for a caller, and no other."""
        before = self._watchers.get(followed)
        if before is watcher:
            return
        if before is not None:
            del self._watchers[followed]
            before.unwatch(*followed)
        if watcher is not None:
            self._watchers[followed] = watcher
            watcher.watch(*followed)

    def _watcher_of(self, uri: str) -> Watcher | None:
        found = self._registry.find_resource(uri)
        if found is None or not found[0].announces_changes:
            return None
        return _watcher(self._registry.part_of(found[0]))


def _watcher(part: Part | None) -> Watcher | None:
    return None if part is None else part.watcher


def _watchers(registry: Registry) -> dict[str, int]:
    """Return the identity of each part's watcher, by the name of the part."""
    return {part.name: id(part.watcher) for part in registry.parts}
