"""The registry of what a process serves: what its tool modules define, followed by what its upstreams add."""

from __future__ import annotations

import copy
import pkgutil
import re
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, Literal, TypeVar

from gateway.authoring.completions import Completer
from gateway.authoring.lifespans import Lifespan
from gateway.authoring.prompts import Prompt
from gateway.authoring.resources import Resource
from gateway.authoring.served import Served
from gateway.authoring.server import Introduction, two_introductions
from gateway.authoring.tools import Tool
from gateway.authoring.uri_templates import UriTemplate
from gateway.errors import AuthoringError, ConfigurationError
from gateway.protocol.caller import Requester
from gateway.protocol.uris.canonical import MAX_URI_CHARACTERS, NotCanonical, canonical, canonical_listed
from gateway.protocol.uris.readings import with_bare_host
from gateway.protocol.uris.templates import ForeignTemplate
from gateway.registry.modules import import_tools
from gateway.registry.parts import (
    KINDS,
    LOCAL,
    NAME_SEPARATOR,
    TTL_MS,
    UI_SCHEME,
    URI_SEPARATOR,
    Finder,
    Hidden,
    Kind,
    Offer,
    Part,
    Share,
    owning_prefix,
)

ServedT = TypeVar("ServedT", bound=Served)

_PENDING_TTL_MS = 1000
"""How long clients may cache a list that lacks an upstream which is still being listed."""

_END_OF_PATH = re.compile("[?#]")

MAX_NAMES = 200
"""How many entries of each upstream have metrics of their own. Calls of others count as `other`."""

MAX_INSTRUCTIONS_BYTES = 2048
"""How much each upstream may add to the instructions."""


