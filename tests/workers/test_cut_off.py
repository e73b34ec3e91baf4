"""A worker that cuts off a leg stores its outcome if it has one, and otherwise does what the attempts allow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import pytest

from gateway import Context, tool
from gateway.authoring.asyncio_host import AsyncioHost
from gateway.engine.journal import Journal
from gateway.errors import TaskStoreDown
from gateway.observability.audit import AuditLog
from gateway.storage import RedisWorkQueue
from gateway.tasks.ports import Claim
from gateway_workers.heartbeats import Heart
from gateway_workers.metrics import WorkerTelemetry
from gateway_workers.worker import Work, Worker
from tests.calls.policies import POLICY
from tests.workers.test_task_writer import make_claim
from tests.workers.tools import Name


@tool(task="required")
async def work(ctx: Context) -> str:
    """Take a step, then work without an end."""
    await ctx.step("first", lambda: "done")
    await asyncio.Event().wait()
    return "never"


@tool(task="required")
async def end(ctx: Context) -> str:
    """End at once."""
    return "the result"


@tool(task="required")
async def ask(ctx: Context) -> str:
    """Ask at once."""
    return (await ctx.elicit("name", "Who are you?", Name)).name


class Queue:
    """Hands out one task, and notes how it is given back.

    Args:
        claim: the task.
        refuses: whether it refuses outcomes for now.
        silent: whether it does not answer a question that comes before the tool begins.

    Attributes:
        reached: set when the leg is where the test wants it.
        stored: what the worker stored in the end.
    """

    partitions = 1

    def __init__(self, claim: Claim, *, refuses: bool, silent: bool) -> None:
        self.claims = [claim]
        self.refuses = refuses
        self.silent = silent
        self.reached = asyncio.Event()
        self.stored: list[tuple[str, Any]] = []

    async def claim(self, *_: object) -> list[Claim]:
        await asyncio.sleep(0.01)
        claims, self.claims = self.claims, []
        return claims

    async def segments(self, *_: object) -> list[Any]:
        if self.silent:
            self.reached.set()
            await asyncio.Event().wait()
        return []

    async def keep(self, *_: object) -> None:
        self.reached.set()

    async def finish(self, _claim: Claim, *, result: Any = None, error: Any = None) -> None:
        self._store("finish", result if error is None else error)

    async def wait(self, _claim: Claim, questions: Mapping[str, Any], _journal: object) -> None:
        self._store("wait", list(questions))

    async def release(self, _claim: Claim, journal: Mapping[str, Any]) -> None:
        self._store("release", journal.get("steps"))

    def _store(self, how: str, value: Any) -> None:
        if self.refuses:
            self.reached.set()
            raise TaskStoreDown
        self.stored.append((how, value))

    async def cancellations(self) -> AsyncIterator[tuple[str, str]]:
        await asyncio.Event().wait()
        yield "", ""

    async def leave(self) -> None: ...


class NoHeart:
    """Prolongs no lease."""

    def add(self, *_: object) -> None: ...

    def remove(self, *_: object) -> None: ...


async def cut_off(name: str, *, attempts: int, refuses: bool = False, silent: bool = False) -> tuple[str, Any]:
    """Let a worker begin a task, make it hurry, and return what it stored; for the options see `Queue`."""
    claim = make_claim()
    claim.tool, claim.max_attempts, claim.segments = name, attempts, 1 if silent else 0
    claim.capabilities = {"elicitation": {"form": {}}}
    claim.journal = Journal.begin(now_ms=1, flow_max_ms=60_000, random_bytes=bytes).to_map()
    queue = Queue(claim, refuses=refuses, silent=silent)
    worker = Worker(
        Work(
            tools={each.name: each for each in (work, end, ask)},
            queue=cast("RedisWorkQueue", queue),
            host=AsyncioHost(None, "w1"),
            telemetry=WorkerTelemetry([name], 1),
            audit=AuditLog(len, "w1", float, as_json=True),
            policy=POLICY,
        ),
        cast("Heart", NoHeart()),
        1,
    )
    async with asyncio.timeout(20):
        running = asyncio.create_task(worker.run(60))
        await queue.reached.wait()
        queue.refuses = False
        worker.leave()
        worker.hurry()
        assert await running is False
    (stored,) = queue.stored
    return stored


LOST = {"code": -32603, "message": "The task failed: too many of its workers were lost", "data": {"attempts": 1}}


@pytest.mark.parametrize(
    ("attempts", "stored"),
    [(1, ("finish", LOST)), (2, ("release", {"first": "done"})), (3, ("release", {"first": "done"}))],
)
async def test_in_the_middle_of_a_tool_only_a_task_that_may_be_tried_again_goes_back(
    attempts: int, stored: tuple[str, Any]
) -> None:
    assert await cut_off("work", attempts=attempts) == stored


async def test_before_the_tool_has_begun_every_task_goes_back() -> None:
    assert await cut_off("work", attempts=1, silent=True) == ("release", None)


async def test_a_result_that_the_store_has_not_taken_yet_is_stored_instead() -> None:
    how, result = await cut_off("end", attempts=1, refuses=True)
    assert (how, result["content"][0]["text"]) == ("finish", "the result")


async def test_a_question_that_the_store_has_not_taken_yet_is_stored_instead() -> None:
    assert await cut_off("ask", attempts=1, refuses=True) == ("wait", ["name"])
