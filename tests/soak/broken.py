"""Breaks the gateway as `SOAK_BREAKAGE` says; served together with the tools of the soak, and names one of them itself.

The ledger has to notice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gateway.cli import own_requests
from gateway.storage import RedisTaskStore, RedisWorkQueue
from gateway.tasks.model import TaskView
from gateway.tasks.ports import Claim, NewTask
from tests.soak.tools import plain

__all__ = ["plain"]

BREAKAGE = "SOAK_BREAKAGE"

create, finish = RedisTaskStore.create, RedisWorkQueue.finish


async def create_and_lose(self: RedisTaskStore, new: NewTask, *limits: int) -> TaskView:
    view = await create(self, new, *limits)
    await self._client.command("DEL", self._keys.place(new.owner, new.task_id).task)
    return view


async def answer_nothing(self: RedisTaskStore, owner: str, task_id: str, answers: object) -> TaskView | None:
    return await self.get(owner, task_id)


async def finish_twice(self: RedisWorkQueue, claim: Claim, **ending: Any) -> None:
    await finish(self, claim, **ending)
    await self._client.command("HSET", self._keys.place(claim.owner, claim.task_id).task, "phase", "running")
    await finish(self, claim, **ending)


def everything(*_: object) -> Iterator[str]:
    """Let the balancer send everything again, also what an upstream may have done."""
    yield own_requests.EVERYTHING


BREAKAGES: Mapping[str, tuple[Any, str, Callable[..., Any]]] = {
    "the balancer repeats calls of upstreams": (own_requests, "_own", everything),
    "acknowledged tasks are lost": (RedisTaskStore, "create", create_and_lose),
    "answers are lost": (RedisTaskStore, "answer", answer_nothing),
    "tasks end twice": (RedisWorkQueue, "finish", finish_twice),
}

if BREAKAGE in os.environ:
    setattr(*BREAKAGES[os.environ[BREAKAGE]])
