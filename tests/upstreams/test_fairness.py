"""One caller takes an upstream from nobody, whatever its calls do."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests.upstreams.servers.hostile import Hostile
from tests.upstreams.site import Site, User, entry

pytestmark = pytest.mark.slow

HARMFUL = ("silence", "failed", "huge_body", "wrong_id", "cut", "not_json")
PLACES = 8
GOOD_CALLS = 60


async def harm(user: User, tool: str, seconds: float) -> None:
    """Call a tool again and again; leave each call after a while."""
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await user.call(f"bad__{tool}")


@pytest.mark.parametrize("seconds", [0.2, 20], ids=["aborted", "not aborted"])
async def test_failing_slow_huge_and_aborted_calls_of_one_caller_cost_another_one_none_of_its_own(
    tmp_path: Path, seconds: float
) -> None:
    with Hostile() as server:
        limits = {"timeout_seconds": 1.0, "max_result_bytes": 1 << 20, "max_in_flight": PLACES}
        with Site(tmp_path, {"bad": entry(server.url, **limits)}, None, names=["r1"]) as site:
            site.wait_listed("bad")
            async with site.user("mallory") as mallory, site.user("alice") as alice:
                harming = [
                    asyncio.create_task(harm(mallory, HARMFUL[number % len(HARMFUL)], seconds))
                    for number in range(3 * PLACES)
                ]
                try:
                    texts = [(await alice.call("bad__echo")).text for _ in range(GOOD_CALLS)]
                finally:
                    for task in harming:
                        task.cancel()
                    await asyncio.wait(harming)
            assert texts == ["fine"] * GOOD_CALLS
            assert site.metric("gateway_upstream_failures_total", upstream="bad", reason="breaker_open") == 0
