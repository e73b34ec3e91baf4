"""The lists and capabilities that a wire reports, built once for a registry."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import methodcaller
from typing import Any, Final, TypeAlias

import msgspec

from gateway.authoring.served import Served
from gateway.authoring.tools import Tool
from gateway.engine.capabilities import CapabilityPath, supports
from gateway.errors import GatewayError, InvalidParams, InvalidRequest
from gateway.protocol.caller import Caller, Requester
from gateway.protocol.capabilities import TASKS
from gateway.protocol.draft.streaming import MODES
from gateway.protocol.identity import Identity
from gateway.protocol.legacy.older import known_entry
from gateway.protocol.result_format import CacheScope, Words
from gateway.protocol.upstream.entries import is_same_json
from gateway.registry.parts import LOCAL, Kind, Share
from gateway.registry.registry import Registry
from gateway.sealing.envelope import Rejected
from gateway.sealing.list_cursor import ListPlace
from gateway.tokens.key_holder import KeyHolder

log = logging.getLogger(__name__)

PAGE_SIZE = 250
"""The number of entries on one page of a list."""

FIRST_LISTING_SECONDS: Final = 2.0
"""How long the first lists wait for an upstream that has never been listed. Later ones do not wait for it."""

_INCOMPLETE_TTL_MS: Final = 1000
"""How long clients may cache a page that lacks an upstream."""

_KINDS: Final[Mapping[str, Kind]] = {
    "tools": "tools",
    "prompts": "prompts",
    "resources": "resources",
    "resourceTemplates": "templates",
}
"""What each list contains, by the name of the list in its result."""

_TOPICS: Final = {"tools": "tools", "prompts": "prompts", "resources": "resources", "resourceTemplates": "resources"}
"""The names of the lists in `subscriptions/listen`, by their names in results."""

_NOTHING: Final[Mapping[str, Any]] = {}
_ANONYMOUS: Final = Identity()

_Entry: TypeAlias = Callable[[Served], dict[str, Any]]


class Catalogue:
    """The lists of one registry in the format of one wire, split into pages.

    The keys make cursors that every replica can read. `entry` returns the list entry of a tool, prompt or resource.
    Only clients with the capability `tasks` see tools that run only as tasks; None shows these tools to everyone.
    `earlier` is the catalogue of the same wire that this one replaces; entries and pages of unchanged parts are reused.

    Attributes:
        ttl_ms: how long clients may cache lists.
        is_settled: whether `page` has everything. Otherwise wait for `first_listings`, then use `page_of` if the
            registry depends on the caller.
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
        entry: _Entry = methodcaller("catalogue_entry"),
        tasks: CapabilityPath | None = None,
        earlier: Catalogue | None = None,
    ) -> None:
        self.registry = registry
        self.capabilities = capabilities
        self.identity = identity
        self.ttl_ms = registry.ttl_ms
        self.is_settled = not registry.pending and not registry.by_caller
        self._words = words
        self._keys = keys
        self._page_size = page_size
        self._tasks = tasks
        self._entry = entry
        made = {} if earlier is None else earlier.made
        self._lists = {
            name: _List(
                [_entries(share, kind, entry, made) for share in registry.shares], is_private=registry.by_caller
            )
            for name, kind in _KINDS.items()
        }
        self._pages: dict[tuple[str, _Start, bool], _Page] = {}
        self._pages_key_id = b""
        if earlier is not None:
            self._adopt_pages(earlier)

    def page(
        self, name: str, cursor: str | None, caller: Caller, capabilities: Mapping[str, Any] = _NOTHING
    ) -> dict[str, Any]:
        """Return one page of a list: the page after the cursor's entry, or the first without a cursor.

        Only callers whose token grants the scopes of an entry see it. If the cursor's entry has gone, the page begins
        with the entry that has its place now. `name` is the field of the result: `tools`, `prompts`, `resources` or
        `resourceTemplates`. A cursor that is not one of ours raises `InvalidParams`.
        """
        listed = self._lists[name]
        start = _FIRST if cursor is None else self._after(name, listed, cursor)
        has_tasks = self._tasks is None or supports(capabilities, self._tasks)
        if listed.has_scopes:
            return self._make_page(name, listed, start, caller, has_tasks=has_tasks).fields
        pages, place = self._current_pages(), (name, start, has_tasks)
        page = pages.get(place)
        if page is None:
            page = pages[place] = self._make_page(name, listed, start, caller, has_tasks=has_tasks)
        return page.fields

    async def first_listings(self) -> None:
        """Wait for upstreams that have never been listed, at most `FIRST_LISTING_SECONDS`.

        Another catalogue is served then, which has what they list.
        """
        await asyncio.gather(*(part.wait(FIRST_LISTING_SECONDS) for part in self.registry.pending))

    async def page_of(
        self, name: str, cursor: str | None, caller: Caller, capabilities: Mapping[str, Any], requester: Requester
    ) -> dict[str, Any]:
        """Return one page of a list to which upstreams add what this caller may see; see `page`.

        An upstream whose list cannot be had now is missing from the page, and clients may cache it for a second only.
        """
        place = None if cursor is None else self._read(name, cursor)
        has_tasks = self._tasks is None or supports(capabilities, self._tasks)
        kind, shares = _KINDS[name], self.registry.shares
        found = await asyncio.gather(*(_entries_of(share, kind, requester) for share in shares))
        everyone, taken = self._lists[name].parts, set(getattr(self.registry, kind))
        parts = []
        for share, entries, shared in zip(shares, found, everyone, strict=True):
            if entries is None:
                parts.append(shared)
            else:
                visible = _visible(share, kind, entries, taken)
                taken.update(visible)
                parts.append(_Entries(share.part.name, visible, self._entry))
        listed = _List(parts, is_private=True)
        ttl_ms = _INCOMPLETE_TTL_MS if any(entries is _MISSING for entries in found) else None
        start = _FIRST if place is None else listed.after(place)
        return self._make_page(name, listed, start, caller, has_tasks=has_tasks, ttl_ms=ttl_ms).fields

    def _current_pages(self) -> dict[tuple[str, _Start, bool], _Page]:
        """Return the cached pages; they are discarded when another key seals cursors."""
        key_id = self._keys.current.key_id
        if key_id != self._pages_key_id:
            self._pages, self._pages_key_id = {}, key_id
        return self._pages

    def _after(self, name: str, listed: _List, cursor: str) -> _Start:
        return listed.after(self._read(name, cursor))

    def _read(self, name: str, cursor: str) -> ListPlace:
        try:
            place = ListPlace.read(self._keys.cursors.read(name, cursor))
        except Rejected:
            place = None
        if place is None:
            raise InvalidParams("Unknown cursor")
        return place

    def _make_page(
        self,
        name: str,
        listed: _List,
        start: _Start,
        caller: Caller,
        *,
        has_tasks: bool,
        ttl_ms: int | None = None,
    ) -> _Page:
        """Make a page. If some callers do not see all entries, the list is private for every caller."""
        visible = _seen_by(caller, listed, start, has_tasks=has_tasks)
        page = list(itertools.islice(visible, self._page_size))
        fields: dict[str, Any] = {name: [listed.parts[at].listed(place) for at, place in page]}
        following = next(visible, None)
        if following is not None:
            fields["nextCursor"] = self._keys.cursors.make(name, listed.place(page[-1]).text)
        differs = listed.is_private or (self._tasks is not None and listed.has_task_only)
        scope: CacheScope = "private" if differs else "public"
        told = self._words.cacheable(fields, ttl_ms=self.ttl_ms if ttl_ms is None else ttl_ms, scope=scope)
        end = len(listed.parts) if following is None else following[0] + 1
        return _Page(told, listed.parts[start[0] : end], is_last=following is None)

    @property
    def made(self) -> _Made:
        """The entries of all lists, by the identity of what they were made of."""
        return {id(part.served): part for listed in self._lists.values() for part in listed.parts}

    def _adopt_pages(self, earlier: Catalogue) -> None:
        """Use the pages of an earlier catalogue on which nothing has changed."""
        if earlier.ttl_ms != self.ttl_ms or earlier.identity.brief != self.identity.brief:
            return
        self._pages_key_id = earlier._pages_key_id
        for (name, (at, place), has_tasks), page in earlier._pages.items():
            listed, before = self._lists[name], earlier._lists[name]
            is_like_before = (listed.is_private, listed.has_task_only) == (before.is_private, before.has_task_only)
            if is_like_before and listed.still_has(page, at):  # a cursor also has the position of its part
                self._pages[name, (at, place), has_tasks] = page

    def changed_lists(self, newer: Catalogue) -> list[str]:
        """Return the lists that differ in another catalogue, by their names in `subscriptions/listen`."""
        different = [topic for name, topic in _TOPICS.items() if self._lists[name].differs_from(newer._lists[name])]
        before, after = _revisions(self.registry), _revisions(newer.registry)
        different += [topic for topic in _TOPICS.values() if before.get(topic) != after.get(topic)]
        return [topic for topic in dict.fromkeys(_TOPICS.values()) if topic in different]


