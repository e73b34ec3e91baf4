"""A caller whose calls all get large answers does not use up the memory of a replica, whatever is in the answers."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from loadtest.cluster import Replica, wait_until
from tests.integration.fleet import Fleet
from tests.security.costs import Sent, call
from tests.security.crowd import AUDIENCE, SECRET, Storm, p99, peak_bytes, times_of
from tests.upstreams.servers.plain_http import Exchange, PlainServer

pytestmark = pytest.mark.slow

UPSTREAMS: Final = 4
CALLS: Final = 200
TEXT_BYTES: Final = 15_000_000
MAX_PEAK_BYTES: Final = 512 * 2**20
LONGEST_SECONDS: Final = 5.0

ANSWER: Final = (
    b'{"jsonrpc":"2.0","id":%d,"result":{"resultType":"complete","content":[{"type":"text","text":"'
    + b"x" * TEXT_BYTES
    + "\N{GRINNING FACE}".encode()
    + b'"}]}}'
)
"""One character in its text makes all others take four bytes each."""


async def answer(exchange: Exchange) -> None:
    """Serve a tool with a large result."""
    found = re.search(rb'"id":(\d+)', exchange.body[:200])
    if found is None or exchange.method != "POST":
        exchange.reply(405 if exchange.method != "POST" else 202)
    elif exchange.header("mcp-method") == "tools/call":
        exchange.reply(200, ANSWER % int(found[1]), [("content-type", "application/json")])
    else:
        lists = {"ttlMs": 60_000, "cacheScope": "public"}
        if exchange.header("mcp-method") == "tools/list":
            result = {"tools": [{"name": "large", "inputSchema": {"type": "object"}}], **lists}
        else:
            result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **lists}
        exchange.json({"jsonrpc": "2.0", "id": int(found[1]), "result": {"resultType": "complete", **result}})


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(PlainServer(answer)).url for _ in range(UPSTREAMS)]
        file = tmp_path / "upstreams.json"
        file.write_text(
            json.dumps({"mcpServers": {f"up{n}": {"type": "http", "url": url} for n, url in enumerate(urls)}})
        )
        environ = {
            "GATEWAY_TOOLS": "tests.security.crowd",
            "GATEWAY_UPSTREAMS": str(file),
            "GATEWAY_AUDIENCE": AUDIENCE,
            "GATEWAY_AUTH": "jwt",
            "GATEWAY_JWT_SECRET": SECRET,
        }
        fleet = stack.enter_context(Fleet(tmp_path / "fleet", environ, names=["r1"]))
        for number in range(UPSTREAMS):
            wait_until(
                lambda name=f"up{number}": fleet["r1"].metric("gateway_upstream_entries", upstream=name) > 0,  # type: ignore[misc]
                "the upstream's list",
            )
        yield fleet["r1"]


def beside(replica: Replica, *requests: Sent) -> float:
    """Return the 99th percentile of another caller's times while one sends so many requests. None of them fails."""
    storm = Storm(replica, "greedy")
    with contextlib.ExitStack() as stack:
        ended = [stack.enter_context(storm.raging(request, CALLS // len(requests))) for request in requests]
        times, statuses = times_of(replica, "benign", ended[0])
    assert set(statuses) == {200}
    assert storm.statuses.keys() <= {200, 503}
    assert storm.statuses[200] > 0
    return p99(times)


@pytest.mark.timeout(300)
def test_large_answers_of_upstreams_to_one_caller_take_little_memory_and_others_hardly_notice(replica: Replica) -> None:
    assert beside(replica, *(call(f"up{number}__large", "{}") for number in range(UPSTREAMS))) < LONGEST_SECONDS
    assert peak_bytes(replica) < MAX_PEAK_BYTES
