"""A caller whose calls all get large answers does not use up the memory of a replica, whatever is in the answers."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from loadtest.cluster import REPOSITORY, Replica, wait_until
from tests.integration.fleet import Fleet
from tests.security.costs import Sent, call
from tests.security.crowd import AUDIENCE, SECRET, Storm, p99, peak_bytes, times_of
from tests.upstreams.servers.plain_http import Exchange, PlainServer

pytestmark = pytest.mark.slow

PROGRAM: Final = REPOSITORY / "tests" / "upstreams" / "servers" / "large.py"
WRITER: Final = REPOSITORY / "tests" / "upstreams" / "servers" / "lines.py"
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


async def answer_in_session(exchange: Exchange) -> None:
    """Serve the same tool to clients that have begun a session."""
    message = json.loads(exchange.body) if exchange.method == "POST" else {}
    if exchange.method != "POST" or "id" not in message:
        exchange.reply(202 if exchange.method == "POST" else 405)
    elif message["method"] == "tools/call":
        exchange.reply(200, ANSWER % message["id"], [("content-type", "application/json")])
    elif message["method"] == "initialize":
        version, info = message["params"]["protocolVersion"], {"name": "large", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        exchange.reply(200, body, [("content-type", "application/json"), ("mcp-session-id", "s")])
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": "large", "inputSchema": {"type": "object"}}]}
        exchange.json({"jsonrpc": "2.0", "id": message["id"], "result": result})
    else:
        exchange.json({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32600, "message": "no session"}}, 400)


def entry_of(kind: str, stack: contextlib.ExitStack) -> dict[str, Any]:
    """Start an upstream, or say how it is started."""
    if kind == "program":
        return {"command": sys.executable, "args": ["-S", str(PROGRAM), str(TEXT_BYTES)]}
    server = PlainServer(answer_in_session if kind == "session" else answer)
    return {"type": "http", "url": stack.enter_context(server).url}


@pytest.fixture(params=["stateless", "session", "program"])
def replica(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Replica]:
    with contextlib.ExitStack() as stack:
        entries = [entry_of(request.param, stack) for _ in range(UPSTREAMS)]
        yield stack.enter_context(serving(tmp_path, entries))


@contextlib.contextmanager
def serving(tmp_path: Path, entries: list[dict[str, Any]]) -> Iterator[Replica]:
    """Start a replica, and wait until it has the lists that are not of one caller."""
    with contextlib.ExitStack() as stack:
        file = tmp_path / "upstreams.json"
        file.write_text(json.dumps({"mcpServers": {f"up{number}": entry for number, entry in enumerate(entries)}}))
        environ = {
            "GATEWAY_TOOLS": "tests.security.crowd",
            "GATEWAY_UPSTREAMS": str(file),
            "GATEWAY_AUDIENCE": AUDIENCE,
            "GATEWAY_AUTH": "jwt",
            "GATEWAY_JWT_SECRET": SECRET,
        }
        fleet = stack.enter_context(Fleet(tmp_path / "fleet", environ, names=["r1"]))
        for number in [each for each, entry in enumerate(entries) if "gateway" not in entry]:
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


@pytest.mark.timeout(60)
def test_large_lines_of_programs_that_answer_nothing_take_little_memory(tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": ["-S", str(WRITER), str(TEXT_BYTES)], "gateway": {"scope": "caller"}}
    with serving(tmp_path, [entry] * 3) as replica:
        storms = [Storm(replica, f"caller{number}") for number in range(4)]
        with contextlib.ExitStack() as stack:
            for storm in storms:
                for number in range(3):
                    stack.enter_context(storm.raging(call(f"up{number}__write", "{}"), 1))
        assert [storm.statuses[200] for storm in storms] == [3, 3, 3, 3]
        assert peak_bytes(replica) < MAX_PEAK_BYTES
