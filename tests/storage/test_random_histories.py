"""Random histories of one task with several workers, compared with a model."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import LeaseLost
from gateway.tasks.model import Phase
from gateway.tasks.ports import Claim, Heartbeat, Kept, TaskQuestion
from tests.storage.deployments import Deployment
from tests.storage.servers import Server
from tests.tasks.transitions import TRANSITIONS, Move

pytestmark = pytest.mark.slow

ENDINGS = {
    "wait": (Move.WAIT, Phase.WAITING),
    "release": (Move.RELEASE, Phase.QUEUED),
    "finish": (Move.FINISH, Phase.DONE),
}

actions = st.one_of(
    st.tuples(st.just("claim"), st.sampled_from(["w1", "w2"])),
    st.tuples(st.just("steal"), st.sampled_from(["w1", "w2"])),
    st.tuples(st.sampled_from(["keep", "emit", "heartbeat", "wait", "release", "finish"]), st.integers(0, 5)),
    st.tuples(st.just("answer"), st.sampled_from(["old", "half", "all"])),
    st.tuples(st.sampled_from(["cancel", "delete"]), st.just("")),
    st.tuples(st.just("deliver"), st.sampled_from(["left", "right"])),
)


@dataclass
class Model:
    """The expected state."""

    phase: Phase = Phase.QUEUED
    generation: int = 0
    steps: dict[str, int] = field(default_factory=dict)
    segments: int = 0
    asked: int = 0
    open: set[str] = field(default_factory=set)
    answered: dict[str, Any] = field(default_factory=dict)
    ended_by: list[int] = field(default_factory=list)
    deleted: bool = False
    stream: str | None = None

    def move(self, move: Move) -> bool:
        if self.phase not in TRANSITIONS[move]:
            return False
        self.phase = TRANSITIONS[move][self.phase]
        return True

    def holds(self, claim: Claim) -> bool:
        return self.phase is Phase.RUNNING and self.generation == claim.generation

    def delete(self) -> None:
        """To its workers, a deleted task is a cancelled one."""
        self.deleted, self.phase, self.ended_by = True, Phase.CANCELLED, []


class History:
    def __init__(self, here: Deployment) -> None:
        self.here = here
        self.store = here.store()
        self.queues = {name: here.queue(name) for name in ("w1", "w2")}
        self.thieves = {name: here.queue(name, lease_ms=0) for name in ("w1", "w2")}
        self.new = here.new(max_attempts=10_000)
        self.model = Model()
        self.claims: list[tuple[str, Claim]] = []

    async def run(self, steps: list[tuple[str, Any]]) -> None:
        await self.store.create(self.new, 10)
        for name, argument in steps:
            if name in ("claim", "steal"):
                await self.take(name, argument)
            elif name == "answer":
                await self.answer(argument)
            elif name == "cancel":
                await self.store.cancel(self.new.owner, self.new.task_id)
                self.model.move(Move.CANCEL)
            elif name == "delete":
                await self.delete()
            elif name == "deliver":
                await self.deliver(argument)
            elif self.claims:
                await self.work(name, *self.claims[argument % len(self.claims)])
            await self.compare()
        await self.bring_to_an_end()

    async def take(self, name: str, worker: str) -> None:
        claims = await self.here.claim((self.queues if name == "claim" else self.thieves)[worker], count=10)
        moved = self.model.move(Move.CLAIM) or (name == "steal" and self.model.move(Move.RECLAIM))
        assert len(claims) == int(moved)
        if not moved:
            return
        self.model.generation += 1
        (claim,) = claims
        assert claim.generation == self.model.generation
        assert claim.journal.get("steps", {}) == self.model.steps
        assert claim.segments == self.model.segments
        answers = {key: pairs[-1][1] for key, pairs in claim.journal.get("answers", {}).items()}
        assert answers == self.model.answered
        self.claims.append((worker, claim))

    async def work(self, name: str, worker: str, claim: Claim) -> None:
        queue, held = self.queues[worker], self.model.holds(claim)
        if name == "heartbeat":
            beat = await queue.heartbeat(claim)
            cancelled = self.model.phase is Phase.CANCELLED
            assert beat is (Heartbeat.OK if held else Heartbeat.CANCELLED if cancelled else Heartbeat.LOST)
            return
        repeated = (
            name in ENDINGS and self.model.phase is ENDINGS[name][1] and self.model.generation == claim.generation
        )
        try:
            await self.write(name, queue, claim)
        except LeaseLost:
            assert not held
            assert not repeated
            return
        assert held or repeated
        if held:
            self.learn(name, claim)

    async def write(self, name: str, queue: Any, claim: Claim) -> None:
        step = f"step-{claim.generation}-{len(self.model.steps)}"
        journal = {**claim.journal, "steps": dict(self.model.steps)}
        if name == "keep":
            await queue.keep(claim, Kept(steps={step: claim.generation}))
        elif name == "emit":
            await queue.emit(claim, self.model.segments + 1, {"n": self.model.segments + 1})
        elif name == "wait":
            question = TaskQuestion(b"digest", "elicitation/create", {})
            await queue.wait(claim, {"a": question, "b": question}, journal)
        elif name == "release":
            await queue.release(claim, journal)
        else:
            await queue.finish(claim, result={"by": claim.generation})

    def learn(self, name: str, claim: Claim) -> None:
        model = self.model
        if name == "keep":
            model.steps[f"step-{claim.generation}-{len(model.steps)}"] = claim.generation
        elif name == "emit":
            model.segments += 1
        else:
            assert model.move(ENDINGS[name][0])
            if name == "wait":
                model.asked += 1
                suffix = "" if model.asked == 1 else f"~{model.asked}"
                model.open = {f"a{suffix}", f"b{suffix}"}
            if name == "finish":
                model.ended_by.append(claim.generation)

    async def delete(self) -> None:
        view = await self.store.delete(self.new.owner, self.new.task_id)
        assert (view is None) == self.model.deleted
        assert view is None or view.phase is self.model.phase
        self.model.delete()

    async def deliver(self, stream: str) -> None:
        model = self.model
        may = not model.phase.ended and model.stream in (None, stream)
        assert await self.store.deliver(self.new.owner, self.new.task_id, stream, 60_000) is may
        if may:
            model.stream = stream

    async def answer(self, which: str) -> None:
        model = self.model
        keys = {"old": ["a"] if model.asked > 1 else ["c"], "half": sorted(model.open)[:1], "all": sorted(model.open)}[
            which
        ]
        await self.store.answer(self.new.owner, self.new.task_id, {key: {"result": key} for key in keys})
        if model.phase is not Phase.WAITING:
            return
        for key in model.open.intersection(keys):
            model.answered[key[0]] = {"result": key}
        model.open -= set(keys)
        if not model.open:
            model.move(Move.ANSWER)

    async def compare(self) -> None:
        view = await self.store.get(self.new.owner, self.new.task_id)
        page = await self.store.page(self.new.owner, None, 10)
        counted, real = self.here.kept_bytes()
        assert counted == real
        if self.model.deleted:
            assert (view, page.views) == (None, [])
            assert await self.store.segments(self.new.owner, self.new.task_id) == []
            return
        assert view is not None
        assert [replace(brief, now_ms=view.now_ms) for brief in page.views] == [
            replace(view, questions={}, capabilities={}, result=None if view.result is None else {})
        ]
        assert (view.phase, view.generation) == (self.model.phase, self.model.generation)
        assert set(view.questions) == (self.model.open if view.phase is Phase.WAITING else set())
        if view.phase is Phase.DONE:
            assert view.result == {"by": self.model.ended_by[0]}
        blocks = await self.store.segments(self.new.owner, self.new.task_id)
        assert blocks == [{"n": n + 1} for n in range(self.model.segments)]

    async def bring_to_an_end(self) -> None:
        """End the task, and check that it ends only once, whatever happened before."""
        if self.model.phase is Phase.WAITING:
            await self.answer("all")
        if not self.model.phase.ended:
            await self.take("steal", "w1")
            await self.work("finish", *self.claims[-1])
            await self.compare()
        assert len(self.model.ended_by) == int(self.model.phase is Phase.DONE)
        queue = self.here.keys.queue(self.here.keys.partition_of(self.new.owner))
        assert await self.store._client.command("XLEN", queue) == 0
        assert (await self.store._client.command("XPENDING", queue, "workers"))["pending"] == 0
        totals = await self.store.totals()
        left = set() if self.model.deleted else {self.model.phase}
        assert {phase for phase, count in totals.items() if count} == left


@given(steps=st.lists(actions, max_size=25))
def test_no_history_loses_doubles_or_confuses_anything(server: Server, steps: list[tuple[str, Any]]) -> None:
    async def run() -> None:
        here = Deployment(server.url)
        try:
            await History(here).run(steps)
        finally:
            await here.aclose()

    asyncio.run(run())
