"""The parts of a registry: the local functions, and what each upstream adds to them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args

from gateway.authoring.prompts import Prompt
from gateway.authoring.resources import Resource
from gateway.authoring.served import Served
from gateway.authoring.tools import Tool
from gateway.protocol.caller import Requester

Kind: TypeAlias = Literal["tools", "prompts", "resources", "templates"]
"""What a list contains. Each is an attribute of `Part` and of `Registry`."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

Offer: TypeAlias = Literal["prompts", "resources", "completions"]
"""A capability that a server declares only if it has something to offer."""

OFFERS: Final[frozenset[Offer]] = frozenset(get_args(Offer))

TTL_MS: Final = 60_000
"""How long clients may cache lists and the result of `server/discover`, unless a part says less."""

LOCAL: Final = ""
"""The name of the part that has the local functions."""

NAME_SEPARATOR: Final = "__"
"""What separates the prefix of a part from the upstream's own name."""

URI_SEPARATOR: Final = "+"
"""What separates the prefix of a part from the upstream's own URI."""

UI_SCHEME: Final = "ui://"
"""URIs of this scheme have the prefix at the start of their authority: `ui://<prefix>.…`."""


class Finder(Protocol):
    """Finds what an upstream serves although no list has it."""

    def find(self, kind: Kind, name: str, /) -> Served | None:
        """Return the relay for a name or URI with the prefix of the part, or None if it may not be called.

        The prefix of a URI is in lower case. If each caller has other lists, the relay is not for the call of a caller.
        It has the scopes of the name, and a worker runs the tasks with it that `find_for` and `prepare_task` prepared.
        """
        ...

    async def find_for(self, kind: Kind, name: str, requester: Requester, /) -> Served | None:
        """Return the same for the call of one caller, by what the upstream shows that caller."""
        ...


class PartCompleter(Protocol):
    """Completes arguments of an upstream's prompts and templates."""

    def scopes_of_values(self, template: str, values: Mapping[str, str], /) -> frozenset[str] | None:
        """Return the scopes for what a template makes of some values; None if they make nothing that is served."""
        ...

    async def complete(  # noqa: PLR0917 - the fields of the request, in its order
        self,
        kind: Literal["prompt", "resource"],
        target: str,
        argument: str,
        value: str,
        context: Mapping[str, str],
        requester: Requester,
        /,
    ) -> Mapping[str, Any] | None:
        """Return the `completion` object of the upstream, or None if it has none.

        `target` is the name or URI template, as the part exposes it. `context` has the arguments that are already
        filled in.

        Raises:
            RpcError: the upstream refuses.
            CannotContinue: the upstream cannot be asked now. The message is for the caller.
        """
        ...


class CallerLists(Protocol):
    """The lists of an upstream that shows each caller other entries."""

    async def entries(self, kind: Kind, requester: Requester, /) -> Mapping[str, Served]:
        """Return what one caller may see, by exposed name or URI, in the upstream's order. This takes 2 s at most.

        Raises:
            GatewayError: the list cannot be had in time. The caller then gets a list without this part.
        """
        ...


class Ready(Protocol):
    """The first listing of an upstream."""

    async def wait(self) -> object:
        """Wait until the upstream has been listed, or the attempt that is under way has failed.

        A registry with the listed part must be served before this returns. Several requests may wait at once.
        """
        ...


class Watcher(Protocol):
    """Follows resources of an upstream for clients that listen to their changes."""

    def watch(self, uri: str, caller: Hashable, /) -> None:
        """Start to follow a resource for a caller, by its exposed URI: the caller's first listener has come."""
        ...

    def unwatch(self, uri: str, caller: Hashable, /) -> None:
        """Stop following a resource for a caller: its last listener has gone."""
        ...


