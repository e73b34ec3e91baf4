"""The history of tasks is read from the file that a real server keeps, over its restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.cluster import RedisServer
from tests.soak.history import illegal, read_history
from tests.storage.deployments import Deployment


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.restart()
    yield server
    server.stop()


async def test_every_phase_of_every_task_is_in_it(server: RedisServer, tmp_path: Path) -> None:
    deployment = Deployment(server.url)
    store, queue = deployment.store(), deployment.queue()
    await store.check()
    finished, cancelled, waiting = [deployment.new(task_id=f"t_{name}") for name in ("done", "cancelled", "waiting")]
    await store.create(finished, 9)
    claim = await deployment.claim_one(queue)
    server.kill()
    server.restart()
    await queue.finish(claim, result={"content": [{"type": "text", "text": "phase\r\n*1\r\n$5\r\nphase"}]})
    for new in (cancelled, waiting):
        await store.create(new, 9)
    await store.cancel(deployment.owner(), cancelled.task_id)
    await deployment.aclose()
    server.terminate()
    assert read_history([tmp_path]) == {
        "t_done": ["queued", "running", "done"],
        "t_cancelled": ["queued", "cancelled"],
        "t_waiting": ["queued"],
    }


@pytest.mark.parametrize(
    ("phases", "wrong"),
    [
        (["queued", "running", "running", "waiting", "queued", "running", "done"], None),
        (["queued", "running", "queued", "cancelled"], None),
        (["running"], "nothing → running"),
        (["queued", "done"], "queued → done"),
        (["queued", "running", "done", "done"], "done → done"),
        (["queued", "cancelled", "running"], "cancelled → running"),
        (["queued", "running", "waiting", "running"], "waiting → running"),
    ],
)
def test_a_forbidden_way_is_reported(phases: list[str], wrong: str | None) -> None:
    assert illegal(phases) == wrong
