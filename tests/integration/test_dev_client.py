"""`gateway dev` as a new user tries it: the real client through its front, a replica that dies, Ctrl-C."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.cluster import wait_until
from tests.cli.test_dev import Dev
from tests.integration.client import Answers, connect_to_url

pytestmark = pytest.mark.slow

DUPLICATE: Answers = {"resolution": {"resolution": "Duplicate"}, "duplicateOfId": {"duplicateOfId": 4301}}
RESOLVE = {"workItemId": 4522, "fields": {"System.State": "Resolved"}}


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    dev = Dev(cwd=tmp_path)
    try:
        dev.read_until_ready()
        yield dev
    finally:
        dev.close()


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_call_hops_from_replica_to_replica_also_while_one_dies_and_nothing_is_left_behind(dev: Dev) -> None:
    pids = {name: dev.pid_of(name) for name in ("r1", "r2")}
    url = f"http://127.0.0.1:{dev.port}/mcp"

    async def kill_r1(name: str) -> None:
        if name == "duplicateOfId":
            os.kill(pids["r1"], signal.SIGKILL)

    async with connect_to_url(url, DUPLICATE) as connection:
        text, is_error = await connection.call("update_work_item", RESOLVE)
        first, second, third = connection.balancer.legs("update_work_item")
    assert ("#4301" in text, is_error) == (True, False)
    assert first != second != third

    async with connect_to_url(url, DUPLICATE, before_answer=kill_r1) as connection:
        text, is_error = await connection.call("update_work_item", RESOLVE)
    assert ("#4301" in text, is_error) == (True, False)
    dev.read_until("r1 was killed by SIGKILL")
    dev.read_until("r1 is ready: pid")
    pids["r1 anew"] = dev.pid_of("r1")
    assert len(set(pids.values())) == 3

    async with connect_to_url(url, DUPLICATE) as connection:
        await connection.call("update_work_item", RESOLVE)
        assert set(connection.balancer.legs("update_work_item")) == {"r1", "r2"}

    dev.process.send_signal(signal.SIGINT)
    assert dev.end() == 0
    wait_until(lambda: not any(runs(pid) for pid in pids.values()), "all replicas to be gone")
