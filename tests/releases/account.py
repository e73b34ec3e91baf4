"""The account compares what clients saw of their orders with what tools did for them, whichever release it was."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

BOTH_WAYS: Final = 2
SLOW_SECONDS: Final = 2.5
"""Half the time after which a process looks for itself when it got no message of a change. Messages take a tenth."""

ENOUGH: Final = 4
"""How many times have a median that one slow moment of the machine does not change."""

SHOWN_CHARACTERS: Final = 1000
SHOWN: Final = 10
"""How many problems of each sort a report shows."""


class Effect(msgspec.Struct, frozen=True):
    """Something that a tool did.

    Attributes:
        what: `leg`, when the tool began to run; `step`, a side effect.
        order: the name of the call that it was done for.
        flow: the call's id, as its tool sees it.
        key: what was done.
        derived: what must be the same on every leg of a call.
        process: where.
        at: when, in seconds since the epoch.
    """

    what: str
    order: str
    flow: str
    key: str
    derived: str
    process: str
    at: float


@dataclass
class Order:
    """A call with everything that belongs to it, as its client knows it.

    Attributes:
        name: unique; the first argument of the call.
        kind: what the client does.
        stage: of the rollout, when it began.
        patient: whether its client waits for the next stage before each answer.
        steps: the side effects that it needs.
        early: those that a call may have had when the replica in which it waited was replaced.
        ended_early: calls of this order that ended so → that replica.
        again: how often a request was refused that nothing ran for, and was sent again, as the documentation says.
        asked: call and question → how often its client was asked.
        answers: when a replica answered, and which.
        news: how many seconds after a change in one process another one showed it, with both processes.
        problem: what its client noticed and should not have.
        over: whether it has come to its end.
    """

    name: str
    kind: str
    stage: int = 0
    patient: bool = False
    steps: frozenset[str] = frozenset()
    early: frozenset[str] = frozenset()
    ended_early: dict[str, str] = field(default_factory=dict)
    again: int = 0
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)
    answers: list[tuple[float, str]] = field(default_factory=list)
    news: list[tuple[float, str, str]] = field(default_factory=list)
    problem: str | None = None
    over: bool = False

    @property
    def call(self) -> str:
        """The name of the current call: the order's, with a number if an earlier call ended early."""
        return f"{self.name}+{len(self.ended_early)}" if self.ended_early else self.name

    def end_early(self, process: str) -> None:
        """Note that the current call ended since its replica was replaced; the next one is another call."""
        self.ended_early[self.call] = process


class EffectFile:
    """The file that tools write to, read as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Effect)
        self.effects: list[Effect] = []

    def update(self) -> list[Effect]:
        """Read what was added, and return everything."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read)
                added = file.read()
            whole = added[: added.rfind(b"\n") + 1]
            self._read += len(whole)
            self.effects += [self._decoder.decode(line) for line in whole.splitlines()]
        return self.effects