_Start: TypeAlias = tuple[int, int]
"""Where a page begins: the position of a part, and of an entry in it."""

_FIRST: Final[_Start] = (0, 0)


class _Entries:
    """The entries of one part in one list, with what they were made of (`served`).

    An upstream may have thousands, so each of its entries is made when it is needed. The local ones are made at once,
    since some cannot be.
    """

    def __init__(self, part: str, served: Mapping[str, Served], entry: _Entry) -> None:
        self.part = part
        self.served = served
        self.names: Sequence[str] = list(served)
        self.all_served: Sequence[Served] = list(served.values())
        self._entry = entry
        self._listed = [entry(each) if part == LOCAL else None for each in self.all_served]
        self.scopes = [each.scopes for each in served.values()]
        self.has_scopes = any(self.scopes)
        self.task_only = [isinstance(each, Tool) and each.task == "required" for each in served.values()]
        self.has_task_only = any(self.task_only)
        self._positions: dict[str, int] | None = None

    def listed(self, position: int) -> dict[str, Any]:
        """Return the entry at a position, as clients see it."""
        made = self._listed[position]
        if made is None:
            made = self._listed[position] = self._entry(self.all_served[position])
        return made

    def is_same(self, position: int, other: _Entries, others: int) -> bool:
        """Return whether clients see the same in an entry of another part or list, at a position there."""
        if self.all_served[position] is other.all_served[others]:
            return True
        scopes, their_scopes = self.scopes[position], other.scopes[others]
        return scopes == their_scopes and is_same_json(self.listed(position), other.listed(others))

    def position(self, name: str) -> int | None:
        """Return the position of an entry, None if it has gone."""
        if self._positions is None:
            self._positions = {name: position for position, name in enumerate(self.names)}
        return self._positions.get(name)