class Registry:
    """What one process serves: its own functions in registration order, then each upstream's in the configured order.

    A registry never changes. `arranged` and `replaced` return another one for the next requests; calls that run keep
    what they started with.

    Attributes:
        tools: by name, of all parts. Where two parts have one name, the earlier part wins.
        lifespans: in the order in which they open.
        shares: what is served of each part; the first is the local one.

    Raises:
        ConfigurationError: two different entries have the same name, or one hides another in its module.
    """

    def __init__(self, entries: Iterable[object] = ()) -> None:
        self.tools: dict[str, Tool] = {}
        self.prompts: dict[str, Prompt] = {}
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, Resource] = {}
        self.lifespans: list[Lifespan[Any]] = []
        self.introduction: Introduction | None = None
        self._completers: dict[tuple[int, str], Completer] = {}
        found = list(entries)
        for entry in found:
            self._add(entry)
        _refuse_hidden([entry for entry in found if isinstance(entry, Served)])
        local = Part(LOCAL, "", self.tools, self.prompts, self.resources, self.templates)
        self.shares: tuple[Share, ...] = (Share.of(local, {kind: {} for kind in KINDS}),)
        self._resources_by_form = _by_form(self.resources)
        self._resources_by_host = _by_host(self._resources_by_form)
        self._templates = [(each, _canonical(each.template)) for each in self.templates.values() if each.template]
        self._templates_by_host = [(each, _with_bare_host(template)) for each, template in self._templates]
        self._arrange(())

    def arranged(self, parts: Iterable[Part]) -> Registry:
        """Return a registry with the same local functions, followed by these parts of upstreams.

        `hidden` lists the entries that earlier parts hide.
        """
        other = copy.copy(self)
        other._arrange(parts)  # noqa: SLF001 - our own class
        return other

    def replaced(self, part: Part) -> Registry:
        """Return a registry in which a part takes the place of the part with its name, or comes last."""
        parts = [share.part for share in self.shares[1:]]
        if part.name not in self._by_name:
            return self.arranged([*parts, part])
        return self.arranged(part if each.name == part.name else each for each in parts)

    def _arrange(self, parts: Iterable[Part]) -> None:
        earlier = {share.part: share for share in self.shares}
        local = self.shares[0]
        shares = [local]
        merged: dict[Kind, dict[str, Any]] = {kind: dict(local.entries(kind)) for kind in KINDS}
        arranged = tuple(parts)
        prefixes = frozenset(part.prefix for part in arranged if part.prefix)
        for part in arranged:
            share = _reused(earlier.get(part), Share.of(part, merged, prefixes))
            shares.append(share)
            for kind in KINDS:
                merged[kind].update(share.entries(kind))
        self.shares = tuple(shares)
        self.tools, self.prompts = merged["tools"], merged["prompts"]
        self.resources, self.templates = merged["resources"], merged["templates"]
        self._by_name = {share.part.name: share.part for share in shares[1:]}
        self._by_prefix = {share.part.prefix: share for share in shares[1:]}

    def _add(self, entry: object) -> None:
        if isinstance(entry, Tool):
            _put(self.tools, entry.name, entry)
        elif isinstance(entry, Prompt):
            _put(self.prompts, entry.name, entry)
        elif isinstance(entry, Resource):
            _put(self.resources if entry.template is None else self.templates, entry.uri, entry)
        elif isinstance(entry, Lifespan):
            if entry not in self.lifespans:
                self.lifespans.append(entry)
        elif isinstance(entry, Introduction):
            self._introduce(entry)
        elif isinstance(entry, Completer):
            place = (id(entry.target), entry.argument)
            if self._completers.setdefault(place, entry) is not entry:
                raise ConfigurationError(f"{entry.target} has two completions for {entry.argument!r}")

    def _introduce(self, introduction: Introduction) -> None:
        if self.introduction is not None and self.introduction != introduction:
            raise ConfigurationError(two_introductions(self.introduction, introduction))
        self.introduction = introduction

    @property
    def names(self) -> frozenset[str]:
        """Names that are known before requests arrive, at most `MAX_NAMES` of each upstream; used as metric labels."""
        local, *upstreams = ([name for kind in KINDS for name in share.entries(kind)] for share in self.shares)
        return frozenset(local).union(*(names[:MAX_NAMES] for names in upstreams))

    @property
    def scopes(self) -> frozenset[str]:
        """Every scope that an entry requires."""
        groups = (self.tools, self.prompts, self.resources, self.templates)
        return frozenset().union(*(entry.scopes for group in groups for entry in group.values()))

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of upstreams, in order."""
        return tuple(share.part for share in self.shares[1:])

    @property
    def hidden(self) -> list[Hidden]:
        """The entries that are not served, because an earlier part has one of the same name."""
        return [entry for share in self.shares for entry in share.hidden]

    @property
    def pending(self) -> tuple[Part, ...]:
        """The parts that have never been listed."""
        return tuple(part for part in self.parts if part.ready is not None)

    @property
    def by_caller(self) -> bool:
        """Whether a part shows each caller other entries."""
        return any(part.lists is not None for part in self.parts)

    @property
    def ttl_ms(self) -> int:
        """How long clients may cache lists, in milliseconds: the shortest time of a part."""
        if self.pending:
            return _PENDING_TTL_MS
        return min((part.ttl_ms for part in self.parts), default=TTL_MS)

    @property
    def instructions(self) -> str:
        """The instructions of all upstreams, each quoted under its prefix, and cut to `MAX_INSTRUCTIONS_BYTES`."""
        return "\n\n".join(_instructions(part) for part in self.parts if part.instructions.strip())

    def offers(self, what: Offer) -> bool:
        """Return whether there is any of this, or an upstream may have it."""
        has: Mapping[Offer, object] = {
            "prompts": self.prompts,
            "resources": self.resources or self.templates,
            "completions": self._completers,
        }
        return bool(has[what]) or any(what in part.may_have for part in self.parts)

    def part_of(self, served: Served) -> Part | None:
        """Return the part that serves a relay now; None for a local function, or if the upstream has gone."""
        return self.part_named(served.upstream)

    def part_named(self, name: str) -> Part | None:
        """Return the part of an upstream by its name; None if the name is "", or if the upstream has gone."""
        return self._by_name.get(name)

    def find_tool(self, name: str) -> Tool | None:
        """Return the tool with this name: one that is listed, or one that only its upstream knows."""
        listed = self.tools.get(name)
        if listed is not None:
            return listed
        found = self._find("tools", name)
        return found if isinstance(found, Tool) else None

    def find_prompt(self, name: str) -> Prompt | None:
        """Return the prompt with this name: one that is listed, or one that only its upstream knows."""
        listed = self.prompts.get(name)
        if listed is not None:
            return listed
        found = self._find("prompts", name)
        return found if isinstance(found, Prompt) else None

    def _find(self, kind: Kind, name: str) -> Served | None:
        """Ask the part to which the prefix of a name belongs."""
        finder = self._finder(name)
        return None if finder is None else finder.find(kind, name)

    def _finder(self, name: str) -> Finder | None:
        prefix, separator, _ = name.partition(NAME_SEPARATOR)
        share = self._by_prefix.get(prefix if separator else "") or self._by_prefix.get("")
        return None if share is None else share.part.finder

    async def unlisted_tool(self, name: str, requester: Requester) -> Tool | None:
        """Return the tool that only its upstream knows by this name, for the call of one caller."""
        found = await self._find_for("tools", name, requester)
        return found if isinstance(found, Tool) else None

    async def unlisted_prompt(self, name: str, requester: Requester) -> Prompt | None:
        """Return the prompt that only its upstream knows by this name, for the request of one caller."""
        found = await self._find_for("prompts", name, requester)
        return found if isinstance(found, Prompt) else None

    async def _find_for(self, kind: Kind, name: str, requester: Requester) -> Served | None:
        finder = self._finder(name)
        return None if finder is None else await finder.find_for(kind, name, requester)

    def find_resource(self, uri: str) -> tuple[Resource, dict[str, str]] | None:
        """Return the resource that serves `uri`, with the values of its template's variables, or None.

        An exact URI takes precedence over templates, and what is local over upstreams. Both are compared in canonical
        form, so that no other spelling of a URI leads to another entry, with other scopes. A template requires the
        scopes of all local entries that the URI may mean. At last the upstream whose prefix the URI has is asked for a
        relay.
        """
        found = self.listed_resource(uri)
        if found is not None or not self._by_prefix:
            return found
        relay = self._find_by_uri(uri)
        return (relay, {}) if relay is not None else None

    async def unlisted_resource(
        self, kind: Literal["resources", "templates"], uri: str, requester: Requester
    ) -> Resource | None:
        """Return what only its upstream knows by a URI or template, for the request of one caller."""
        exact, finder, own = self._finder_of_uri(kind, uri)
        if exact is not None or finder is None:
            return exact
        relay = await finder.find_for(kind, own, requester)
        return relay if isinstance(relay, Resource) else None

    def listed_resource(self, uri: str) -> tuple[Resource, dict[str, str]] | None:
        """Return the resource with this URI as its list has it, else the local one that serves it."""
        if len(uri) > MAX_URI_CHARACTERS:
            return None
        exact = self.resources.get(uri)
        return self._find_local(uri) if exact is None else (exact, {})

    def _find_local(self, uri: str) -> tuple[Resource, dict[str, str]] | None:
        """Return the local resource for a URI that is not written as any resource's."""
        if not self._resources_by_form and not self._templates:
            return None
        try:
            form = canonical(uri)
        except NotCanonical:
            return None
        exact = self._resources_by_form.get(form)
        if exact is not None:
            return exact, {}
        for candidate, template in self._templates:
            values = template.match(form)
            if values is not None:
                return self._guarded(candidate, form), values
        return None

    def _guarded(self, found: Resource, form: str) -> Resource:
        """Return the template found for a URI, requiring the scopes of all that the URI may mean.

        Functions may read a URI without its query or fragment, and its authority as a host. Other templates may fit it
        as well.
        """
        texts = {form, _END_OF_PATH.split(form, maxsplit=1)[0]}
        by_host = {with_bare_host(text) for text in texts}
        meant = [resource for text in by_host for resource in self._resources_by_host.get(text, ())]
        for templates, forms in ((self._templates, texts), (self._templates_by_host, by_host)):
            meant += [each for each, template in templates if any(template.match(text) is not None for text in forms)]
        scopes = found.scopes.union(*(each.scopes for each in meant))
        if scopes == found.scopes:
            return found
        guarded = copy.copy(found)
        guarded.scopes = scopes
        return guarded

    def _find_by_uri(self, uri: str) -> Resource | None:
        """Ask the upstream to which the prefix of a URI belongs."""
        exact, finder, own = self._finder_of_uri("resources", uri)
        if exact is not None or finder is None:
            return exact
        relay = finder.find("resources", own)
        return relay if isinstance(relay, Resource) else None

    def _finder_of_uri(self, kind: Kind, uri: str) -> tuple[Resource | None, Finder | None, str]:
        """Return what is listed for another spelling of a prefix, else what to ask, and for which URI or template."""
        share, own = (None, uri) if len(uri) > MAX_URI_CHARACTERS else self._owner(uri)
        if share is None:
            return None, None, own
        exact = self.templates.get(own) if kind == "templates" else self.resources.get(own)
        return exact, share.part.finder, own

    def _owner(self, uri: str) -> tuple[Share | None, str]:
        """Return what is served of the part to which the prefix of a URI belongs, and the URI as that part spells it.

        Schemes and hosts have no case (RFC 3986 section 6.2.2.1).
        """
        scheme = UI_SCHEME if uri[: len(UI_SCHEME)].lower() == UI_SCHEME else ""
        separator = "." if scheme else URI_SEPARATOR
        _, _, rest = uri[len(scheme) :].partition(separator)
        prefix = owning_prefix("resources", uri)
        share = self._by_prefix.get(prefix) if prefix else None
        if share is None:
            return self._by_prefix.get(""), uri
        return share, f"{scheme}{prefix}{separator}{rest}"

    def scopes_of(self, served: Served, target: str) -> frozenset[str]:
        """Return the scopes that continuing a call requires: those from its start, and those required now.

        `served` is what the call started with; it may no longer be served.
        """
        today: Served | None
        if isinstance(served, Resource):
            found = self.find_resource(target)
            today = None if found is None else found[0]
        else:
            today = self.find_prompt(target) if isinstance(served, Prompt) else self.find_tool(target)
        return served.scopes if today is None else served.scopes | today.scopes

    def completer(self, target: Prompt | Resource, argument: str) -> Completer | None:
        """Return the completer of an argument, or None."""
        return self._completers.get((id(target), argument))


