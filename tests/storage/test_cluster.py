"""A cluster of three servers: every script finds its keys in one slot, and hints reach every node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from gateway.sealing.principal import Principal
from gateway.tasks.model import Phase, Progress
from gateway.tasks.ports import Heartbeat, Kept, Spending, TaskQuestion
from tests.storage.deployments import Deployment, seen

QUESTION = TaskQuestion(b"digest", "elicitation/create", {"message": "How many?"})
CALLERS = [Principal("issuer", name, "") for name in ("ada", "bob", "eve", "kim", "zoe")]


@pytest.fixture
async def spread(cluster: str) -> AsyncIterator[Deployment]:
    deployment = Deployment(cluster)
    yield deployment
    await deployment.aclose()


@pytest.mark.parametrize("caller", CALLERS, ids=[caller.subject for caller in CALLERS])
async def test_a_task_goes_through_all_its_phases(spread: Deployment, caller: Principal) -> None:
    store, queue, new = spread.store(), spread.queue(), spread.new(caller)
    await store.check()
    await store.create(new, 10)
    (claim,) = await spread.claim(queue, caller)
    await queue.keep(claim, Kept(steps={"one": 1}, progress=Progress(1)))
    await queue.emit(claim, 1, {"text": "a"})
    assert await queue.heartbeat(claim) is Heartbeat.OK
    await queue.release(claim, {**claim.journal, "steps": {"one": 1}})
    (claim,) = await spread.claim(queue, caller)
    await queue.wait(claim, {"k": QUESTION}, claim.journal)
    await store.answer(new.owner, new.task_id, {"k": {"result": 1}})
    (claim,) = await spread.claim(queue, caller)
    assert claim.journal["steps"] == {"one": 1}
    await queue.finish(claim, result={"content": []})
    view = await seen(store, new)
    assert view.phase is Phase.DONE
    assert await store.segments(new.owner, new.task_id) == [{"text": "a"}]
    assert (await store.totals())[Phase.DONE] == 1


@pytest.mark.parametrize("caller", CALLERS, ids=[caller.subject for caller in CALLERS])
async def test_tasks_are_listed_found_delivered_and_deleted(spread: Deployment, caller: Principal) -> None:
    store, awkward = spread.store(), ["{", "}{0}", "a:b", "x" * 128]
    for task_id in awkward:
        await store.create(spread.new(caller, task_id=task_id, request=f"request {task_id}"), 10)
    mine = spread.owner(caller)
    assert await store.of_request(mine, "request a:b") == "a:b"
    assert await store.deliver(mine, "a:b", "stream", 1000)
    assert not await store.deliver(mine, "a:b", "other", 1000)
    for task_id in awkward[:2]:
        assert await store.delete(mine, task_id) is not None
    views, last = await store.page(mine, None, 1)
    rest = await store.page(mine, last, 1)
    assert ({view.task_id for view in (*views, *rest.views)}, rest.last) == ({"a:b", "x" * 128}, None)


async def test_hints_reach_listeners_whichever_node_they_are_at(spread: Deployment) -> None:
    store = spread.store()
    tasks = [spread.new(caller) for caller in CALLERS]
    for new in tasks:
        await store.create(new, 10)
        async with aclosing(spread.store().watch(new.owner, [new.task_id])) as hints:
            await anext(hints)
            await store.cancel(new.owner, new.task_id)
            assert await anext(hints) == new.task_id


async def test_a_leg_is_spent_once(spread: Deployment) -> None:
    mine = spread.owner()
    outcomes = [(await spread.store().spend(mine, "flow", 1, b"d", 60_000, leg_ms=60_000)).outcome for _ in range(2)]
    assert outcomes == [Spending.FIRST, Spending.RUNNING]
