"""Reads everything that an upstream offers: who it is, and its lists with all their pages."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from gateway.protocol.upstream.cleaning import clean_text
from gateway.protocol.upstream.deviations import Deviation, Heal, uncounted
from gateway.protocol.upstream.entries import IDENTITY, encode_listed, served_bytes
from gateway.protocol.upstream.requests import all_relayed_capabilities
from gateway.registry.parts import Kind
from gateway.runtime.turns import Turns
from gateway.upstreams.failures import Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.ports import UpstreamCaller
from gateway.upstreams.readings import Count, Readings

MAX_PAGES: Final = 64
MAX_ENTRIES: Final = 10_000
"""Limits of each list (pages) and of all lists of one upstream together (entries)."""

MAX_BYTES: Final = 32 * 2**20
"""How many bytes of JSON the entries of one upstream may take."""

MAX_MEMORY_BYTES: Final = 128 * 2**20
"""How much memory they may take while they are served, as `served_bytes` counts it: values take many times their JSON.
While lists are replaced, both the old and the new ones are there."""

LISTING_SECONDS: Final = 120.0
"""How long reading everything may take."""

PAGE_SECONDS: Final = 30.0
"""How long one page may take."""

STALE_TTL_MS: Final = 10_000
"""How long a list counts as valid whose upstream says that it is stale at once: no list is read more often."""

RELAYED_CAPABILITIES: Final[Mapping[str, Any]] = all_relayed_capabilities()
"""The capabilities to declare when lists are read."""

GATEWAY: Final = UpstreamCaller(capabilities=RELAYED_CAPABILITIES)
"""The gateway itself, for its own reading of lists."""

_CAPABILITIES: Final = ("tools", "prompts", "resources", "completions")
_OPTIONS: Final = ("listChanged", "subscribe")

METHOD_NOT_FOUND: Final = -32601

Entries: TypeAlias = tuple[dict[str, Any], ...]
Ask: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[Mapping[str, Any]]]
"""Sends a request with a method and params, and returns its result. Raises `UpstreamFailure` and `UpstreamError`."""


@dataclass(frozen=True, slots=True)
class ListForm:
    """A list, as the protocol has it: the method that reads a page, its member, and the capability of the server."""

    method: str
    member: str
    capability: str


LISTS: Final[Mapping[Kind, ListForm]] = {
    "tools": ListForm("tools/list", "tools", "tools"),
    "prompts": ListForm("prompts/list", "prompts", "prompts"),
    "resources": ListForm("resources/list", "resources", "resources"),
    "templates": ListForm("resources/templates/list", "resourceTemplates", "resources"),
}

_LISTED: Final = frozenset(form.capability for form in LISTS.values())
_MAX_CURSOR_CHARACTERS: Final = 64 * 1024
_CURSOR_CHARACTER_BYTES: Final = 4
_MAX_INSTRUCTIONS_CHARACTERS: Final = 4096


class UnusableLists(UpstreamFailure):
    """The upstream answered every request, but its lists make no sense or are too long. Nobody has counted it yet."""


def readings_of_lists() -> Readings:
    """Return what bounds the memory of lists while they are read."""
    return Readings("lists", UnusableLists)


@dataclass(frozen=True, slots=True)
class Discovered:
    """The introduction of an upstream (MCP 2026-07-28, "server/discover"). The instructions are "" without any.

    Of the capabilities, it has those that `offers` knows.
    """

    capabilities: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    instructions: str = ""

    def offers(self, capability: str, option: str | None = None) -> bool:
        """Return whether it has a capability, and an option of it, such as `tools` with `listChanged`."""
        declared = self.capabilities.get(capability)
        return declared is not None and (option is None or declared.get(option) is True)


@dataclass(frozen=True, slots=True)
class Listed:
    """Everything that an upstream offers.

    Attributes:
        lists: the entries of each list as they came, in its order, each of them an object with a name of its own.
        ttl_ms: the shortest time for which it says a list stays valid; None if it says nothing.
        repeated: how many entries were left out because an earlier one has their name.
        digest: of all entries. Two of these objects are equal if it is the same, and all but `lists` is too.
    """

    discovered: Discovered
    lists: Mapping[Kind, Entries] = field(compare=False)
    ttl_ms: int | None = None
    repeated: int = 0
    digest: bytes = b""

    @classmethod
    def nothing(cls, discovered: Discovered) -> Listed:
        """Return empty lists, for an upstream that shows each caller others."""
        return cls(discovered, dict.fromkeys(LISTS, ()))


async def discover(ask: Ask, heal: Heal = uncounted) -> Discovered:
    """Ask an upstream who it is; see `EraClient.request` for the errors.

    Some declare nothing to a client that declares nothing. So one that declares no list counts as having tools.
    """
    result = await ask("server/discover", {})
    capabilities, instructions = result.get("capabilities"), result.get("instructions")
    known = _known(capabilities, heal) if isinstance(capabilities, dict) else {}
    if not known.keys() & _LISTED:
        heal(Deviation.CAPABILITIES)
        known["tools"] = {}
    return Discovered(
        capabilities=known,
        instructions=clean_text(instructions[:_MAX_INSTRUCTIONS_CHARACTERS]) if isinstance(instructions, str) else "",
    )


def _known(capabilities: Mapping[str, Any], heal: Heal) -> dict[str, dict[str, bool]]:
    """Return the capabilities and options that mean something to the gateway: the others may be large.

    One of another type than an object counts if it can mean only that. PHP writes an empty object as `[]`.
    """
    known: dict[str, dict[str, bool]] = {}
    for name in _CAPABILITIES:
        declared = capabilities.get(name)
        if type(declared) is dict:
            known[name] = {option: True for option in _OPTIONS if declared.get(option) is True}
        elif declared is True or declared == []:
            heal(Deviation.CAPABILITIES)
            known[name] = {}
    return known


async def read_all(
    upstream: str, ask: Ask, discovered: Discovered, heal: Heal = uncounted, *, turns: Turns | None = None
) -> Listed:
    """Read all pages of all lists that an upstream has; see `read_list` for the errors, and for `turns`."""
    reading = _ListReading(upstream, ask, lambda _size: None, MAX_MEMORY_BYTES, heal, turns or Turns())
    try:
        async with asyncio.timeout(LISTING_SECONDS):
            lists = {
                kind: await reading.list_of(kind) if discovered.offers(form.capability) else ()
                for kind, form in LISTS.items()
            }
    except TimeoutError:
        raise UpstreamFailure(upstream, Reason.TIMED_OUT, sent=True, detail="its lists take too long") from None
    return Listed(discovered, lists, reading.ttl_ms, reading.repeated, reading.hashed.digest())


async def read_list(
    upstream: str,
    ask: Ask,
    kind: Kind,
    *,
    count: Count = lambda _size: None,
    max_memory: int = MAX_MEMORY_BYTES,
    heal: Heal = uncounted,
    turns: Turns | None = None,
) -> tuple[Entries, int | None, int]:
    """Read all pages of one list. Return its entries, the shortest `ttlMs`, and how much memory the entries take.

    Each page is counted as soon as it is there, in a thread when its turn has come. Pages that never end are read up to
    a limit.

    Raises:
        UpstreamFailure: a page cannot be read, or there is too much.
        UpstreamError: the upstream refuses a page.
    """
    reading = _ListReading(upstream, ask, count, max_memory, heal, turns or Turns())
    try:
        async with asyncio.timeout(LISTING_SECONDS):
            entries = await reading.list_of(kind)
    except TimeoutError:
        raise UpstreamFailure(upstream, Reason.TIMED_OUT, sent=True, detail="its list takes too long") from None
    return entries, reading.ttl_ms, reading.memory


@dataclass(slots=True)
class _ListReading:
    """Reads lists of an upstream. For the first fields, see `read_list`."""

    upstream: str
    ask: Ask
    count: Count
    max_memory: int
    heal: Heal
    turns: Turns
    entries: int = 0
    bytes_read: int = 0
    memory: int = 0
    hashed: Any = field(default_factory=hashlib.sha256)
    ttl_ms: int | None = None
    repeated: int = 0

    async def list_of(self, kind: Kind) -> Entries:
        form = LISTS[kind]
        found: dict[str, dict[str, Any]] = {}
        cursors: set[str] = set()
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            try:
                page = self.ask(form.method, {} if cursor is None else {"cursor": cursor})
                cursor = await self._taken(kind, await page, found)  # only what is taken of a page stays in memory
            except UpstreamError as error:
                if error.code == METHOD_NOT_FOUND and cursor is None:  # resources without templates, for example
                    return ()
                raise
            if cursor is None:
                return tuple(found.values())
            if cursor in cursors:
                break
            cursors.add(cursor)
        self.heal(Deviation.CURSOR)
        return tuple(found.values())

    async def _taken(self, kind: Kind, page: Mapping[str, Any], found: dict[str, dict[str, Any]]) -> str | None:
        """Take the entries of a page, and return the cursor of the next one."""
        await self._take(kind, page, found)
        self._note_ttl(page.get("ttlMs"))
        cursor = self._next(page)
        if cursor is not None:
            self._add(_CURSOR_CHARACTER_BYTES * len(cursor))
        return cursor

    async def _take(self, kind: Kind, page: Mapping[str, Any], found: dict[str, dict[str, Any]]) -> None:
        form = LISTS[kind]
        entries = page.get(form.member)
        if entries is None:
            self.heal(Deviation.ITEMS_MISSING)
            entries = []
        if not isinstance(entries, list):
            raise self._malformed(f"{form.method} returns no list")
        self.entries += len(entries)
        if self.entries > MAX_ENTRIES:
            raise self._too_much(f"more than {MAX_ENTRIES} entries")
        await self.turns.resume(self.upstream)
        size, memory = await self.turns.aside(lambda: self._counted(kind, entries))
        self.bytes_read += size
        if self.bytes_read > MAX_BYTES:
            raise self._too_much(f"lists of more than {MAX_BYTES} bytes")
        self._add(memory)
        for entry in entries:
            name = entry.get(IDENTITY[kind]) if isinstance(entry, dict) else None
            if not isinstance(name, str) or name in found:
                self.repeated += 1
            else:
                found[name] = entry

    def _counted(self, kind: Kind, entries: list[Any]) -> tuple[int, int]:
        """Add entries to the digest. Return how many bytes they have as JSON, and how much memory they take."""
        encoded = encode_listed(entries)
        self.hashed.update(LISTS[kind].member.encode())
        self.hashed.update(encoded)
        return len(encoded), served_bytes(kind, entries, encoded)

    def _add(self, size: int) -> None:
        self.memory += size
        if self.memory > self.max_memory:
            raise self._too_much(f"lists whose values take more than {self.max_memory} bytes of memory")
        self.count(size)

    def _note_ttl(self, ttl: object) -> None:
        if isinstance(ttl, int) and not isinstance(ttl, bool) and ttl >= 0:
            ttl = ttl or STALE_TTL_MS
            self.ttl_ms = ttl if self.ttl_ms is None else min(self.ttl_ms, ttl)

    def _next(self, page: Mapping[str, Any]) -> str | None:
        cursor = page.get("nextCursor")
        if cursor is None or (isinstance(cursor, str) and 0 < len(cursor) <= _MAX_CURSOR_CHARACTERS):
            return cursor
        self.heal(Deviation.CURSOR)
        return None

    def _malformed(self, detail: str) -> UnusableLists:
        return UnusableLists(self.upstream, Reason.MALFORMED, sent=True, detail=detail)

    def _too_much(self, detail: str) -> UnusableLists:
        return UnusableLists(self.upstream, Reason.TOO_LARGE, sent=True, detail=detail)