class _FirstWait:
    """Until when lists wait for an upstream, on the clock of the event loop. It is set by the first of them."""

    def __init__(self) -> None:
        self.ends_at: float | None = None

    def is_over(self, seconds: float) -> bool:
        now = asyncio.get_running_loop().time()
        if self.ends_at is None:
            self.ends_at = now + seconds
        return now >= self.ends_at


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What one source serves: the tool modules of this process, or an upstream. A change makes a new part.

    Attributes:
        name: the name of the upstream, or `LOCAL`.
        prefix: begins the names and URIs of the part; "" for names that stay as they are.
        tools: by exposed name, in the order of the list; so are prompts, and resources and templates by exposed URI.
        finder: finds what no list has, or None.
        lists: the lists of each caller; None if all callers see the entries above.
        ready: set while the upstream has never been listed.
        ttl_ms: how long clients may cache the lists, in milliseconds.
        instructions: how to use the upstream, for the language model.
        may_have: what the upstream may offer. The local part offers what it has.
        revisions: numbers that change when the list of a caller may have changed. The keys are list names of
            `subscriptions/listen`: `tools`, `prompts` and `resources`. Only for parts with `lists`.
    """

    name: str
    prefix: str = ""
    tools: Mapping[str, Tool] = field(default_factory=dict)
    prompts: Mapping[str, Prompt] = field(default_factory=dict)
    resources: Mapping[str, Resource] = field(default_factory=dict)
    templates: Mapping[str, Resource] = field(default_factory=dict)
    finder: Finder | None = None
    completer: PartCompleter | None = None
    lists: CallerLists | None = None
    ready: Ready | None = None
    watcher: Watcher | None = None
    ttl_ms: int = TTL_MS
    instructions: str = ""
    may_have: frozenset[Offer] = OFFERS
    revisions: Mapping[str, int] = field(default_factory=dict)
    _patience: _FirstWait = field(default_factory=_FirstWait, init=False)

    def entries(self, kind: Kind) -> Mapping[str, Served]:
        """Return what the part lists of one kind."""
        found: Mapping[str, Served] = getattr(self, kind)
        return found

    async def wait(self, seconds: float) -> None:
        """Wait until the upstream has been listed, but no longer than this from the first time that anybody waits."""
        if self.ready is not None and not self._patience.is_over(seconds):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._patience.ends_at):
                    await self.ready.wait()


def owning_prefix(kind: Kind, name: str) -> str:
    """Return the prefix with which an exposed name or URI begins, in lower case; "" if it begins with none.

    Schemes and hosts have no case (RFC 3986 section 6.2.2.1).
    """
    if kind in ("tools", "prompts"):
        prefix, found, _ = name.partition(NAME_SEPARATOR)
        return prefix if found else ""
    is_page = name[: len(UI_SCHEME)].lower() == UI_SCHEME
    prefix, found, _ = name[len(UI_SCHEME) if is_page else 0 :].partition("." if is_page else URI_SEPARATOR)
    return prefix.lower() if found else ""


@dataclass(frozen=True, slots=True)
class Hidden:
    """An entry that is not served: an earlier part has one of the same name, or its name belongs to another part."""

    part: str
    kind: Kind
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """What a registry serves of a part: everything that no part before it hides, and no other part owns by its prefix.

    Attributes:
        foreign: the prefixes of other parts, which the names of a part without a prefix must not have. Otherwise such
            an upstream could take over calls of another one while that one cannot be listed.
    """

    part: Part
    hidden: tuple[Hidden, ...]
    foreign: frozenset[str]
    _entries: Mapping[Kind, Mapping[str, Served]]

    @classmethod
    def of(
        cls, part: Part, earlier: Mapping[Kind, Mapping[str, Served]], prefixes: frozenset[str] = frozenset()
    ) -> Share:
        """Return the share of a part behind others that have these entries, among parts with these prefixes."""
        foreign = frozenset() if part.prefix or part.name == LOCAL else prefixes
        hidden = tuple(
            Hidden(part.name, kind, name)
            for kind in KINDS
            for name in part.entries(kind)
            if name in earlier[kind] or (foreign and owning_prefix(kind, name) in foreign)
        )
        gone = {(entry.kind, entry.name) for entry in hidden}
        return cls(part, hidden, foreign, {kind: _without(kind, part.entries(kind), gone) for kind in KINDS})

    def owns(self, kind: Kind, name: str) -> bool:
        """Return whether an exposed name or URI may be one of this part."""
        return not self.foreign or owning_prefix(kind, name) not in self.foreign

    def entries(self, kind: Kind) -> Mapping[str, Served]:
        """Return what is served. It is the part's own mapping if no entry of this kind is hidden."""
        return self._entries[kind]


def _without(kind: Kind, entries: Mapping[str, Served], gone: set[tuple[Kind, str]]) -> Mapping[str, Served]:
    if not any(of == kind for of, _ in gone):
        return entries
    return {name: served for name, served in entries.items() if (kind, name) not in gone}
