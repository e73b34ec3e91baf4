"""A follower of a task learns of its expiry, although the store sends no hint of that."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from gateway.calls.changes import ChangeHub
from gateway.calls.task_access import TaskAccess
from gateway.calls.task_follower import TaskFollower
from gateway.observability.audit import AuditLog
from gateway.storage import task_store
from gateway.tasks.model import Retention
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
