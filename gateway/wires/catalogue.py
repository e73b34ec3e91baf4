"""The lists and capabilities that a wire reports, built once for a registry."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from operator import methodcaller
from typing import Any, Final

from gateway.authoring.registry import Registry
from gateway.authoring.served import Served
from gateway.authoring.tools import Tool
from gateway.engine.capabilities import CapabilityPath, supports
from gateway.errors import InvalidParams
from gateway.protocol.caller import Caller
from gateway.protocol.capabilities import TASKS
from gateway.protocol.draft.streaming import MODES
from gateway.protocol.identity import Identity
from gateway.protocol.result_format import CacheScope, Words
from gateway.sealing.envelope import Rejected
from gateway.tokens.key_holder import KeyHolder

TTL_MS = 60_000
"""How long clients may cache lists and the result of `server/discover`."""

PAGE_SIZE = 250
"""The number of entries on one page of a list."""

_NOTHING: Final[Mapping[str, Any]] = {}
_ANONYMOUS: Final = Identity()


class Catalogue:
    """The lists of one registry in the format of one wire, split into pages.

    Args:
        registry: the entries of the lists.
        words: the result format of the wire.
        keys: make cursors that every replica can read.
        capabilities: the capabilities that the server declares.
        page_size: the number of entries on one page.
        identity: how the server introduces itself.
        entry: returns the list entry of a tool, prompt or resource.
        tasks: the capability of clients that support tasks. Other clients do not see tools that run only as tasks. None
            shows these tools to everyone.
    """

    def __init__(
        self,
        registry: Registry,
        words: Words,
        keys: KeyHolder,
        capabilities: Mapping[str, Any],
        page_size: int = PAGE_SIZE,
        *,
        identity: Identity = _ANONYMOUS,
        entry: Callable[[Served], dict[str, Any]] = methodcaller("catalogue_entry"),
        tasks: CapabilityPath | None = None,
    ) -> None:
        self.registry = registry
        self.capabilities = capabilities
        self.identity = identity
        self._words = words
        self._keys = keys
        self._page_size = page_size
        self._tasks = tasks
        self._lists: dict[str, _Entries] = {
            "tools": _Entries(registry.tools, entry),
            "prompts": _Entries(registry.prompts, entry),
            "resources": _Entries(registry.resources, entry),
            "resourceTemplates": _Entries(registry.templates, entry),
        }
        self._pages: dict[tuple[str, int, bool], dict[str, Any]] = {}
        self._pages_key_id = b""

    def page(
        self, name: str, cursor: str | None, caller: Caller, capabilities: Mapping[str, Any] = _NOTHING
    ) -> dict[str, Any]:
        """Return one page of a list: the page after the cursor's entry, or the first without a cursor.

        Only callers whose token grants the scopes of an entry see it.

        Args:
            name: the field of the result: `tools`, `prompts`, `resources` or `resourceTemplates`.
            cursor: as the client sent it.
            caller: the caller of the request.
            capabilities: what the client declared.

        Raises:
            InvalidParams: the cursor is not one of ours, or its entry no longer exists.
        """
        entries = self._lists[name]
        start = 0 if cursor is None else self._after(name, entries, cursor)
        has_tasks = self._tasks is None or supports(capabilities, self._tasks)
        if entries.has_scopes:
            return self._make_page(name, entries, start, caller, has_tasks=has_tasks)
        pages, place = self._current_pages(), (name, start, has_tasks)
        if place not in pages:
            pages[place] = self._make_page(name, entries, start, caller, has_tasks=has_tasks)
        return pages[place]

    def _current_pages(self) -> dict[tuple[str, int, bool], dict[str, Any]]:
        """Return the cached pages; they are discarded when another key seals cursors."""
        key_id = self._keys.current.key_id
        if key_id != self._pages_key_id:
            self._pages, self._pages_key_id = {}, key_id
        return self._pages

    def _after(self, name: str, entries: _Entries, cursor: str) -> int:
        try:
            last = self._keys.cursors.read(name, cursor)
        except Rejected:
            raise InvalidParams("Unknown cursor") from None
        position = entries.positions.get(last)
        if position is None:
            raise InvalidParams("Unknown cursor")
        return position + 1

    def _make_page(
        self, name: str, entries: _Entries, start: int, caller: Caller, *, has_tasks: bool
    ) -> dict[str, Any]:
        """Make a page. If some callers do not see all entries, the list is private for every caller."""
        visible = (
            place
            for place in range(start, len(entries.listed))
            if caller.grants(entries.scopes[place]) and (has_tasks or not entries.task_only[place])
        )
        page = list(itertools.islice(visible, self._page_size))
        fields: dict[str, Any] = {name: [entries.listed[place] for place in page]}
        if next(visible, None) is not None:
            fields["nextCursor"] = self._keys.cursors.make(name, entries.names[page[-1]])
        differs = entries.has_scopes or (self._tasks is not None and any(entries.task_only))
        scope: CacheScope = "private" if differs else "public"
        return self._words.cacheable(fields, ttl_ms=TTL_MS, scope=scope)

    def changed_lists(self, newer: Catalogue) -> list[str]:
        """Return the lists that differ in another catalogue, by their names in `subscriptions/listen`."""
        names = {"tools": "tools", "prompts": "prompts", "resources": "resources", "resourceTemplates": "resources"}
        different = [topic for name, topic in names.items() if self._lists[name].differs_from(newer._lists[name])]
        return list(dict.fromkeys(different))


class _Entries:
    def __init__(self, served: Mapping[str, Served], entry: Callable[[Served], dict[str, Any]]) -> None:
        self.names: Sequence[str] = list(served)
        self.listed = [entry(each) for each in served.values()]
        self.scopes = [each.scopes for each in served.values()]
        self.has_scopes = any(self.scopes)
        self.task_only = [isinstance(each, Tool) and each.task == "required" for each in served.values()]
        self.positions = {name: position for position, name in enumerate(self.names)}

    def differs_from(self, other: _Entries) -> bool:
        return (self.listed, self.scopes) != (other.listed, other.scopes)


def released_capabilities(registry: Registry, *, tasks: bool) -> dict[str, Any]:
    """Return the capabilities that the 2026-07-28 wire declares for this registry.

    Args:
        registry: the tools, prompts and resources.
        tasks: whether there is a task store.
    """
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


def handshake_capabilities(registry: Registry, *, tasks: bool, lists_tasks: bool) -> dict[str, Any]:
    """Return the capabilities that `initialize` declares for this registry. Changes are never announced there.

    Args:
        registry: the tools, prompts and resources.
        tasks: whether there is a task store.
        lists_tasks: whether tasks can be listed, which needs authenticated callers.
    """
    capabilities: dict[str, Any] = {"tools": {}, "logging": {}}
    if registry.prompts:
        capabilities["prompts"] = {}
    if registry.resources or registry.templates:
        capabilities["resources"] = {}
    if registry.completes:
        capabilities["completions"] = {}
    if tasks and any(tool.task != "forbidden" for tool in registry.tools.values()):
        lists: dict[str, Any] = {"list": {}} if lists_tasks else {}
        capabilities["tasks"] = {**lists, "cancel": {}, "requests": {"tools": {"call": {}}}}
    return capabilities


def draft_capabilities(registry: Registry, *, tasks: bool, lists_tasks: bool) -> dict[str, Any]:
    """Return the capabilities that `initialize` declares on the draft wire (SEP-1905, Server Capabilities).

    Args:
        registry: the tools, prompts and resources.
        tasks: whether there is a task store.
        lists_tasks: whether tasks can be listed, which needs authenticated callers.
    """
    capabilities = handshake_capabilities(registry, tasks=tasks, lists_tasks=lists_tasks)
    if "tasks" in capabilities:
        capabilities["tasks"]["responses"] = {"modes": list(MODES)}
    return capabilities


def handshake_entry(served: Served) -> dict[str, Any]:
    """Return a list entry of the handshake wires, where a tool also says whether it supports tasks."""
    entry = served.catalogue_entry()
    if isinstance(served, Tool):
        entry["execution"] = {"taskSupport": served.task}
    return entry
