"""Turns what an upstream lists into what the gateway serves."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn

from gateway.authoring.served import Served, TaskSupport
from gateway.authoring.uri_templates import is_template
from gateway.errors import (
    URL_ELICITATION_REQUIRED,
    CannotContinue,
    MissingCapability,
    RelayFailed,
    ResourceNotFound,
)
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.protocol.caller import Requester
from gateway.protocol.upstream.cleaning import oversteps
from gateway.protocol.upstream.deviations import Deviation
from gateway.protocol.upstream.entries import IDENTITY, Dropped, Entry, clean_entry, encode_listed, served_bytes
from gateway.protocol.upstream.names import may_be_changed, upstream_name
from gateway.protocol.upstream.uris import own_template, own_uri, upstream_uri
from gateway.protocol.uris.canonical import canonical_listed
from gateway.protocol.uris.templates import ForeignTemplate
from gateway.registry.parts import KINDS, OFFERS, Kind, Part, Ready, Watcher
from gateway.registry.relayed import RelayedPrompt, RelayedResource, RelayedTool
from gateway.upstreams.callers import caller_of
from gateway.upstreams.config.definition import Definition, TaskMode
from gateway.upstreams.config.pins import PINNED_KINDS
from gateway.upstreams.failures import Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.guarded import GuardedClient
from gateway.upstreams.known import URI_KINDS, CallersEntries, Known, KnownEntries, Lookup, judged_of
from gateway.upstreams.lists.caller_lists import ListsByCaller, Shown
from gateway.upstreams.lists.listing import Discovered, Entries, Listed
from gateway.upstreams.lists.repairs import count_repairs, with_newest_schemas, with_valid_schemas
from gateway.upstreams.name_rules import Judge, Verdict, may_be_served, serves
from gateway.upstreams.readings import Readings
from gateway.upstreams.relay import ABOUT_THE_REQUEST, Learn, UpstreamRelay
from gateway.upstreams.texts import refused_request, sentence_of

log = logging.getLogger(__name__)

TTL_MS: Final = 60_000
UNKNOWN_TTL_MS: Final = 10_000
"""How long clients may cache the lists of an upstream that does not say how long they stay valid."""

MAX_KNOWN: Final = 20_000
"""How many entries are remembered of an upstream that shows each caller others. Equal ones share one relay."""

MEMORY_AT_ONCE: Final = 256 * 2**10
"""After how much memory of entries other work gets its turn: cleaning them takes a few milliseconds. It counts as
`served_bytes`, since small values take longer than large ones."""
URIS_AT_ONCE: Final = 8
"""After how many URIs it does, too: one that is hard to judge takes a few milliseconds."""

COMPLETION_SECONDS: Final = 10.0
COMPLETION_BYTES: Final = 256 * 1024
MAX_COMPLETIONS: Final = 100

_NOT_OF_COMPLETIONS: Final = ABOUT_THE_REQUEST | {MissingCapability.CODE, URL_ELICITATION_REQUIRED}
"""Codes of errors that say nothing to a client that asks for completions: neither headers nor URLs are the answer."""

_DIFFERS: Final = "an upstream differs from the lock file; check it, and run `gateway upstreams pin`"

_SINGULAR: Final[Mapping[str, str]] = {
    "instructions": "instructions",
    "tools": "tool",
    "prompts": "prompt",
    "resources": "resource",
    "templates": "template",
}
_TASKS: Final[Mapping[TaskMode, TaskSupport]] = {"never": "forbidden", "optional": "optional", "required": "required"}
FIRST_LISTING_SECONDS: Final = 10.0
"""How long a call waits for the first listing, if it cannot be judged without."""

CHANGING: Final = ("tools", "prompts", "resources")
"""The lists whose changes are announced. Templates belong to the resources."""

_SHOWN: Final = 50
"""How many of the entries that are left out one line of the log names."""


@dataclass(slots=True)
class _Found:
    """The served entries of a list, by exposed name, and those that are left out."""

    served: dict[str, Served] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Cleaned:
    """An entry of a list as it came, what pins say about, and as it may be served; `memory` is what it takes then."""

    raw: Mapping[str, Any]
    pinned: Mapping[str, Any]
    entry: Entry | Dropped
    healed: list[Deviation]
    memory: int


class PartMaker:
    """Makes the part of one upstream. It also finds what no list has, and completes arguments.

    An entry that has not changed keeps its relay from one list to the next. If each caller has other lists, a call is
    served only by what the caller's own list says; what others have is known only by name. `revision` changes when the
    lists of callers may have changed. `turns` are those of all upstreams' long work.
    """

    def __init__(
        self,
        definition: Definition,
        client: GuardedClient,
        relay: UpstreamRelay,
        telemetry: UpstreamMetrics,
        readings: Readings,
    ) -> None:
        self._definition = definition
        self._judge = Judge(definition)
        self._client = client
        self._relay = relay
        self._telemetry = telemetry
        self._known = KnownEntries()
        self._ready: Ready | None = None
        self._changed: dict[str, Sequence[str]] = {}
        self._discovered = Discovered()
        self.revision = 0
        self.turns: Final = relay.turns
        by_caller = definition.depends_on_caller
        self._lists = (
            ListsByCaller(definition, client, self.shown, telemetry, readings, turns=relay.turns) if by_caller else None
        )

    def unlisted(self, ready: Ready, watcher: Watcher | None) -> Part:
        """Return the part of an upstream whose lists are not known yet, or depend on the caller."""
        self._ready = ready
        return Part(
            self._definition.name,
            self._definition.prefix,
            finder=self,
            completer=self,
            lists=self._lists,
            ready=ready if self._lists is None else None,
            watcher=watcher,
            ttl_ms=UNKNOWN_TTL_MS,
        )

    async def listed(self, listed: Listed, watcher: Watcher | None) -> Part:
        """Return the part of an upstream with these lists; if they depend on the caller, they are empty here."""
        self._discovered = listed.discovered
        before, known = self._known, KnownEntries()
        lists = {kind: await self._read(kind, listed.lists[kind], before, known) for kind in KINDS}
        if self._lists is None:
            self._known, self._ready = known, None
        self._report(lists)
        for _ in range(listed.repeated):
            self._telemetry.dropped(self._definition.name, "collision")
        served: dict[str, Any] = {kind: found.served for kind, found in lists.items()}
        return Part(
            self._definition.name,
            self._definition.prefix,
            **served,
            finder=self,
            completer=self if listed.discovered.offers("completions") else None,
            lists=self._lists,
            watcher=watcher,
            ttl_ms=UNKNOWN_TTL_MS if listed.ttl_ms is None else min(listed.ttl_ms, TTL_MS),
            instructions=self._instructions(listed.discovered.instructions),
            may_have=frozenset(offer for offer in OFFERS if listed.discovered.offers(offer)),
            revisions=dict.fromkeys(CHANGING, self.revision),
        )

    def forget_lists(self) -> None:
        """Let the lists of callers be read again, since they may have changed. The next part announces that."""
        if self._lists is not None:
            self.revision += 1
            self._lists.expire()

    async def shown(self, kind: Kind, raw: Entries) -> Shown:
        """Return what one caller may see of a list."""
        own = KnownEntries()
        found = await self._read(kind, raw, self._known, own)
        self._report_changed(kind, found.changed)
        self._known.update(own)
        self._known.keep(MAX_KNOWN)
        return Shown(found.served, own)

    def exposed_uri(self, uri: str) -> str:
        """Return the URI under which clients know a resource of the upstream."""
        return own_uri(self._definition.prefix, uri)

    def upstream_uri(self, uri: str) -> str | None:
        """Return the upstream's own URI for an exposed one; None if it belongs to another upstream."""
        return upstream_uri(self._definition.prefix, uri)

    def find(self, kind: Kind, name: str, /) -> Served | None:
        """Return the relay for an exposed name or URI that no list has, or None if it may not be called.

        If each caller has other lists, that of a tool or prompt has nothing of any: tasks and streams are judged by it.
        """
        if self._lists is None:
            return self._found(kind, name, self._known)
        return self._by_name(kind, name)

    async def find_for(self, kind: Kind, name: str, requester: Requester, /) -> Served | None:
        """Return the relay for what one caller calls, by the caller's own list if each has another one.

        If that list cannot be read, the relay sends nothing, and its call ends with the reason. The list is not
        read for a name that the rules forbid; see `may_be_served`.
        """
        if self._lists is None:
            return self.find(kind, name)
        if not may_be_served(self._definition, kind, name, requester):
            return None
        try:
            return self._found(kind, name, await self._known_to(kind, requester))
        except UpstreamFailure as failure:
            return self._unjudged(kind, name, failure)
        except UpstreamError as error:
            detail = f"its list is refused with {error.code}"
            refused = UpstreamFailure(self._definition.name, Reason.MALFORMED, sent=False, detail=detail)
            return self._unjudged(kind, name, refused)

    def _unjudged(self, kind: Kind, name: str, problem: UpstreamFailure) -> Served | None:
        """Return the relay for what a caller calls whose list cannot be read."""
        extra = {"upstream": self._definition.name, "list": kind, "reason": str(problem)}
        log.warning("the list of a caller failed, so its call is not sent", extra=extra)
        return self._by_name(kind, name, functools.partial(self._cannot_judge, problem.reason))

    async def _cannot_judge(self, reason: Reason, _requester: Requester) -> NoReturn:
        failure = UpstreamFailure(self._definition.name, reason, sent=False)  # only the list was asked for
        raise CannotContinue(sentence_of(failure))

    async def _known_to(self, kind: Kind, requester: Requester) -> Lookup:
        """Return what the lists have that a name or URI is looked up in: those of the caller, if each has others."""
        if self._lists is None:
            return self._known
        kinds: tuple[Kind, ...] = URI_KINDS if kind in URI_KINDS else (kind,)
        return CallersEntries({each: (await self._lists.shown(each, requester)).known for each in kinds})

    def _found(self, kind: Kind, name: str, known: Lookup) -> Served | None:
        """Return the relay for a name or URI by what these lists say."""
        listed = known.get(kind, name)
        if listed is not None:
            return listed.served
        if self._definition.pin == "refuse" and kind in PINNED_KINDS:
            return None  # an entry that the lock file does not have counts as changed
        if kind in URI_KINDS:
            return self._by_uri(kind, name, known)
        return self._unlisted(kind, upstream_name(self._definition.prefix, name), name)

    def _by_name(self, kind: Kind, name: str, learn: Learn | None = None) -> Served | None:
        """Return a relay that no list of a caller shapes. A list only says which name of the upstream is meant."""
        if kind in URI_KINDS:
            asked = self._judge.of(kind, name)
            if asked is None:
                return None
            return self._relayed_uri(kind, asked, self._sent(kind, asked, self._known), learn)
        known = self._known.get(kind, name)
        own = upstream_name(self._definition.prefix, name) if known is None else known.own
        # What a changed name stands for is judged where it is known: in a task by the relay itself.
        is_judged = known is not None or not may_be_changed(name)
        return self._unlisted(kind, own, name, learn, is_judged=is_judged)

    def _unlisted(
        self, kind: Kind, own: str | None, exposed: str, learn: Learn | None = None, *, is_judged: bool = True
    ) -> Served | None:
        """Return the relay for a name that no list has."""
        if own is None or (is_judged and not self._serves(kind, own)):
            return None
        entry = Entry(kind, own, exposed, {IDENTITY[kind]: exposed})
        return self._relayed(entry, self._definition.scopes.of(own), listed=False, learn=learn)

    def _by_uri(self, kind: Kind, exposed: str, known: Lookup) -> Served | None:
        """Return the relay for a URI or template that no list has as it is written.

        Its canonical form is judged and sent. If the upstream lists it in another form, the listed text is sent.
        """
        asked = self._judge.of(kind, exposed)
        if asked is None:
            return None
        listed = known.like(kind, asked.uri)
        if listed is not None:
            return listed.served
        text = self._sent(kind, asked, known)
        if self._is_pending:
            return self._relayed_uri(kind, asked, text, functools.partial(self._learn_uri, asked))
        return None if text is None else self._relayed_uri(kind, asked, text)

    def _relayed_uri(self, kind: Kind, asked: Verdict, text: str | None, learn: Learn | None = None) -> Served:
        """Return the relay for a URI or template of a client. The upstream gets the text, if there is one."""
        sent = text or asked.uri
        exposed = self.exposed_uri(sent) if kind == "resources" else own_template(self._definition.prefix, sent)
        entry = Entry(kind, sent, exposed, {IDENTITY[kind]: exposed})
        return self._relayed(entry, asked.scopes, listed=False, learn=learn)

    @property
    def _is_pending(self) -> bool:
        """Whether the lists, which are the same for all callers, have never been read."""
        return self._lists is None and self._ready is not None

    def _sent(self, kind: Kind, asked: Verdict, known: Lookup) -> str | None:
        """Return the text to send for a URI or template; None if it would have to be listed."""
        uri = asked.uri
        listed = known.like(kind, uri)
        if listed is not None:
            return listed.own
        if kind == "resources" and not asked.is_plain:
            return None
        made = known.made(uri) if kind == "resources" else None
        return uri if made is None and self._definition.serves_unlisted else made

    async def _learn_uri(self, asked: Verdict, _requester: Requester) -> str:
        """Return how the upstream writes a URI whose lists have not been read yet.

        Raises:
            ResourceNotFound: the upstream does not list it, and only listed resources are served.
            UpstreamFailure: the lists cannot be read.
        """
        await self._read_first()
        text = self._sent("resources", asked, self._known)
        if text is None:
            raise ResourceNotFound(self.exposed_uri(asked.uri))
        return text

    async def _read_first(self) -> None:
        """Wait until the lists have been read, if they are the same for all callers.

        If that fails and only listed resources are served, `UpstreamFailure` is raised.
        """
        if self._lists is None and self._ready is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FIRST_LISTING_SECONDS):
                    await self._ready.wait()
            if self._is_pending and not self._definition.serves_unlisted:
                raise UpstreamFailure(self._definition.name, Reason.UNREACHABLE, sent=False, detail="never listed")

    def scopes_of_values(self, template: str, values: Mapping[str, str], /) -> frozenset[str] | None:
        """Return the scopes for what a template makes of some values; None if they make nothing that is served.

        The URI is known up to the first variable without a value: rules that are about this text are about the URI.
        """
        definition = self._definition
        known = self._known.get("templates", template)
        own = self.upstream_uri(template) if known is None else known.own
        if own is None or not definition.judges_resources:
            return frozenset()
        parsed = ForeignTemplate(own)
        text = parsed.beginning(values)
        if text is None:
            return None
        if text == parsed.beginning({}):
            return frozenset()  # the rules of the template itself were checked
        begun = canonical_listed(text)
        return None if begun is None or not definition.may_serve(begun) else definition.scopes_of_resource(begun)

    async def complete(  # noqa: PLR0917 - the parameters of `PartCompleter`
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

        If the upstream refuses or cannot be asked now, this raises `RpcError`.
        """
        params: dict[str, Any] = {"argument": {"name": argument, "value": value}}
        if context:
            params["context"] = {"arguments": dict(context)}
        try:
            params["ref"] = await self._reference(kind, target, requester)
            if params["ref"] is None:
                return None
            result = await self._client.request(
                "completion/complete",
                params,
                requester=caller_of(requester, self._definition),
                seconds=min(self._definition.timeout_seconds, COMPLETION_SECONDS),
                max_bytes=COMPLETION_BYTES,
            )
        except UpstreamError as error:
            if error.code in _NOT_OF_COMPLETIONS:
                raise RelayFailed(refused_request(self._definition.name, error.code, sent=False)) from None
            raise
        except UpstreamFailure as failure:
            raise RelayFailed(sentence_of(failure)) from None
        return self._completion(result.get("completion"))

    def _completion(self, said: Any) -> dict[str, Any]:
        """Return a `completion` object within the limits of the protocol (MCP "Completion")."""
        values = said.get("values") if isinstance(said, dict) else None
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            self._telemetry.failed(self._definition.name, Reason.MALFORMED)
            failure = UpstreamFailure(self._definition.name, Reason.MALFORMED, sent=True)
            raise RelayFailed(sentence_of(failure))
        kept: dict[str, Any] = {"values": values[:MAX_COMPLETIONS]}
        if type(said.get("total")) is int:
            kept["total"] = said["total"]
        if len(values) > MAX_COMPLETIONS or type(said.get("hasMore")) is bool:
            kept["hasMore"] = len(values) > MAX_COMPLETIONS or said["hasMore"]
        return kept

    async def _reference(
        self, kind: Literal["prompt", "resource"], target: str, requester: Requester
    ) -> dict[str, str] | None:
        """Return what the upstream calls the target of a completion, None if it is not served."""
        if kind == "resource":
            uri = await self._completed_uri(target, requester)
            return None if uri is None else {"type": "ref/resource", "uri": uri}
        known = (await self._known_to("prompts", requester)).get("prompts", target)
        own = upstream_name(self._definition.prefix, target) if known is None else known.own
        return {"type": "ref/prompt", "name": own} if own and self._serves("prompts", own) else None

    async def _completed_uri(self, target: str, requester: Requester) -> str | None:
        kind: Kind = "templates" if is_template(target) else "resources"
        known = await self._known_to(kind, requester)
        listed = known.get("templates", target) or known.get("resources", target)
        if listed is not None:
            return listed.own
        asked = self._judge.of(kind, target)
        if asked is None:
            return None
        await self._read_first()
        return self._sent(kind, asked, await self._known_to(kind, requester))

    def _serves(self, kind: Kind, own: str | None) -> bool:
        """Return whether an entry may be served, by the upstream's own name, or by the canonical form of a URI."""
        return serves(self._definition, kind, own)

    async def _read(self, kind: Kind, raw: Entries, before: KnownEntries, known: KnownEntries) -> _Found:
        """Clean and choose the entries of a list, and add them to `known`. Other work gets its turn meanwhile."""
        found, entries, left = _Found(), iter(raw), len(raw)
        while left:
            await self.turns.resume(self._definition.name)
            portion = await self.turns.aside(lambda: self._portion(kind, entries))
            for cleaned in portion:
                self._take(kind, cleaned, before, known, found)
            left -= len(portion)
        return found

    def _portion(self, kind: Kind, entries: Iterator[Mapping[str, Any]]) -> list[_Cleaned]:
        """Clean the next entries of a list, until they take `MEMORY_AT_ONCE`."""
        portion: list[_Cleaned] = []
        memory = 0
        for raw in itertools.islice(entries, URIS_AT_ONCE if kind in URI_KINDS else None):
            portion.append(self._cleaned(kind, raw))
            memory += portion[-1].memory
            if memory >= MEMORY_AT_ONCE:
                break
        return portion

    def _cleaned(self, kind: Kind, raw: Mapping[str, Any]) -> _Cleaned:
        definition, healed = self._definition, list[Deviation]()
        encoded = encode_listed(raw)
        pinned = definition.pinned_part(kind, raw)
        newest = with_newest_schemas(kind, pinned, len(encoded), healed.append)
        entry = clean_entry(kind, definition.prefix, newest)
        return _Cleaned(raw, pinned, entry, healed, served_bytes(kind, (raw,), encoded))

    def _take(self, kind: Kind, cleaned: _Cleaned, before: KnownEntries, known: KnownEntries, found: _Found) -> None:
        """Serve an entry of a list if nothing is against that."""
        definition, raw, entry = self._definition, cleaned.raw, cleaned.entry
        for deviation in cleaned.healed:
            self._relay.heal(deviation)
        earlier = None
        if isinstance(entry, Entry):
            earlier = before.unchanged(kind, entry.exposed, raw)
            count_repairs(cleaned.pinned, entry, self._relay.heal)
            entry = with_valid_schemas(entry, self._relay.heal) if earlier is None else entry
        if isinstance(entry, Dropped):
            found.left_out.append(f"{entry.name!r} {entry.reason}")
            return
        judged, template = judged_of(kind, entry.own) if earlier is None else (earlier.judged, earlier.template)
        if not self._serves(kind, judged):
            return
        if oversteps(raw):
            self._telemetry.dropped(definition.name, "meta")
        if definition.has_changed(kind, raw):
            found.changed.append(entry.own)
            if definition.pin == "refuse":
                return
        if entry.exposed in found.served:
            found.left_out.append(f"{entry.own!r} has the same name as another one")
            return
        if earlier is None:
            is_uri = kind in URI_KINDS
            scopes = definition.scopes_of_resource(judged) if is_uri else definition.scopes.of(entry.own)
            served = self._relayed(entry, scopes, listed=True)
            earlier = Known(raw, entry.own, judged, template, served)
        known.add(kind, entry.exposed, earlier, size=cleaned.memory)
        found.served[entry.exposed] = earlier.served

    def _relayed(self, entry: Entry, scopes: frozenset[str], *, listed: bool, learn: Learn | None = None) -> Served:
        """Return the relay of an entry for callers who have these scopes."""
        definition, own = self._definition, entry.own
        relay = self._relay.of(entry, learn)
        if entry.kind == "tools":
            rule = definition.task.of(own)
            return RelayedTool(
                relay,
                entry.entry,
                listed=listed,
                scopes=scopes,
                task=_TASKS[rule.mode],
                after_seconds=rule.after_seconds,
            )
        if entry.kind == "prompts":
            return RelayedPrompt(relay, entry.entry, listed=listed, scopes=scopes)
        # Templates match nothing in the registry: `find` decides by the whole URI what is served, and for which scopes.
        return RelayedResource(
            relay,
            entry.entry,
            listed=listed,
            scopes=scopes,
            announces_changes=self._discovered.offers("resources", "subscribe"),
        )

    def _report(self, lists: Mapping[Kind, _Found]) -> None:
        """Count and log what is left out, and what differs from the lock file."""
        name = self._definition.name
        for kind, found in lists.items():
            for _ in found.left_out:
                self._telemetry.dropped(name, _SINGULAR[kind])
            for start in range(0, len(found.left_out), _SHOWN):
                reasons = "; ".join(found.left_out[start : start + _SHOWN])
                extra = {"upstream": name, "list": kind, "entries": len(found.left_out), "reason": reasons}
                log.warning("entries of an upstream are left out", extra=extra)
            self._report_changed(kind, found.changed)

    def _report_changed(self, kind: str, names: Sequence[str]) -> None:
        """Count and log what differs from the lock file, once for the same names."""
        definition = self._definition
        if definition.pin == "refuse":
            for _ in names:
                self._telemetry.dropped(definition.name, _SINGULAR[kind])
        if names == self._changed.get(kind, ()):
            return
        self._changed[kind] = names
        if names and not definition.pinned.is_old:  # an old lock file is reported when it is read
            extra = {
                "upstream": definition.name,
                "list": kind,
                "names": ", ".join(names[:_SHOWN]),
                "entries": len(names),
                "served": definition.pin == "warn",
            }
            log.warning(_DIFFERS, extra=extra)

    def _instructions(self, told: str) -> str:
        """Return the instructions to serve for those that the upstream has now."""
        definition = self._definition
        if not definition.instructions:
            return ""
        differs = definition.pin != "off" and told != definition.pinned.instructions
        self._report_changed("instructions", ("instructions",) if differs else ())
        return told if not differs or definition.pin == "warn" else definition.pinned.instructions


def count_of(part: Part) -> int:
    """Return how many entries a part lists."""
    return sum(len(part.entries(kind)) for kind in KINDS)