def _by_form(resources: Mapping[str, Resource]) -> dict[str, Resource]:
    """Return resources by the canonical form of their URI: one that is written so, else the first one."""
    found: dict[str, Resource] = {}
    for uri, resource in resources.items():
        form = canonical_listed(uri)
        if form is not None and (form not in found or form == uri):
            found[form] = resource
    return found


def _by_host(resources: Mapping[str, Resource]) -> dict[str, list[Resource]]:
    """Return resources by what their canonical URI is to a reader for whom its authority is a host."""
    found: dict[str, list[Resource]] = {}
    for form, resource in resources.items():
        found.setdefault(with_bare_host(form), []).append(resource)
    return found


def _with_bare_host(template: UriTemplate) -> UriTemplate:
    text = with_bare_host(template.text)
    return template if text == template.text else UriTemplate(text)


def _canonical(template: UriTemplate) -> UriTemplate:
    """Return a template for the canonical form of its URIs; itself if it has none."""
    try:
        return UriTemplate(ForeignTemplate(template.text).canonical or template.text)
    except AuthoringError:
        return template


def _instructions(part: Part) -> str:
    """Return the instructions of an upstream, quoted and within their limit, below a heading with its prefix.

    Each line is quoted as Markdown does it, so that an upstream cannot write a heading or a text of somebody else.
    """
    quoted = "\n".join(f"> {line}".rstrip() for line in part.instructions.strip().splitlines())
    text = quoted.encode("utf-8", "replace")[:MAX_INSTRUCTIONS_BYTES].decode("utf-8", "ignore")
    return f"# {part.prefix}\n\n{text}" if part.prefix else text


