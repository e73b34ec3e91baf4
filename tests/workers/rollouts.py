"""Rollouts of workers under tasks that may be tried once, and the account of what their tools did."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from loadtest.cluster import Worker, wait_until
from tests.workers.rollout_tools import LAST_GATE, NO_GATE
from tests.workers.site import Site

DRAIN_SECONDS: Final = 3
LONG_SECONDS: Final = 300
CUT_OFF: Final = "task was cut off and may not run again"
TOOLS: Final = ("plain", "counted", "asked")


@dataclass
class Order:
    """One order, which became a task.

    Attributes:
        name: what its lines begin with.
        tool: the tool.
        stuck: whether its tool is at a gate that never opens when its worker drains.
        task_id: the task.
    """

    name: str
    tool: str
    stuck: bool
    task_id: str = ""

    @property
    def gate(self) -> str:
        return NO_GATE if self.stuck else LAST_GATE if self.tool == "asked" else f"gate of {self.name}"


def roll_out(start: Callable[..., Site], *, tasks: int, rollouts: int) -> None:
    """Replace workers while tasks that may be tried once run on them, and check what happened.

    A third of the tasks has checkpoints and a third a question. Half of each is cut off: by the end of the drain time,
    and in the last rollout by a second signal. Of the others, plain ones end before their worker drains, those with
    checkpoints are handed back, and those with a question wait for the answer.
    """
    site = start(GATEWAY_TOOLS="tests.workers.rollout_tools")
    workers: list[Worker] = []
    orders: list[Order] = []
    for number in range(1, rollouts + 1):
        is_last = number == rollouts
        workers.append(add_worker(site, number, LONG_SECONDS if is_last else DRAIN_SECONDS))
        if len(workers) > 1:
            assert workers[-2].wait() == 1
        orders += begin(site, len(orders), tasks * number // rollouts - len(orders))
        counting = sum(order.tool == "counted" and not order.stuck for order in orders)
        stop(workers[-1], counting if is_last else 0)
    workers.append(add_worker(site, rollouts + 1, DRAIN_SECONDS))
    assert workers[-2].wait() == 1
    site.open(LAST_GATE)
    for order in orders:
        if order.tool == "asked" and not order.stuck:
            site.answer(order.task_id, "go", go=True)
    wait_until(lambda: all(site.get(order.task_id)["status"] != "working" for order in orders), "every task to end")
    check(site, workers, orders)


def add_worker(site: Site, number: int, drain_seconds: int) -> Worker:
    return site.worker(f"w{number}", "--concurrency", "200", GATEWAY_DRAIN_SECONDS=str(drain_seconds))


def begin(site: Site, first: int, count: int) -> list[Order]:
    """Create tasks, and wait until each is where its worker should stop it."""
    orders = [
        Order(f"o{number}", TOOLS[number % len(TOOLS)], stuck=number // len(TOOLS) % 2 == 0)
        for number in range(first, first + count)
    ]
    for order in orders:
        order.task_id = site.create(order.tool, order=order.name, gate=order.gate)
    for order in orders:
        if order.tool == "asked":
            site.wait_for(order.task_id, "input_required")
            if order.stuck:
                site.answer(order.task_id, "go", go=True)
        elif order.tool == "plain" and not order.stuck:
            site.open(order.gate)
            site.wait_for(order.task_id, "completed")
    there = {f"{order.name} {where(order)}" for order in orders}
    wait_until(lambda: there <= set(site.lines("lines")), "tools to be where their worker stops")
    return orders


def where(order: Order) -> str:
    """Return the line after which the worker drains."""
    if order.tool == "counted":
        return "unit 2"
    if order.tool == "asked":
        return "answered" if order.stuck else "before"
    return "begun" if order.stuck else "ended"


def stop(worker: Worker, hurry_after: int) -> None:
    """Ask a worker to stop, and again once so many tasks are handed back, unless 0."""
    worker.signal(signal.SIGTERM)
    if hurry_after:
        worker.wait_for_log("handing back tasks")
        worker.wait_for_log(audit="leg", outcome="handed_back", count=hurry_after)

        def hurried() -> bool:
            worker.signal(signal.SIGTERM)  # a worker takes no notice of a signal that follows the first at once
            return bool(worker.logged("leaving at once"))

        wait_until(hurried, "the worker to hurry")


def check(site: Site, workers: list[Worker], orders: list[Order]) -> None:
    """Check that no line ran twice, that every task ended, and that exactly those cut off have failed."""
    lines = site.lines("lines")
    assert {line: count for line, count in Counter(lines).items() if count > 1} == {}
    ended = {order.task_id: site.get(order.task_id) for order in orders}
    cut_off = [
        record["task"] for worker in workers for record in worker.log_lines() if record.get("message") == CUT_OFF
    ]
    failed = [task for task, found in ended.items() if found["status"] == "failed"]
    assert sorted(failed) == sorted(cut_off) == sorted(order.task_id for order in orders if order.stuck)
    assert {ended[task]["error"]["code"] for task in failed} == {-32603}
    for order in orders:
        assert (f"{order.name} ended" in lines) is not order.stuck
        if not order.stuck:
            assert text(ended[order.task_id]) == order.name
    handed_back = [
        record["task"]
        for worker in workers
        for record in worker.log_lines()
        if record.get("audit") == "leg" and record["outcome"] == "handed_back"
    ]
    counting = {order.task_id for order in orders if order.tool == "counted" and not order.stuck}
    assert set(handed_back) == counting
    assert counting


def text(ended: dict[str, Any]) -> str:
    """Return the text of a completed task."""
    assert ended["status"] == "completed", ended
    (block,) = ended["result"]["content"]
    return str(block["text"])