_Made: TypeAlias = Mapping[int, _Entries]


class _List:
    """The entries of one list, part by part, in order.

    A list is private if callers may get different ones.
    """

    def __init__(self, parts: Sequence[_Entries], *, is_private: bool) -> None:
        self.parts = tuple(parts)
        self.has_scopes = any(part.has_scopes for part in self.parts)
        self.has_task_only = any(part.has_task_only for part in self.parts)
        self.is_private = is_private or self.has_scopes
        self._positions = {part.part: position for position, part in enumerate(self.parts)}

    def position(self, part: str) -> int | None:
        """Return the position of a part, None if it has gone."""
        return self._positions.get(part)

    def still_has(self, page: _Page, at: int) -> bool:
        """Return whether the parts of a page that begins at a part are the same and at the same positions here."""
        if not page.read or self.position(page.read[0].part) != at:
            return False
        end = at + len(page.read)
        return self.parts[at:end] == page.read and (not page.is_last or end == len(self.parts))

    def places(self, start: _Start) -> Iterator[_Start]:
        """Yield the places of all entries from the start on."""
        first, place = start
        for at in range(first, len(self.parts)):
            for position in range(place, len(self.parts[at].names)):
                yield at, position
            place = 0

    def place(self, place: _Start) -> ListPlace:
        """Return the place of an entry, for a cursor."""
        at, position = place
        return ListPlace(self.parts[at].part, self.parts[at].names[position], at, position)

    def after(self, place: ListPlace) -> _Start:
        """Return where the page after an entry begins.

        If the entry has gone, this is its position, which the next entry has now. If its part has gone, this is the
        part that has its position now.
        """
        at = self.position(place.part)
        if at is None:
            return min(place.part_at, len(self.parts)), 0
        position = self.parts[at].position(place.name)
        following = place.at if position is None else position + 1
        return (at, following) if following < len(self.parts[at].names) else (at + 1, 0)

    def differs_from(self, other: _List) -> bool:
        """Return whether clients would see the difference from another list."""
        if self.parts == other.parts:
            return False
        mine, theirs = list(self.places(_FIRST)), list(other.places(_FIRST))
        return len(mine) != len(theirs) or not all(
            self.parts[at].is_same(place, other.parts[there], others)
            for (at, place), (there, others) in zip(mine, theirs, strict=True)
        )


def _seen_by(caller: Caller, listed: _List, start: _Start, *, has_tasks: bool) -> Iterator[_Start]:
    """Yield the places of the entries that a caller sees, from the start of a page on."""
    for at, place in listed.places(start):
        part = listed.parts[at]
        if caller.grants(part.scopes[place]) and (has_tasks or not part.task_only[place]):
            yield at, place


