"""Which resources of upstreams clients listen to, so that each upstream is asked for their changes once."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import TypeAlias

from gateway.authoring.resources import Resource
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
        """Use a new registry from now on. The streams then say with `follow` what it serves of their resources."""
        self._registry = registry

    def follow(self, uri: str, caller: Hashable, resource: Resource | None) -> None:
        """Let the part of a resource follow it for a caller that listens to it; None if it is not served any more."""
        announced = resource if resource is not None and resource.announces_changes else None
        self._follow((uri, caller), None if announced is None else _watcher(self._registry.part_of(announced)))

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


def _watcher(part: Part | None) -> Watcher | None:
    return None if part is None else part.watcher