def _reused(before: Share | None, share: Share) -> Share:
    """Return the earlier share if it is the same: catalogues then reuse what they made of it."""
    if before is not None and (before.hidden, before.foreign) == (share.hidden, share.foreign):
        return before
    return share


def _put(served: dict[str, ServedT], name: str, entry: ServedT) -> None:
    other = served.setdefault(name, entry)
    if other is not entry:
        raise ConfigurationError(
            f"two {entry.KIND}s are named {name!r}, at {other.place} and at {entry.place}; rename one of them"
        )


def _refuse_hidden(entries: Sequence[Served]) -> None:
    """Refuse an entry that takes the place of another one in its module, unless that one is served all the same."""
    for entry in entries:
        hidden = entry.hides
        if hidden is not None and not any(served is hidden for served in entries):
            raise ConfigurationError(
                f"{entry} at {entry.place} hides {hidden} at {hidden.place}, because their functions have the same "
                "name; rename one of the functions"
            )


def load_registry(modules: Iterable[str]) -> Registry:
    """Import tool modules, by name or path, and collect everything that they define or import by name.

    Raises:
        ConfigurationError: a module cannot be imported, defines nothing, or breaks a rule of the authoring API. The
            message names the module and the reason in one line.
    """
    loaded = [(entry, import_tools(entry)) for entry in modules]
    for entry, module in loaded:
        if not any(isinstance(value, (Served, Lifespan, Completer, Introduction)) for value in vars(module).values()):
            raise ConfigurationError(_empty(entry, module))
    return Registry(value for _, module in loaded for value in vars(module).values())


def _empty(entry: str, module: ModuleType) -> str:
    """Return what is wrong with a module that defines nothing, and what to name instead if it is a package."""
    inner = [f"{module.__name__}.{found.name}" for found in pkgutil.iter_modules(getattr(module, "__path__", ()))]
    advice = "decorate its functions with @tool"
    if inner:
        advice = f"name the modules in it that define them, such as {inner[0]}, or import the tools in its __init__.py"
    return f"{entry!r} has no tool, prompt or resource; {advice}"
