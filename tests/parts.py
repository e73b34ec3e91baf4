"""Parts of a registry whose upstreams are functions of the test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.engine.journal import Journal
from gateway.engine.relaying import RelayFunction, RelayLeg
from gateway.protocol.caller import Requester
from gateway.registry.parts import Part
from gateway.registry.relayed import Relayed, RelayedPrompt, RelayedResource, RelayedTool


class EchoRelay:
    """A relay to an upstream that says who was called, and with what."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream

    def bind(
        self, served: Relayed, target: str, arguments: dict[str, Any], _requester: Requester, _journal: Journal
    ) -> RelayFunction:
        async def run(_relaying: RelayLeg) -> dict[str, Any]:
            if isinstance(served, RelayedTool):
                return {"content": [{"type": "text", "text": f"{self.upstream} {target} {arguments}"}]}
            return {"messages": []} if isinstance(served, RelayedPrompt) else {"contents": []}

        return run

    async def abandon(self, served: Relayed, requester: Requester, journal: Journal) -> None:
        """See `Relay`."""

    async def prepare_task(self, served: Relayed, requester: Requester, journal: Journal) -> None:
        """Keep nothing."""


def relayed_tool(upstream: str, name: str, **options: Any) -> RelayedTool:
    """Return a tool of an upstream, by the name that clients use. Unknown options are members of its entry."""
    known = {"listed", "scopes", "task", "start", "after_seconds"}
    entry = {"name": name, "inputSchema": {"type": "object"}}
    entry.update({key: value for key, value in options.items() if key not in known})
    return RelayedTool(EchoRelay(upstream), entry, **{key: options[key] for key in options if key in known})


def relayed_prompt(upstream: str, name: str, **options: Any) -> RelayedPrompt:
    """Return a prompt of an upstream."""
    return RelayedPrompt(EchoRelay(upstream), {"name": name}, **options)


def relayed_resource(upstream: str, uri: str, **options: Any) -> RelayedResource:
    """Return a resource of an upstream, or a template of resources."""
    if "{" in uri:
        entry = {"name": uri, "uriTemplate": uri}
        return RelayedResource(EchoRelay(upstream), entry, **options)
    return RelayedResource(EchoRelay(upstream), {"name": uri, "uri": uri}, **options)


def part(
    name: str,
    names: Iterable[str] = (),
    *,
    prefix: str | None = None,
    tool: Mapping[str, Any] | None = None,
    **options: Any,
) -> Part:
    """Return a part with one entry of each kind for every name.

    Args:
        name: the name of the upstream.
        names: what the upstream calls its entries.
        prefix: the prefix of the part; by default its name.
        tool: options of each tool, see `relayed_tool`.
        **options: other attributes of the part.
    """
    own = name if prefix is None else prefix
    before, scheme = (f"{own}__", f"{own}+docs") if own else ("", "docs")
    tools = [relayed_tool(name, f"{before}{each}", **(tool or {})) for each in names]
    prompts = [relayed_prompt(name, f"{before}{each}") for each in names]
    resources = [relayed_resource(name, f"{scheme}://{each}", announces_changes=True) for each in names]
    templates = [relayed_resource(name, f"{scheme}-{each}://{{name}}") for each in names]
    lists = {
        "tools": {each.name: each for each in tools},
        "prompts": {each.name: each for each in prompts},
        "resources": {each.uri: each for each in resources},
        "templates": {each.uri: each for each in templates},
    }
    return Part(name, own, **{**lists, **options})


class Unlisted:
    """Finds tools and resources that no list has, except denied ones."""

    def __init__(self, upstream: str, *, denied: str = "denied", **options: Any) -> None:
        self.upstream, self.denied, self.options = upstream, denied, options
        self.asked: list[tuple[str, str]] = []

    def find(self, kind: str, name: str, /) -> Relayed | None:
        """Return a relay unless the name contains the denied word."""
        self.asked.append((kind, name))
        if self.denied in name:
            return None
        if kind == "tools":
            return relayed_tool(self.upstream, name, listed=False, **self.options)
        if kind == "prompts":
            return relayed_prompt(self.upstream, name, listed=False, **self.options)
        return relayed_resource(self.upstream, name, listed=False, **self.options)

    async def find_for(self, kind: str, name: str, _requester: Requester, /) -> Relayed | None:
        """Return the same for every caller."""
        return self.find(kind, name)


class LastIsSecret(Unlisted):
    """Requires the scope `secret` for resources whose URI ends with an 8, and no scope for others."""

    def find(self, kind: str, name: str, /) -> Relayed | None:
        """Return a relay."""
        self.options["scopes"] = ["secret"] if name.endswith("8") else []
        return super().find(kind, name)
