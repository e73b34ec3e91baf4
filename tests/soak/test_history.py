"""The history of tasks is read from the file that a real server keeps, over its restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.cluster import RedisServer
from tests.soak.history import illegal, read_history, read_lost
from tests.soak.store import Store
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


async def test_it_continues_in_the_file_of_a_promoted_replica_which_shows_what_was_lost(tmp_path: Path) -> None:
    store = Store(tmp_path)
    deployment = Deployment(store.address.url)
    tasks, queue = deployment.store(), deployment.queue()
    try:
        store.primary.restart()
        await tasks.check()
        await tasks.create(deployment.new(task_id="t_kept"), 9)
        claim = await deployment.claim_one(queue)
        await asyncio.to_thread(store.fail_over, 0)
        await queue.finish(claim, result={})
        store.primary.terminate()
    finally:
        await deployment.aclose()
        store.close()
    assert read_history(store.folders) == {"t_kept": ["queued", "running", "done"]}
    assert read_lost(store.folders) == set()
    with next(store.folders[0].rglob("*.aof")).open("ab") as file:
        file.write(entry(b"HSET", b"x:task:t_late", b"phase", b"queued"))
    assert read_lost(store.folders) == {"t_late"}


def entry(*command: bytes) -> bytes:
    """Return a command as it is in the file."""
    return b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in command)


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
