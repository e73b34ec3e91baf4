"""The newest tasks of a caller, as the playground lists them, although the store sorts tasks by their expiry."""

from __future__ import annotations

import pytest

from gateway.calls import task_access
from gateway.calls.task_access import TaskAccess
from gateway.observability.audit import AuditLog
from gateway.registry.registry import Registry
from gateway.storage import RedisTaskStore
from gateway.tasks.model import Retention, TaskView
from tests.authorities import caller
from tests.storage.deployments import Deployment

TTLS_MS = (30_000, 60_000, 90_000, 120_000, 150_000)


async def until_a_later_millisecond(store: RedisTaskStore, owner: str, task: TaskView) -> None:
    """Wait until the store's clock has moved on since a task was created."""
    while (now := await store.get(owner, task.task_id)) is not None and now.now_ms <= task.created_ms:
        pass


async def test_the_newest_tasks_of_a_caller_come_first_over_all_pages(
    here: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_access, "_PAGE", 2)
    store, ada, bob = here.store(), caller("ada"), caller("bob")
    for ttl_ms in TTLS_MS:
        made = await store.create(here.new(ada.principal, retention=Retention("created", ttl_ms)), 10)
        await until_a_later_millisecond(store, here.owner(ada.principal), made)
    others = await store.create(here.new(bob.principal), 10)
    access = TaskAccess(store, AuditLog(len, "r1", float, as_json=True))
    newest = await access.newest(4, ada, Registry())
    created = [view.created_ms for view in newest]
    assert [view.ttl_ms for view in newest] == sorted(TTLS_MS, reverse=True)[:4]
    assert created == sorted(created, reverse=True)
    assert others.task_id not in {view.task_id for view in newest}
