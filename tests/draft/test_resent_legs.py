"""A leg that becomes a task, and is sent again: by a client that missed the answer, or by a proxy."""

from __future__ import annotations

import asyncio

from tests.draft.client import DraftClient
from tests.draft.deployment import Deployment
from tests.draft.messages import accept, retry_params
from tests.draft.written import call

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
