"""Turns what an upstream lists into what the gateway serves."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from gateway.authoring.parts import KINDS, OFFERS, Kind, Offer, Part, Ready, Watcher
from gateway.authoring.relayed import Relay, RelayedPrompt, RelayedResource, RelayedTool, Requester
from gateway.authoring.served import Served
from gateway.authoring.tools import TaskSupport
from gateway.errors import InternalError
from gateway.protocol.upstream.entries import Dropped, Entry, clean_entry
from gateway.protocol.upstream.names import upstream_name
from gateway.protocol.upstream.uris import own_uri, upstream_uri
from gateway.upstreams.caller_lists import ListsByCaller
from gateway.upstreams.callers import caller_of
from gateway.upstreams.definition import Definition, TaskMode
from gateway.upstreams.failures import UpstreamFailure
from gateway.upstreams.guarded import GuardedClient
from gateway.upstreams.listing import LIST_OF, Discovered, Entries, Listed
from gateway.upstreams.pins import differs
from gateway.upstreams.ports import UpstreamTelemetry

log = logging.getLogger(__name__)

TTL_MS: Final = 60_000
UNKNOWN_TTL_MS: Final = 10_000
"""How long clients may cache the lists of an upstream that does not say how long they stay valid."""

COMPLETION_SECONDS: Final = 10.0
COMPLETION_BYTES: Final = 256 * 1024

_SINGULAR: Final[Mapping[Kind, str]] = {
    "tools": "tool",
    "prompts": "prompt",
    "resources": "resource",
    "templates": "template",
}
_TASKS: Final[Mapping[TaskMode, TaskSupport]] = {"never": "forbidden", "optional": "optional", "required": "required"}
_SHOWN: Final = 5
"""How many of the entries that are left out one line of the log names."""


@dataclass(slots=True)
class _Found:
    """What a list contains, by exposed name, and what is left out of it."""

    served: dict[str, Served] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)


class PartMaker:
    """Makes the part of one upstream. It also finds what no list has, and completes arguments.

    An entry that has not changed keeps its relay from one list to the next.

    Args:
        definition: what the operator wrote.
        client: asks the upstream for completions and for the lists of callers.
        relay: runs the legs.
        telemetry: counts what is left out.
    """

    def __init__(
        self, definition: Definition, client: GuardedClient, relay: Relay, telemetry: UpstreamTelemetry
    ) -> None:
        self._definition = definition
        self._client = client
        self._relay = relay
        self._telemetry = telemetry
        self._made: dict[tuple[Kind, str], tuple[Any, Served]] = {}
        self._discovered = Discovered()
        self._lists = ListsByCaller(definition, client, self.entries) if definition.depends_on_caller else None

    def unlisted(self, ready: Ready, watcher: Watcher | None) -> Part:
        """Return the part of an upstream whose lists are not known yet, or depend on the caller."""
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

    def listed(self, listed: Listed, watcher: Watcher | None) -> Part:
        """Return the part of an upstream with these lists."""
        self._discovered = listed.discovered
        made = self._made
        self._made = {}
        lists = {kind: self._read(kind, listed.lists[LIST_OF[kind]], made, self._made) for kind in KINDS}
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
            watcher=watcher,
            ttl_ms=UNKNOWN_TTL_MS if listed.ttl_ms is None else min(listed.ttl_ms, TTL_MS),
            instructions=listed.discovered.instructions,
            may_have=frozenset(offer for offer in OFFERS if _has(offer, listed.discovered)),
        )

    def entries(self, kind: Kind, raw: Entries) -> dict[str, Served]:
        """Return what one caller may see of a list, by exposed name."""
        return self._read(kind, raw, self._made, self._made).served

    def exposed_uri(self, uri: str) -> str:
        """Return the URI under which clients know a resource of the upstream."""
        return own_uri(self._definition.prefix, uri)

    def upstream_uri(self, uri: str) -> str | None:
        """Return the upstream's own URI for an exposed one; None if it belongs to another upstream."""
        return upstream_uri(self._definition.prefix, uri)

    def find(self, kind: Kind, name: str, /) -> Served | None:
        """Return the relay for an exposed name or URI that no list has, or None if it may not be called."""
        known = self._made.get((kind, name))
        if known is not None:
            return known[1]
        if kind == "resources":
            own = self.upstream_uri(name)
        elif self._definition.pin == "refuse" and kind == "tools":
            return None  # a tool that the lock file does not have counts as changed
        else:
            own = upstream_name(self._definition.prefix, name)
        if own is None or not self._serves(kind, own):
            return None
        field = "uri" if kind == "resources" else "name"
        return self._relayed(Entry(kind, own, name, {field: name}), listed=False)

    async def complete(
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

        Raises:
            RpcError: the upstream refuses, or cannot be asked now.
        """
        reference = self._reference(kind, target)
        if reference is None:
            return None
        params: dict[str, Any] = {"ref": reference, "argument": {"name": argument, "value": value}}
        if context:
            params["context"] = {"arguments": dict(context)}
        try:
            result = await self._client.request(
                "completion/complete",
                params,
                requester=caller_of(requester, self._definition),
                seconds=min(self._definition.timeout_seconds, COMPLETION_SECONDS),
                max_bytes=COMPLETION_BYTES,
            )
        except UpstreamFailure as failure:
            raise InternalError(sentence_of(failure)) from None
        completion = result.get("completion")
        return clean_completion(self._definition.prefix, completion)

    def _reference(self, kind: Literal["prompt", "resource"], target: str) -> dict[str, str] | None:
        """Return what the upstream calls the target of a completion."""
        if kind == "prompt":
            own = self._own_names.get(("prompts", target)) or upstream_name(self._definition.prefix, target)
            return {"type": "ref/prompt", "name": own} if own and self._serves("prompts", own) else None
        own = self._own_names.get(("templates", target)) or self.upstream_uri(target)
        return {"type": "ref/resource", "uri": own} if own and self._serves("templates", own) else None

    def _serves(self, kind: Kind, own: str) -> bool:
        if kind == "tools":
            return self._definition.serves_tool(own)
        choice = self._definition.prompts if kind == "prompts" else self._definition.resources
        return choice.takes(own)
