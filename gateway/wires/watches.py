"""Which resources of upstreams clients listen to, so that each upstream is asked for their changes once."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping

from gateway.registry.parts import Part, Watcher
from gateway.registry.registry import Registry


class Watches:
    """Counts the listeners of each resource, and informs the part that serves it of the first and the last one.

    Use it only on the event loop.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._listeners: Counter[str] = Counter()
        self._watchers: dict[str, Watcher] = {}

    def serve(self, registry: Registry) -> None:
        """Use a new registry from now on. Resources whose part has another watcher are handed over to it."""
        before, self._registry = self._registry, registry
        if _watchers(before) != _watchers(registry):
            for uri in self._listeners:
                self._follow(uri, self._watcher_of(uri))

    @contextlib.contextmanager
    def listening(self, uris: Mapping[str, str]) -> Iterator[None]:
        """Count one listener of each of these resources while the context is open.

        Their changes are announced; the values name the parts that serve them, so that they are not looked up again.
        """
        for uri, name in uris.items():
            self._listeners[uri] += 1
            if self._listeners[uri] == 1:
                self._follow(uri, _watcher(self._registry.part_named(name)))
        try:
            yield
        finally:
            for uri in uris:
                self._listeners[uri] -= 1
                if not self._listeners[uri]:
                    del self._listeners[uri]
                    self._follow(uri, None)

    def _follow(self, uri: str, watcher: Watcher | None) -> None:
        """Let this watcher follow a resource, and no other."""
        before = self._watchers.get(uri)
        if before is watcher:
            return
        if before is not None:
            del self._watchers[uri]
            before.unwatch(uri)
        if watcher is not None:
            self._watchers[uri] = watcher
            watcher.watch(uri)

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