class _Page(msgspec.Struct, frozen=True):
    """A page that was made.

    `read` has the entries of the parts that decided what is on it, from the first on; no part follows the last page's.
    """

    fields: dict[str, Any]
    read: tuple[_Entries, ...]
    is_last: bool


def _entries(share: Share, kind: Kind, entry: _Entry, made: _Made) -> _Entries:
    """Return the entries of a part, as they were made for an earlier catalogue if it served the same."""
    served = share.entries(kind)
    before = made.get(id(served))
    if before is not None and before.served is served and before.part == share.part.name:
        return before
    return _Entries(share.part.name, served, entry)


_MISSING: Final[Mapping[str, Served]] = {}
"""Stands for the list of a caller that could not be fetched."""


def _visible(share: Share, kind: Kind, entries: Mapping[str, Served], taken: AbstractSet[str]) -> dict[str, Served]:
    """Return those entries for one caller whose names belong to the part, and to none before it."""
    own = share.entries(kind)
    return {key: each for key, each in entries.items() if key in own or (key not in taken and share.owns(kind, key))}


async def _entries_of(share: Share, kind: Kind, requester: Requester) -> Mapping[str, Served] | None:
    """Return what the upstream of a part shows one caller, None if it shows everyone the same."""
    lists = share.part.lists
    if lists is None:
        return None
    try:
        return await lists.entries(kind, requester)
    except InvalidRequest:
        raise  # the caller is at fault, not the upstream
    except GatewayError as error:
        log.warning(
            "the list of a caller failed", extra={"upstream": share.part.name, "list": kind, "reason": str(error)}
        )
    return _MISSING


def _revisions(registry: Registry) -> dict[str, dict[str, int]]:
    """Return the revisions of the lists that depend on the caller: by list, then by part."""
    found: dict[str, dict[str, int]] = {}
    for part in registry.parts:
        for topic, revision in part.revisions.items():
            found.setdefault(topic, {})[part.name] = revision
    return found


def released_capabilities(registry: Registry, *, tasks: bool) -> dict[str, Any]:
    """Return the capabilities that the 2026-07-28 wire declares for this registry."""
    capabilities = _capabilities(registry, {"listChanged": True})
    if "resources" in capabilities:
        capabilities["resources"]["subscribe"] = True
    if tasks and _has_tasks(registry):
        capabilities["extensions"] = {TASKS[-1]: {}}
    return capabilities


def handshake_capabilities(registry: Registry, *, tasks: bool, lists_tasks: bool) -> dict[str, Any]:
    """Return the capabilities that `initialize` declares for this registry. Changes are never announced there.

    Listing tasks needs authenticated callers.
    """
    capabilities = _capabilities(registry, {})
    if tasks and _has_tasks(registry):
        lists: dict[str, Any] = {"list": {}} if lists_tasks else {}
        capabilities["tasks"] = {**lists, "cancel": {}, "requests": {"tools": {"call": {}}}}
    return capabilities


def _capabilities(registry: Registry, of_lists: Mapping[str, bool]) -> dict[str, Any]:
    """Return the capabilities of all wires; those of lists may have options."""
    capabilities: dict[str, Any] = {"tools": dict(of_lists), "logging": {}}
    capabilities |= {name: dict(of_lists) for name in ("prompts", "resources") if registry.offers(name)}
    if registry.offers("completions"):
        capabilities["completions"] = {}
    return capabilities


def _has_tasks(registry: Registry) -> bool:
    return any(tool.task != "forbidden" for tool in registry.tools.values())


def draft_capabilities(registry: Registry, *, tasks: bool, lists_tasks: bool) -> dict[str, Any]:
    """Return the capabilities that `initialize` declares on the draft wire (SEP-1905, Server Capabilities)."""
    capabilities = handshake_capabilities(registry, tasks=tasks, lists_tasks=lists_tasks)
    if "tasks" in capabilities:
        capabilities["tasks"]["responses"] = {"modes": list(MODES)}
    return capabilities


def handshake_entry(served: Served) -> dict[str, Any]:
    """Return a list entry of the handshake wires, where a tool also says whether it supports tasks.

    Structured content is always an object there. Clients refuse a list with a tool that has another `outputSchema`.
    """
    entry = served.catalogue_entry()
    if not isinstance(served, Tool):
        return entry
    entry = {**entry, "execution": {"taskSupport": served.task}}  # an upstream's entry is shared
    schema = entry.get("outputSchema")
    if schema is not None and schema.get("type") != "object":
        del entry["outputSchema"]
    return entry


def older_entry(version: str) -> _Entry:
    """Return the function that makes list entries of a version before 2025-11-25."""
    return lambda served: known_entry(handshake_entry(served), version)
