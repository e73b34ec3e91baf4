"""The tasks of all owners, as operators see and cancel them, on each kind of server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.storage import all_tasks
from gateway.storage.all_tasks import UNFINISHED, TaskFacts
from gateway.storage.lua.task_scripts import PLAIN_FIELDS
from gateway.storage.redis_keys import PHASES
from gateway.tasks.model import Phase
from gateway.tasks.ports import TaskQuestion
from tests.storage.deployments import ALICE, BOB, Deployment

QUESTION = TaskQuestion(b"digest", "elicitation/create", {"message": "How many?"})


@pytest.fixture
async def spread(cluster: str) -> AsyncIterator[Deployment]:
    deployment = Deployment(cluster)
    yield deployment
    await deployment.aclose()


async def walked(here: Deployment, *phases: Phase) -> dict[str, TaskFacts]:
    return {task.task_id: task async for task in here.store().all_tasks().walk(phases or UNFINISHED)}


async def check_lives(here: Deployment) -> None:
    """Lead tasks of two owners through their phases, and look at them, then cancel them."""
    store, queue = here.store(), here.queue("w7")
    asking, running, done = (here.new(tool=f"tool {number}") for number in range(3))
    for new in (asking, running, done):
        await store.create(new, 10)
    claims = await here.claim(queue, count=3)
    by_id = {claim.task_id: claim for claim in claims}
    await queue.wait(by_id[asking.task_id], {"a": QUESTION, "b": QUESTION}, asking.journal)
    await queue.finish(by_id[done.task_id], result={"content": []})
    queued = here.new(BOB)
    await store.create(queued, 10)

    seen = await walked(here)
    assert {task_id: task.phase for task_id, task in seen.items()} == {
        asking.task_id: Phase.WAITING,
        running.task_id: Phase.RUNNING,
        queued.task_id: Phase.QUEUED,
    }
    assert (await walked(here, Phase.DONE)).keys() == {done.task_id}
    assert seen[asking.task_id].open_questions == 2
    assert (seen[running.task_id].worker, seen[running.task_id].tool) == ("w7", "tool 1")
    assert seen[running.task_id].silent_ms < 60_000
    assert {seen[running.task_id].owner, seen[queued.task_id].owner} == {here.owner(ALICE), here.owner(BOB)}
    assert all(task.readable and task.lost == 0 and task.now_ms >= task.created_ms for task in seen.values())

    tasks = store.all_tasks()
    for task in seen.values():
        after = await tasks.cancel(task)
        assert after is not None
        assert after.phase is Phase.CANCELLED
    assert await walked(here) == {}
    assert (await tasks.totals())[Phase.CANCELLED] == 3


async def test_tasks_of_all_owners_are_listed_and_cancelled(here: Deployment) -> None:
    await check_lives(here)


@pytest.mark.slow
async def test_tasks_of_all_owners_are_listed_and_cancelled_in_a_cluster(spread: Deployment) -> None:
    await check_lives(spread)


async def test_a_long_list_is_read_in_pages(here: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_tasks, "AT_ONCE", 2)
    store = here.store()
    created = [here.new(owner) for owner in (ALICE, BOB) for _ in range(5)]
    for new in created:
        await store.create(new, 10)
    assert (await walked(here)).keys() == {new.task_id for new in created}


async def test_only_wanted_tasks_are_read(here: Deployment) -> None:
    store, first = await here.stored()
    await store.create(here.new(), 10)
    await store.create(here.new(BOB, task_id=first.task_id), 10)
    tasks = store.all_tasks()

    async def owners(task_id: str, owner: str = "") -> set[str]:
        found = tasks.walk(PHASES, lambda name, each: each == task_id and name.startswith(owner))
        return {task.owner async for task in found}

    assert await owners(first.task_id) == {here.owner(ALICE), here.owner(BOB)}
    assert await owners(first.task_id, here.owner(BOB)[:12]) == {here.owner(BOB)}
    assert await owners("t_0") == set()


@pytest.mark.parametrize("damage", [{"about": b'{"v":99}'}, {"phase": b"odd"}, {"created": b"x"}], ids=str)
async def test_a_record_that_cannot_be_read_is_listed_and_stays_as_it_is(
    here: Deployment, damage: dict[str, bytes]
) -> None:
    store, new = await here.stored()
    key = here.keys.place(new.owner, new.task_id).task
    await store._client.command("HSET", key, *next(iter(damage.items())))
    (task,) = (await walked(here)).values()
    assert (task.task_id, task.phase, task.readable) == (new.task_id, Phase.QUEUED, False)
    after = await store.all_tasks().cancel(task)
    assert after is not None
    assert after.phase is Phase.QUEUED


async def test_a_deleted_task_is_not_listed(here: Deployment) -> None:
    store, new = await here.stored()
    (task,) = (await walked(here)).values()
    await store.delete(new.owner, new.task_id)
    assert await walked(here, *PHASES) == {}
    assert await store.all_tasks().cancel(task) is None


async def test_what_a_caller_wrote_is_not_even_read(here: Deployment) -> None:
    assert not set(PLAIN_FIELDS) & {"call", "capabilities", "message", "questions", "result", "error", "why"}
    _, queue, new, claim = await here.begun()
    await queue.wait(claim, {"key": QUESTION}, new.journal)
    (task,) = (await walked(here)).values()
    assert "alice" not in repr(task)
    assert "Oslo" not in repr(task)
