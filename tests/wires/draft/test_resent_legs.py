"""A leg that becomes a task, and is sent again: by a client that missed the answer, or by a proxy."""

from __future__ import annotations

import asyncio

from tests.wires.draft.client import DraftClient
from tests.wires.draft.conftest import ClientOf
from tests.wires.draft.deployment import Deployment
from tests.wires.draft.first_form import refusal
from tests.wires.draft.messages import accept, retry_params
from tests.wires.draft.written import call

SMALL = {"size": accept(size="small")}
LARGE = {"size": accept(size="large")}
WANTED = call("provision_vm") | {"task": {}}


async def test_a_leg_that_is_sent_again_finds_its_task_at_any_replica(user: DraftClient, fleet: Deployment) -> None:
    retry = WANTED | await retry_params(await user.request("tools/call", WANTED), SMALL)
    first = await user.request("tools/call", retry)
    again = [await user.request("tools/call", retry) for _ in fleet.urls]
    assert {one["task"]["taskId"] for one in again} == {first["task"]["taskId"]}
    assert len(await user.all_tasks()) == 1
    assert set(user.urls_of()) == set(fleet.urls)


async def test_legs_that_are_sent_at_once_become_one_task(user: DraftClient) -> None:
    retry = WANTED | await retry_params(await user.request("tools/call", WANTED), SMALL)
    told = await asyncio.gather(*(user.request("tools/call", retry) for _ in range(8)))
    assert len({one["task"]["taskId"] for one in told}) == 1
    assert len(await user.all_tasks()) == 1


async def test_a_leg_that_is_sent_again_finds_its_task_whatever_else_it_wishes(
    user: DraftClient, client_of: ClientOf, name: str
) -> None:
    """Another time to live, other modes, or a session that declares less: the work is the same."""
    retry = WANTED | await retry_params(await user.request("tools/call", WANTED), SMALL)
    first = await user.request("tools/call", retry)
    again = await user.request("tools/call", retry | {"task": {"ttl": 60_000, "responseModes": ["task"]}})
    assert again["task"]["taskId"] == first["task"]["taskId"]
    modest = client_of(name, capabilities={"elicitation": {}})
    await modest.initialize()
    assert (await modest.request("tools/call", retry))["task"]["taskId"] == first["task"]["taskId"]
    assert len(await user.all_tasks()) == 1


async def test_another_answer_is_another_leg(user: DraftClient) -> None:
    asked = await user.request("tools/call", WANTED)
    tasks = [await user.request("tools/call", WANTED | await retry_params(asked, each)) for each in (SMALL, LARGE)]
    assert len({one["task"]["taskId"] for one in tasks}) == 2


async def test_a_leg_that_is_sent_again_after_its_task_was_deleted_is_refused(user: DraftClient) -> None:
    retry = WANTED | await retry_params(await user.request("tools/call", WANTED), SMALL)
    await user.delete_task((await user.request("tools/call", retry))["task"]["taskId"])
    for _ in range(2):
        error = await refusal(user.request("tools/call", retry))
        assert error.message == "This request became a task that was deleted. Call again to start over"
    assert await user.all_tasks() == []
