"""What the lists of a wire tell, and what its server can do: made once for a registry, told many times."""

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
from gateway.protocol.result_format import CacheScope, Words
from gateway.sealing.envelope import Rejected
from gateway.tokens.key_holder import KeyHolder

TTL_MS = 60_000
"""How long clients may keep lists, and what they discovered."""

PAGE_SIZE = 250
"""Entries on one page of a list."""

_NOTHING: Final[Mapping[str, Any]] = {}


class Catalogue:
    """The lists of one registry as one wire tells them, in pages.

    Args:
        registry: what is served.
        words: the wire's.
        keys: make cursors that every replica reads.
        capabilities: what the server declares that it can do.
        page_size: entries on one page.
        entry: tells one thing that is served.
        tasks: the capability of clients that can run tasks. Those without it are not told of tools that run only as
            tasks; None tells everyone of them.
    """

    def __init__(
        self,
        registry: Registry,
        words: Words,
        keys: KeyHolder,
        capabilities: Mapping[str, Any],
        page_size: int = PAGE_SIZE,
        *,
        entry: Callable[[Served], dict[str, Any]] = methodcaller("catalogue_entry"),
        tasks: CapabilityPath | None = None,
    ) -> None:
        self.registry = registry
        self.capabilities = capabilities
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
        """Return one page of a list: the first without a cursor, else the one after the cursor's entry.

        An entry that asks for scopes is told only to callers whose token grants them.

        Args:
            name: the result's field, `tools`, `prompts`, `resources` or `resourceTemplates`.
            cursor: as the client sent it.
            caller: who asks.
            capabilities: what the client declared.

        Raises:
            InvalidParams: the cursor is not one of ours, or its entry is no longer there.
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
        """Return the pages whose cursors are made with the key that seals now."""
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
        """A list is private for everyone as soon as not everyone is told of all its entries."""
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
        """Return which lists differ in another catalogue, as `subscriptions/listen` names them."""
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
    """Return what a server of the 2026-07-28 wire declares, as far as the registry gives reason for it.

    Args:
        registry: what is served.
        tasks: whether there is a store for tasks.
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
    """Return what `initialize` declares, as far as the registry gives reason for it; of changes nobody is told.

    Args:
        registry: what is served.
        tasks: whether there is a store for tasks.
        lists_tasks: whether a list of tasks is one caller's own, which takes callers that say who they are.
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
    """Return what `initialize` declares on the draft wire (SEP-1905, Server Capabilities).

    Args:
        registry: what is served.
        tasks: whether there is a store for tasks.
        lists_tasks: whether a list of tasks is one caller's own.
    """
    capabilities = handshake_capabilities(registry, tasks=tasks, lists_tasks=lists_tasks)
    if "tasks" in capabilities:
        capabilities["tasks"]["responses"] = {"modes": list(MODES)}
    return capabilities


def handshake_entry(served: Served) -> dict[str, Any]:
    """Return an entry of a list as the handshake wires tell it: a tool says whether it takes tasks."""
    entry = served.catalogue_entry()
    if isinstance(served, Tool):
        entry["execution"] = {"taskSupport": served.task}
    return entry
