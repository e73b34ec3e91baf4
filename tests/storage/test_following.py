"""A follower of a task learns of its expiry, although the store sends no hint of that."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import Any

import pytest

from gateway.calls.changes import ChangeHub, Subscription
from gateway.calls.task_access import TaskAccess
from gateway.calls.task_follower import TaskFollower, pumping
from gateway.observability.audit import AuditLog
from gateway.storage import RedisTaskStore, task_store
from gateway.storage.client import connect
from gateway.tasks.model import Retention
from loadtest.cluster.common import free_port
from tests.authorities import authorities, caller
from tests.storage.deployments import Deployment

TTL_MS = 300
LIMIT_SECONDS = 30


async def test_a_follower_learns_of_a_tasks_expiry_without_polling(
    here: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_store, "RECHECK_SECONDS", 3600.0)
    store, user = here.store(), caller("ada")
    reads: list[str] = []
    read = store.get

    async def get(owner: str, task_id: str) -> Any:
        reads.append(task_id)
        return await read(owner, task_id)

    monkeypatch.setattr(store, "get", get)
    created = await store.create(here.new(user.principal, retention=Retention("created", TTL_MS)), 10)
    follower = TaskFollower(
        TaskAccess(store, AuditLog(len, "r1", float, as_json=True)),
        ChangeHub(),
        authorities(),
    )
    async with asyncio.timeout(LIMIT_SECONDS), contextlib.aclosing(follower.views(created, user)) as views:
        seen = [view async for view in views]
    assert seen[-1] is None
    assert len(reads) <= 4


async def test_a_store_that_is_away_ends_a_stream_of_tasks_with_a_warning(
    here: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"redis://127.0.0.1:{free_port()}"
    away = RedisTaskStore(connect(url, here.telemetry), here.holder(), partitions=1, max_ttl_ms=TTL_MS)
    access = TaskAccess(away, AuditLog(len, "r1", float, as_json=True))
    subscription = Subscription(["t_1"])
    pump = pumping(access, ["t_1"], caller("ada"), subscription, str)
    async with asyncio.timeout(LIMIT_SECONDS), contextlib.aclosing(away), pump:
        assert not await subscription.changed()
    gc.collect()  # a task whose exception nobody has looked at is reported then
    assert "a stream of tasks ends, because the task store is not available" in caplog.messages
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
