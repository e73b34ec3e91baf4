"""What `server/discover` and the lists tell: made once for a registry, told many times."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.authoring.registry import Registry
from gateway.authoring.served import Served
from gateway.errors import InvalidParams
from gateway.ports import Caller
from gateway.protocol.capabilities import TASKS
from gateway.protocol.released.results import CacheScope, ResultWriter
from gateway.protocol.versions import SUPPORTED_VERSIONS
from gateway.sealing.cursor import CursorMaker
from gateway.sealing.envelope import Rejected

TTL_MS = 60_000
"""How long clients may keep lists and the discovery result."""

PAGE_SIZE = 250
"""Entries on one page of a list."""


class Catalogue:
    """The lists of one registry, in pages.

    Args:
        registry: what is served.
        results: writes results.
        cursors: makes cursors that every replica reads.
        page_size: entries on one page.
        tasks: whether calls can become tasks.
    """

    def __init__(
        self,
        registry: Registry,
        results: ResultWriter,
        cursors: CursorMaker,
        page_size: int = PAGE_SIZE,
        *,
        tasks: bool = False,
    ) -> None:
        self.registry = registry
        self._results = results
        self._cursors = cursors
        self._page_size = page_size
        self.discovery = self._cacheable(
            {"supportedVersions": list(SUPPORTED_VERSIONS), "capabilities": _capabilities(registry, tasks=tasks)}
        )
        self._lists: dict[str, _Entries] = {
            "tools": _Entries(registry.tools),
            "prompts": _Entries(registry.prompts),
            "resources": _Entries(registry.resources),
            "resourceTemplates": _Entries(registry.templates),
        }
        self._pages: dict[tuple[str, int], dict[str, Any]] = {}

    def page(self, name: str, cursor: str | None, caller: Caller) -> dict[str, Any]:
        """Return one page of a list: the first without a cursor, else the one after the cursor's entry.

        An entry that asks for scopes is told only to callers whose token grants them.

        Args:
            name: the result's field, `tools`, `prompts`, `resources` or `resourceTemplates`.
            cursor: as the client sent it.
            caller: who asks.

        Raises:
            InvalidParams: the cursor is not one of ours, or its entry is no longer there.
        """
        entries = self._lists[name]
        start = 0 if cursor is None else self._after(name, entries, cursor)
        if entries.has_scopes:
            return self._make_page(name, entries, start, caller)
        place = (name, start)
        if place not in self._pages:
            self._pages[place] = self._make_page(name, entries, start, caller)
        return self._pages[place]

    def _after(self, name: str, entries: _Entries, cursor: str) -> int:
        try:
            last = self._cursors.read(name, cursor)
        except Rejected:
            raise InvalidParams("Unknown cursor") from None
        position = entries.positions.get(last)
        if position is None:
            raise InvalidParams("Unknown cursor")
        return position + 1

    def _make_page(self, name: str, entries: _Entries, start: int, caller: Caller) -> dict[str, Any]:
        """A list is private for everyone as soon as any of its entries has scopes, visible or not."""
        places = range(start, len(entries.told))
        visible = (place for place in places if caller.grants(entries.scopes[place]))
        page = list(itertools.islice(visible, self._page_size))
        fields: dict[str, Any] = {name: [entries.told[place] for place in page]}
        if next(visible, None) is not None:
            fields["nextCursor"] = self._cursors.make(name, entries.names[page[-1]])
        return self._cacheable(fields, "private" if entries.has_scopes else "public")

    def _cacheable(self, fields: Mapping[str, Any], scope: CacheScope = "public") -> dict[str, Any]:
        return self._results.cacheable(fields, ttl_ms=TTL_MS, scope=scope)

    def changed_lists(self, newer: Catalogue) -> list[str]:
        """Return which lists differ in another catalogue, as `subscriptions/listen` names them."""
        names = {"tools": "tools", "prompts": "prompts", "resources": "resources", "resourceTemplates": "resources"}
        different = [topic for name, topic in names.items() if self._lists[name].differs_from(newer._lists[name])]
        return list(dict.fromkeys(different))


class _Entries:
    def __init__(self, served: Mapping[str, Served]) -> None:
        self.names: Sequence[str] = list(served)
        self.told = [entry.catalogue_entry() for entry in served.values()]
        self.scopes = [entry.scopes for entry in served.values()]
        self.has_scopes = any(self.scopes)
        self.positions = {name: position for position, name in enumerate(self.names)}

    def differs_from(self, other: _Entries) -> bool:
        return (self.told, self.scopes) != (other.told, other.scopes)


def _capabilities(registry: Registry, *, tasks: bool) -> dict[str, Any]:
    """Return the server capabilities that the registry gives reason for."""
    capabilities: dict[str, Any] = {"tools": {"listChanged": True}, "logging": {}}
    if registry.prompts:
        capabilities["prompts"] = {"listChanged": True}
    if registry.resources or registry.templates:
        capabilities["resources"] = {"listChanged": True, "subscribe": True}
    if registry.completes:
        capabilities["completions"] = {}
    if tasks and any(tool.task != "forbidden" for tool in registry.tools.values()):
        capabilities["extensions"] = {TASKS[-1]: {}}
    return capabilities
