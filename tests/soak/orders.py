"""The customers' orders, what they know about each, and the expected result of each kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.upstreams.texts import MAY_HAVE_ACTED, NOT_SENT, REFUSED

POST: Final = "depot__post"
PARCEL: Final = "depot__parcel"
RELAYED: Final = frozenset({POST, PARCEL})
"""The tools of the depot, a server behind the gateway."""

VERSIONS: Final = ("2026-07-28", "2025-11-25", "DRAFT-2026-v1")
ENDED: Final = frozenset({"completed", "failed", "cancelled"})

_FLOW: Final = re.compile(r"by flow (\w+)$")


@dataclass
class Order:
    """One `tools/call`, in all its legs, as its customer knows it.

    Attributes:
        name: unique; a repeated call is another order.
        kind: the tool.
        amount: how much of it, for tools that take an amount.
        customer: who ordered.
        ordered_at: when, in seconds since the epoch.
        version: of the protocol that its customer speaks.
        task_id: the task that it became, once that was acknowledged.
        refused: the server promised that nothing ran.
        unanswered: how often it is unknown whether it became a task.
        answers: question → answer, of those that were acknowledged.
        cancelled: a cancellation was acknowledged.
        final: the end that its customer saw.
        maybe: the call may have acted, and its customer cannot know.
        used: the server reported the state as used, as the answer to an earlier attempt was lost.
        complaints: what the customer saw and should not have.
    """

    name: str
    kind: str
    amount: int = 0
    customer: int = 0
    ordered_at: float = 0.0
    version: str = VERSIONS[0]
    task_id: str | None = None
    refused: bool = False
    unanswered: int = 0
    answers: dict[str, str] = field(default_factory=dict)
    cancelled: bool = False
    final: dict[str, Any] | None = None
    maybe: bool = False
    used: bool = False
    complaints: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.kind} {self.name} ({self.task_id or 'no task'})"

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the arguments of its tool."""
        return {"order": self.name, **({"amount": self.amount} if self.amount else {})}

    @property
    def is_task(self) -> bool:
        """Whether it becomes a task."""
        return self.kind != "charge" and not self.relayed

    @property
    def relayed(self) -> bool:
        """Whether a server behind the gateway does it."""
        return self.kind in RELAYED

    @property
    def steps(self) -> frozenset[str]:
        """The side effects that it needs."""
        if self.kind == "build":
            return frozenset(f"part {part}" for part in range(self.amount))
        return _STEPS.get(self.kind, frozenset())

    @property
    def units(self) -> frozenset[str]:
        """The parts of its computation."""
        return frozenset(map(str, range(self.amount))) if self.kind == "count" else frozenset()

    @property
    def texts(self) -> list[str]:
        """The blocks of the result that its customer saw."""
        result = (self.final or {}).get("result") or {}
        return [block.get("text", "") for block in result.get("content", [])]

    @property
    def flow(self) -> str:
        """The flow that signed the result; empty if there is none."""
        signed = _FLOW.search(self.texts[-1]) if self.texts else None
        return signed[1] if signed else ""

    def end_call(self, result: Mapping[str, Any]) -> None:
        """Record the result of a call without a task, or what the gateway says about an upstream in trouble."""
        if self.relayed and result.get("isError"):
            said = str(result["content"])
            self.maybe = MAY_HAVE_ACTED in said
            self.refused = not self.maybe and (NOT_SENT in said or REFUSED in said)
            if not self.maybe and not self.refused:
                self.complaints.append(f"was told neither that it ran nor that it did not: {said}")
        else:
            self.final = final_of({"status": "completed", "result": result})

    def expected_texts(self) -> list[str]:
        """Return the blocks of the result if it was signed by the right flow; none where there is no result."""
        return _TEXTS[self.kind](self, f"order {self.name} by flow {self.flow}")


def answer_to(order: str, key: str) -> str:
    """Return the answer of an order's customer to a question."""
    return f"{key} for {order}"


def property_of(key: str) -> str:
    """Return what a question is about. Its key may name the module that asks, and how often it was asked."""
    return key.partition("~")[0].rpartition(":")[2]


def final_of(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an ended task that must never change."""
    return {name: task.get(name) for name in ("status", "result", "error")}


def _answers(order: Order, *keys: str) -> str:
    return ", ".join(answer_to(order.name, key) for key in keys)


_STEPS: Final[Mapping[str, frozenset[str]]] = {
    "survey": frozenset({"look up"}),
    "ship": frozenset({"pack", "send"}),
    "fail": frozenset({"try"}),
    "charge": frozenset({"charge"}),
    POST: frozenset({"post"}),
    PARCEL: frozenset({"post"}),
}
_TEXTS: Final[Mapping[str, Callable[[Order, str], list[str]]]] = {
    "fail": lambda _, __: [],
    "hold": lambda _, __: [],
    "plain": lambda _, signed: [signed],
    "charge": lambda order, signed: [f"{_answers(order, 'name')}, {signed}"],
    "once": lambda _, signed: [signed],
    POST: lambda _, signed: [signed],
    PARCEL: lambda order, signed: [f"{_answers(order, 'go')}, {signed}"],
    "build": lambda order, signed: [*(f"part {part} of {order.name}" for part in range(order.amount)), signed],
    "count": lambda order, signed: [f"{sum(unit**2 for unit in range(order.amount + 1))}, {signed}"],
    "survey": lambda order, signed: [f"{_answers(order, 'name', 'colour', 'size')}, {signed}"],
    "ship": lambda order, signed: [
        f"pack of {order.name}",
        f"send of {order.name}",
        f"{_answers(order, 'size', 'go')}, {signed}",
    ],
}
KINDS: Final = tuple(_TEXTS)
