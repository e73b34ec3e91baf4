"""Tests of every file of servers, which the modules of the files import."""

from __future__ import annotations

import json
import re

from tests.integration.clients.written import Written, read_from_both
from tests.published.published import Tried, calls_of
from tests.upstreams.site import Site
from tests.wires.draft.messages import call_params

VARYING = re.compile(
    rb"\d{4}-\d\d-\d\d[T ][0-9:.+-]+Z?|[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d{4} [0-9:]+ GMT|\b\d{1,2}:\d\d:\d\d\b"
    rb"|\b[0-9a-f]{40}\b"
)
"""Times, and the hashes of commits, which depend on them."""


async def test_every_tool_is_listed_and_is_called_here_or_says_why_not(servers: Tried, site: Site, name: str) -> None:
    tools = {tool["name"] for tool in json.loads(servers.direct[name].ask("tools/list", {})["tools"])}
    tried = calls_of(name)
    assert "*" in tried.left_out or tools == tried.calls.keys() | tried.left_out.keys()
    async with site.user() as user:
        for _ in site.urls:
            assert {f"{name}__{tool}" for tool in tools} <= set(await user.names())


async def test_a_result_is_that_of_a_direct_call(servers: Tried, site: Site, name: str, tool: str) -> None:
    places = servers.places
    arguments = places.put(calls_of(name).calls[tool])
    places.reset()
    expected = masked(servers.direct[name].call(tool, arguments).with_prefix(name))
    assert "content" in dict(expected)
    async with site.user() as user:
        params = call_params(f"{name}__{tool}", arguments)
        for result in await read_from_both(site, user, "tools/call", params, before=places.reset):
            assert masked(result) == expected


def masked(result: Written) -> list[tuple[str, bytes]]:
    """Return what the server wrote, without what depends on the time."""
    return [(name, VARYING.sub(b"VARYING", member)) for name, member in result.own()]
