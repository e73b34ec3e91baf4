"""A caller with many large requests uses up neither the memory nor the time of a replica."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.cluster import Replica, wait_until
from tests.integration.fleet import Fleet
from tests.security.costs import Sent, call
from tests.security.crowd import AUDIENCE, SECRET, Storm, holding_upstream, p99, peak_bytes, times_of
from tests.security.hostile_bodies import KINDS, TEXT

pytestmark = pytest.mark.slow

SIZE = 2**20 - 1024
MAX_PEAK_BYTES = 512 * 2**20
MOST_TIMES = 10
"""The 99th percentile beside hostile JSON may be so many times that beside the same bytes of text."""

LEAST_SECONDS = 0.1
"""As if it took at least this long beside text: what takes less is hardly noticed."""

LONGEST_SECONDS = 5.0
"""Five times what it may take on a machine with nothing else to do."""

DENSEST = KINDS["arrays 90 deep"]
FEW = pytest.mark.parametrize("count", [60, pytest.param(200, marks=pytest.mark.repeats)])
TOOLS = {"own": "hold", "upstream": "up__hold"}
DEAREST = ("rows of objects", "objects 90 deep", "names of fractions")


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    with holding_upstream() as upstream:
        entry = {"type": "http", "url": upstream.url, "gateway": {"prefix": "up"}}
        file = tmp_path / "upstreams.json"
        file.write_text(json.dumps({"mcpServers": {"up": entry}}))
        environ = {
            "GATEWAY_TOOLS": "tests.security.crowd",
            "GATEWAY_UPSTREAMS": str(file),
            "GATEWAY_AUDIENCE": AUDIENCE,
            "GATEWAY_AUTH": "jwt",
            "GATEWAY_JWT_SECRET": SECRET,
        }
        with Fleet(tmp_path / "fleet", environ, names=["r1"]) as fleet:
            wait_until(lambda: fleet["r1"].metric("gateway_upstream_entries", upstream="up") > 0, "the upstream's list")
            yield fleet["r1"]


def sent(tool: str, value: str) -> Sent:
    return call(tool, f'{{"value":{value}}}')


def beside(replica: Replica, request: Sent, count: int) -> float:
    """Return the 99th percentile of another caller's times while one sends so many requests. None of them fails."""
    storm = Storm(replica, "greedy")
    with storm.raging(request, count) as ended:
        times, statuses = times_of(replica, "benign", ended)
    assert set(statuses) == {200}
    assert storm.statuses.keys() <= {200, 503}
    assert storm.statuses[200] > 0
    assert storm.statuses[503] > 0  # the rest of its share is for others
    return p99(times)


@pytest.mark.repeats
@pytest.mark.parametrize("size", [60 * 1024, 300 * 1024])
@pytest.mark.parametrize("tool", TOOLS.values())
@pytest.mark.parametrize("place", ["arguments", "_meta"])
@pytest.mark.timeout(300)
def test_bodies_dense_in_values_take_little_memory_wherever_the_values_are(
    replica: Replica, place: str, tool: str, size: int
) -> None:
    value = DENSEST.filled(size)
    request = sent(tool, value if place == "arguments" else "1")
    if place == "_meta":
        request = replace(request, meta=f'{{"example.com/x":{value},{request.meta.lstrip()[1:]}')
    beside(replica, request, 400)
    assert peak_bytes(replica) < MAX_PEAK_BYTES


@FEW
@pytest.mark.parametrize("where", TOOLS)
@pytest.mark.timeout(300)
def test_hostile_json_of_one_caller_takes_little_memory_and_others_hardly_notice(
    replica: Replica, where: str, count: int
) -> None:
    tool = TOOLS[where]
    by_text = max(beside(replica, sent(tool, TEXT.filled(SIZE)), count) for _ in range(2))
    for name in DEAREST:
        by_json = beside(replica, sent(tool, KINDS[name].filled(SIZE)), count)
        assert by_json < MOST_TIMES * max(by_text, LEAST_SECONDS), name
        assert by_json < LONGEST_SECONDS, name
        assert peak_bytes(replica) < MAX_PEAK_BYTES, name


@pytest.mark.parametrize(
    ("tool", "value", "count"),
    [("hold_rows", "{}", 29_000), ("hold_decimals", "1", 85_000), ("hold_queues", "[]", 24_000)],
)
@pytest.mark.timeout(300)
def test_objects_that_are_made_of_short_json_count_while_a_tool_keeps_them(
    replica: Replica, tool: str, value: str, count: int
) -> None:
    beside(replica, sent(tool, f"[{','.join([value] * count)}]"), 200)
    assert peak_bytes(replica) < MAX_PEAK_BYTES