@dataclass
class Account:
    """Everything that is known.

    Attributes:
        orders: all orders.
        effects: all effects.
        left: the processes that were replaced.
        incidents: what went wrong with processes.
    """

    orders: list[Order]
    effects: list[Effect]
    left: frozenset[str] = frozenset()
    incidents: list[str] = field(default_factory=list)

    def problems(self) -> dict[str, list[str]]:
        """Return everything that must not be, by its sort."""
        found = {
            "failed orders": list(self._failed()),
            "doubled effects": list(self._doubled()),
            "missing effects": list(self._missing()),
            "effects that nobody ordered": list(self._unwanted()),
            "calls that changed": list(self._changed()),
            "calls that ended early": list(self._ended_early()),
            "slow news": list(self._slow()),
            "processes": list(self.incidents),
        }
        return {sort: problems for sort, problems in found.items() if problems}

    @property
    def is_lost(self) -> bool:
        """Whether a client or a side effect already shows that something is wrong."""
        return any(order.problem for order in self.orders) or any(self._doubled())

    def crossings(self, since: int = 0) -> Mapping[str, set[tuple[str, str]]]:
        """Return kind → the pairs of releases that have worked on one order of it, one after the other.

        Args:
            since: the stage of the rollout from which on orders count.
        """
        found: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for order, releases in self._at_work(since):
            if order.over:
                found[order.kind] |= {pair for pair in pairwise(releases) if pair[0] != pair[1]}
        return found

    def not_crossed(self, kinds: Iterable[str], since: int = 0) -> list[str]:
        """Return the kinds of which no order has gone from each release to the other one; see `crossings`."""
        crossings = self.crossings(since)
        return [kind for kind in kinds if len(crossings.get(kind, ())) < BOTH_WAYS]

    def _at_work(self, since: int) -> Iterator[tuple[Order, list[str]]]:
        """Yield the orders, and the releases that have answered or done something for each, in order."""
        places: dict[str, list[tuple[float, str]]] = {
            order.name: [*order.answers] for order in self.orders if order.stage >= since
        }
        for effect in self.effects:
            if (name := effect.order.partition("+")[0]) in places:
                places[name].append((effect.at, effect.process))
        for order in self.orders:
            if order.name in places:
                processes = [process for _, process in sorted(places[order.name])]
                yield order, [release_of(process) for process in processes if release_of(process)]

    def report(self) -> str:
        """Return the account as a text."""
        crossed = Counter(order.kind for order, releases in self._at_work(0) if len(set(releases)) > 1)
        lines = [f"{'kind':26} {'orders':>6} {'crossed':>7} {'again':>5} {'early':>5}"]
        for kind in sorted({order.kind for order in self.orders}):
            orders = [order for order in self.orders if order.kind == kind]
            again, early = sum(order.again for order in orders), sum(len(order.ended_early) for order in orders)
            lines.append(f"{kind:26} {len(orders):6} {crossed[kind]:7} {again:5} {early:5}")
        steps = Counter(effect.what for effect in self.effects)["step"]
        lines.append(f"{len(self.orders)} orders, {steps} side effects")
        for sort, problems in self.problems().items():
            lines.append(f"{len(problems)} {sort}:")
            lines += [f"    {problem[:SHOWN_CHARACTERS]}" for problem in problems[:SHOWN]]
        return "\n".join(lines)

    def _calls(self) -> Iterator[tuple[Order, str, bool]]:
        """Yield the order, the name and whether it ran to its end, for each call."""
        for order in self.orders:
            yield from ((order, call, False) for call in order.ended_early)
            yield order, order.call, order.problem is None

    def _done(self) -> Counter[tuple[str, str]]:
        return Counter((effect.order, effect.key) for effect in self.effects if effect.what == "step")

    def _failed(self) -> Iterator[str]:
        for order in self.orders:
            if order.problem is not None or not order.over:
                yield f"{order.kind} {order.name}: {order.problem or 'has not ended'}"

    def _doubled(self) -> Iterator[str]:
        for (call, key), count in self._done().items():
            if count > 1:
                places = [effect.process for effect in self.effects if (effect.order, effect.key) == (call, key)]
                yield f"{call}: {key}, {count} times: {', '.join(places)}"

    def _missing(self) -> Iterator[str]:
        done = self._done()
        for order, call, completed in self._calls():
            missing = [step for step in sorted(order.steps) if completed and not done[call, step]]
            if missing:
                yield f"{call}: {', '.join(missing)}"

    def _unwanted(self) -> Iterator[str]:
        wanted = {call: order.early if call in order.ended_early else order.steps for order, call, _ in self._calls()}
        for effect in self.effects:
            if effect.order not in wanted:
                yield f"{effect.order}: {effect.what} {effect.key} at {effect.process}"
            elif effect.what == "step" and effect.key not in wanted[effect.order]:
                yield f"{effect.order}: {effect.key} at {effect.process}"

    def _changed(self) -> Iterator[str]:
        """A call is one flow, and what is derived from it stays the same, at whichever release a leg runs."""
        derived: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for effect in self.effects:
            derived[effect.order].add((effect.flow, effect.derived))
        yield from (f"{call}: {sorted(values)}" for call, values in derived.items() if len(values) > 1)

    def _slow(self) -> Iterator[str]:
        """Without its messages, a release still sees what the other one changes, but only when it looks for itself."""
        seconds: dict[tuple[str, str, str], list[float]] = defaultdict(list)
        for order in self.orders:
            for late, changed, seen in order.news:
                if release_of(changed) != release_of(seen):
                    seconds[order.kind, release_of(changed), release_of(seen)].append(late)
        for (kind, changed, seen), times in seconds.items():
            if len(times) >= ENOUGH and median(times) > SLOW_SECONDS:
                yield f"{kind}: from {changed} to {seen} in {median(times):.1f} s, the median of {len(times)}"

    def _ended_early(self) -> Iterator[str]:
        for order in self.orders:
            for call, process in order.ended_early.items():
                if process not in self.left:
                    yield f"{call} ended at {process}, which was not replaced"


def release_of(process: str) -> str:
    """Return the release of a process, which its name begins with; empty for a server behind the gateway."""
    return process.rpartition("-")[0]
