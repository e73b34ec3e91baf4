"""Held calls are counted: those that wait, how long users take, how calls end, what limits refuse, and late answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gateway.errors import Overloaded
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.protocol.upstream.responses import ServerRequest
from gateway.upstreams.failures import HeldFailure
from gateway.upstreams.held.actions import Ended, HeldLimits, NextRound, Stopped
from gateway.upstreams.held.calls import (
    MAX_HELD_BY_CALLER,
    MAX_QUESTION_BYTES,
    HeldCall,
    HeldCalls,
    HeldTarget,
    HeldUpstream,
    Send,
    Waiter,
)
from gateway.upstreams.ports import OnNotice, Questions
from gateway.upstreams.readings import Keep

CAPABILITIES: dict[str, Any] = {"elicitation": {"form": {}}}
FORM = {"type": "object", "properties": {"sure": {"type": "string"}}}
ACCEPTED = {"result": {"action": "accept", "content": {"sure": "yes"}}}
LIMITS = HeldLimits(30.0, 30.0, together_seconds=0.0)


class Counted:
    """Held calls of one upstream, and their metrics."""

    def __init__(self, limits: HeldLimits = LIMITS, *, most: int = 1000) -> None:
        self.registry = CollectorRegistry()
        self.calls = HeldCalls(random_bytes=os.urandom, limit=most)
        self._upstream = HeldUpstream("bugs", limits, UpstreamMetrics(self.registry))

    def begin(self, caller: str = "ada") -> HeldCall:
        target = HeldTarget(b"identity", "tools/call", "delete", caller)
        return self.calls.begin(self.calls.new_id(), target, self._upstream)

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"gateway_upstream_held_{name}", {"upstream": "bugs", **labels}) or 0.0

    @property
    def ends(self) -> dict[str, float]:
        return self._by_label("ended", "how")

    @property
    def refused(self) -> dict[str, float]:
        return self._by_label("refused", "limit")

    def _by_label(self, name: str, label: str) -> dict[str, float]:
        metric = f"gateway_upstream_held_{name}_total"
        families = list(self.registry.collect())
        samples = [sample for family in families for sample in family.samples if sample.name == metric]
        return {sample.labels[label]: sample.value for sample in samples}


def waiter(number: int, answers: Mapping[str, Any] | None = None, on_notice: OnNotice | None = None) -> Waiter:
    return Waiter(number, b"%d" % number, answers or {}, CAPABILITIES, on_notice)


def question(message: str = "Delete 3 files?") -> ServerRequest:
    return ServerRequest("elicitation/create", 1, {"message": message, "requestedSchema": FORM})


def asking(rounds: int, *, then: float = 0.0, message: str = "Delete 3 files?") -> Send:
    """Ask that often, and work for some seconds after that."""

    async def send(questions: Questions, _on_notice: OnNotice, _keep: Keep) -> dict[str, Any]:
        for _ in range(rounds):
            await questions.answer(question(message))
        await asyncio.sleep(then)
        return {}

    return send


async def asked(call: HeldCall, send: Send) -> None:
    assert isinstance(await call.result(waiter(0), send), NextRound)


async def test_a_call_that_waits_for_its_user_is_shown_until_it_is_answered() -> None:
    counted = Counted()
    call, send = counted.begin(), asking(2)
    await asked(call, send)
    for number, key in ((1, "q1"), (2, "q2")):
        assert (counted.value("calls"), counted.value("seconds_count"), counted.ends) == (1, number - 1, {})
        await call.result(waiter(number, {key: ACCEPTED}), send)
    assert (counted.value("calls"), counted.value("seconds_count"), counted.ends) == (0, 2, {"completed": 1})


async def test_each_round_counts_by_itself_even_if_the_next_one_has_come_meanwhile() -> None:
    counted = Counted()

    goes_out = asyncio.Event()

    async def send(questions: Questions, _on_notice: OnNotice, _keep: Keep) -> dict[str, Any]:
        first = asyncio.create_task(questions.answer(question()))
        await goes_out.wait()
        await asyncio.gather(first, questions.answer(question("Delete 300 files?")))
        return {}

    call = counted.begin()
    call.on_change = goes_out.set
    await asked(call, send)
    await asyncio.sleep(0.02)
    assert isinstance(await call.result(waiter(1, {"q1": ACCEPTED}), send), NextRound)
    assert counted.value("calls") == 1
    assert 0.02 <= counted.value("seconds_sum") <= call.asked_seconds
    await call.result(waiter(2, {"q2": ACCEPTED}), send)
    assert (counted.value("seconds_count"), counted.value("calls")) == (2, 0)
    assert 0.02 <= counted.value("seconds_sum") <= call.asked_seconds


async def test_a_call_that_asks_nothing_is_not_counted() -> None:
    counted = Counted(HeldLimits(0.02, 30.0))
    await counted.begin().result(waiter(0), asking(0))
    assert isinstance(await counted.begin().result(waiter(0), asking(0, then=30.0)), Stopped)  # timed out
    assert counted.ends == {}


@pytest.mark.parametrize(
    ("how", "limits"),
    [
        ("expired", HeldLimits(30.0, 0.02, together_seconds=0.0)),
        ("timed_out", HeldLimits(0.2, 30.0, together_seconds=0.0)),
        ("abandoned", HeldLimits(30.0, 30.0, together_seconds=0.0, unattended_seconds=0.02)),
        ("asked_too_much", HeldLimits(30.0, 30.0, together_seconds=0.0, rounds=1)),
        ("cancelled", LIMITS),
    ],
)
async def test_the_end_of_a_call_that_has_asked_says_how_it_came(how: str, limits: HeldLimits) -> None:
    counted = Counted(limits)
    call, send = counted.begin(), asking(2 if how == "asked_too_much" else 1, then=30.0)
    await asked(call, send)
    works = asyncio.Event()
    call.on_change = works.set
    if how == "cancelled":
        call.cancel()
    elif how == "abandoned":
        leaving = asyncio.create_task(call.result(waiter(1, {"q1": ACCEPTED}), send))
        await works.wait()
        leaving.cancel()
    elif how != "expired":
        await call.result(waiter(1, {"q1": ACCEPTED}), send)
    assert call.task is not None
    await asyncio.wait([call.task])
    assert (counted.ends, counted.value("calls")) == ({how: 1}, 0)
    await counted.calls.aclose()
    assert counted.ends == {how: 1}


async def test_what_a_limit_refuses_is_counted_with_the_limit() -> None:
    counted = Counted(most=MAX_HELD_BY_CALLER + 1)
    for _ in range(MAX_HELD_BY_CALLER):
        await asked(counted.begin(), asking(1))
    with pytest.raises(HeldFailure):
        counted.begin()
    assert counted.refused == {"caller": 1}
    other = counted.begin("bob")
    await other.result(waiter(0), asking(1, message=MAX_QUESTION_BYTES * "x"))
    assert counted.refused == {"caller": 1, "bytes": 1}
    await asked(counted.begin("bob"), asking(1))
    with pytest.raises(Overloaded):
        counted.begin("eve")
    assert counted.refused == {"caller": 1, "bytes": 1, "process": 1}
    await counted.calls.aclose()


@pytest.mark.parametrize("goes_on", [True, False], ids=["asks something else too", "ends"])
async def test_a_request_whose_answer_came_too_late_is_told_so_each_time(goes_on: bool) -> None:
    """Those of other rounds are not."""
    counted = Counted()

    async def send(questions: Questions, _on_notice: OnNotice, _keep: Keep) -> dict[str, Any]:
        await questions.answer(question())
        withdrawn = asyncio.create_task(questions.answer(question("Delete 300 files?")))
        other = asyncio.create_task(questions.answer(question("Delete 30 files?")))
        await shown.wait()
        withdrawn.cancel()
        if goes_on:
            await other
        return {}

    shown = asyncio.Event()
    call, told = counted.begin(), list[int]()

    def request(number: int, *keys: str) -> Waiter:
        return waiter(number, dict.fromkeys(keys, ACCEPTED), lambda _method, _told: told.append(number))

    await asked(call, send)
    assert isinstance(await call.result(request(1, "q1"), send), NextRound)
    shown.set()
    for _ in range(4):
        await asyncio.sleep(0)  # the withdrawal comes, and perhaps the end
    for _ in range(2):
        assert isinstance(await call.result(request(2, "q2", "q3"), send), Ended)
    assert told == [2, 2]
