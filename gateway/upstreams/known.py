"""The entries that are served of an upstream, and what a URI of a client stands for among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from gateway.authoring.served import Served
from gateway.protocol.upstream.entries import encode_listed, is_same_json, served_bytes
from gateway.protocol.uris.canonical import NotCanonical, canonical, canonical_listed
from gateway.protocol.uris.templates import ForeignTemplate
from gateway.registry.parts import Kind

MAX_TEMPLATES: Final = 1_000
"""How many templates are compared with URIs. Further ones are listed, but match nothing."""

MAX_MEMORY_BYTES: Final = 128 * 2**20
"""How much memory the entries may take that are kept although no list may have them any more: as much as a list."""

URI_KINDS: Final[tuple[Kind, ...]] = ("resources", "templates")
"""The lists whose entries are known by a URI."""


@dataclass(frozen=True, slots=True)
class Known:
    """An entry that is served.

    Attributes:
        judged: the name, or the canonical form of a URI or template, by which rules judge; None without such a form.
    """

    raw: Any
    own: str
    judged: str | None
    template: ForeignTemplate | None
    served: Served


def judged_of(kind: Kind, own: str) -> tuple[str | None, ForeignTemplate | None]:
    """Return what rules judge of an entry, see `Known`, and what matches the URIs of a template."""
    if kind not in URI_KINDS:
        return own, None
    template = ForeignTemplate(own) if kind == "templates" else None
    return canonical_listed(own) if template is None else template.canonical, template


def canonical_asked(kind: Kind, own: str) -> str | None:
    """Return the canonical form of a URI or template that a client asks for, None if it must be refused."""
    if kind == "templates":
        return ForeignTemplate(own).canonical
    try:
        return canonical(own)
    except NotCanonical:
        return None


class KnownEntries:
    """The served entries of all lists, by list and exposed name, the oldest first."""

    def __init__(self) -> None:
        self._entries: dict[tuple[Kind, str], Known] = {}
        self._bytes: dict[tuple[Kind, str], int] = {}
        self._memory = 0
        self._canonical: dict[tuple[Kind, str], Known] = {}
        self._templates: dict[str, ForeignTemplate] = {}

    def get(self, kind: Kind, exposed: str) -> Known | None:
        """Return the entry with this exposed name."""
        return self._entries.get((kind, exposed))

    def unchanged(self, kind: Kind, exposed: str, raw: Mapping[str, Any]) -> Known | None:
        """Return the entry with this exposed name, if its upstream still lists it in the same way."""
        known = self._entries.get((kind, exposed))
        return known if known is not None and is_same_json(known.raw, raw) else None

    def like(self, kind: Kind, uri: str) -> Known | None:
        """Return the resource or template with this canonical form: one that is written so, else the first one."""
        return self._canonical.get((kind, uri))

    def made(self, uri: str) -> str | None:
        """Return the URI that a template makes of this canonical form; None if no template does."""
        texts = (template.text_of(uri) for template in self._templates.values())
        return next((text for text in texts if text is not None), None)

    def add(self, kind: Kind, exposed: str, known: Known, *, size: int | None = None) -> None:
        """Add an entry, or replace the one with its name. `size` is the memory that it takes, if that is known."""
        if self._entries.get((kind, exposed)) is known:
            return
        self.remove(kind, exposed)
        self._entries[kind, exposed] = known
        if size is None:
            size = served_bytes(kind, (known.raw,), encode_listed(known.raw))
        self._bytes[kind, exposed] = size
        self._memory += size
        if kind in URI_KINDS and known.judged is not None:
            like = self._canonical.setdefault((kind, known.judged), known)
            if known.own == known.judged != like.own:
                self._canonical[kind, known.judged] = known
        if known.template is not None and len(self._templates) < MAX_TEMPLATES:
            self._templates[exposed] = known.template

    def remove(self, kind: Kind, exposed: str) -> None:
        """Forget an entry, if there is one with this name."""
        known = self._entries.pop((kind, exposed), None)
        if known is None:
            return
        self._memory -= self._bytes.pop((kind, exposed))
        if known.judged is not None and self._canonical.get((kind, known.judged)) is known:
            del self._canonical[kind, known.judged]
        if kind == "templates":
            self._templates.pop(exposed, None)

    def update(self, newer: KnownEntries) -> None:
        """Add the entries of another one."""
        for (kind, exposed), known in newer._entries.items():
            self.add(kind, exposed, known, size=newer._bytes[kind, exposed])

    def keep(self, number: int) -> None:
        """Forget the oldest entries but this many, and those that take too much memory."""
        while len(self._entries) > number or self._memory > MAX_MEMORY_BYTES:
            self.remove(*next(iter(self._entries)))


class CallersEntries:
    """The entries that one caller may see, of the lists that were read for it."""

    def __init__(self, lists: Mapping[Kind, KnownEntries]) -> None:
        self._lists = lists

    def get(self, kind: Kind, exposed: str) -> Known | None:
        """Return the entry with this exposed name."""
        return self._lists[kind].get(kind, exposed)

    def like(self, kind: Kind, uri: str) -> Known | None:
        """See `KnownEntries.like`."""
        return self._lists[kind].like(kind, uri)

    def made(self, uri: str) -> str | None:
        """See `KnownEntries.made`."""
        return self._lists["templates"].made(uri)


Lookup: TypeAlias = KnownEntries | CallersEntries
