"""The ledger compares what customers saw, what tools did and what the store recorded."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Final

from tests.soak.effects import Effect
from tests.soak.history import OVER, illegal
from tests.soak.orders import KINDS, VERSIONS, Order

LOST_WORKERS: Final = -32603
SHOWN: Final = 10
LOSE_ANSWERS: Final = frozenset({"replica killed", "replica frozen", "replica drained", "rolling restart"})
"""Faults that can lose the answer to a charge between the replica and its customer for good."""


@dataclass(frozen=True)
class Account:
    """One condition that must hold.

    Attributes:
        name: the condition.
        count: how many cases were checked.
        problems: a line for each violation.
    """

    name: str
    count: int
    problems: Sequence[str]


@dataclass
class Rest:
    """The content of the store when all work has ended.

    Attributes:
        queued: queue → how many entries it has.
        phases: task → its phase, of the records that have not expired.
        endless: keys that never expire.
    """

    queued: dict[str, int] = field(default_factory=dict)
    phases: dict[str, str] = field(default_factory=dict)
    endless: Sequence[str] = ()


@dataclass
class Run:
    """The side effects of one flow of an order.

    Attributes:
        legs: how often it began to run.
        steps: side effect → how often it ran.
        units: the parts that were computed.
    """

    legs: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    units: set[str] = field(default_factory=set)

    def add(self, effect: Effect) -> None:
        """Add one effect."""
        match effect.what:
            case "leg":
                self.legs += 1
            case "step":
                self.steps[effect.key.removeprefix(f"{effect.flow}:")] += 1
            case "unit":
                self.units.add(effect.key)

    @property
    def repeated(self) -> int:
        """How often a side effect was repeated."""
        return self.steps.total() - len(self.steps)


class Ledger:
    """Everything that is known at the end.

    Args:
        orders: all orders.
        effects: the side effects of tools.
        history: task → its phases, from the store's own file.
        rest: the rest of the store's content.
        incidents: what went wrong with processes.
        faults: fault → how often it struck, for the report.
        lost: tasks whose last writes were lost in a failover. Nothing is promised about them.
    """

    def __init__(
        self,
        orders: Sequence[Order],
        effects: Iterable[Effect],
        history: Mapping[str, list[str]],
        rest: Rest,
        *,
        incidents: Sequence[str] = (),
        faults: Mapping[str, int] | None = None,
        lost: Collection[str] = (),
    ) -> None:
        self._history = history
        self._rest = rest
        self._incidents = incidents
        self._faults = faults or {}
        self._orders = {order.name: order for order in orders}
        self._lost = lost
        self._tasks = [order for order in orders if order.task_id is not None and order.task_id not in lost]
        self._unanswered = sum(order.unanswered for order in orders)
        self._runs: dict[str, dict[str, Run]] = defaultdict(dict)
        for effect in effects:
            self._runs[effect.order].setdefault(effect.flow, Run()).add(effect)
        ids = {*(order.task_id for order in orders), *lost}
        self._unknown = {task: phases for task, phases in history.items() if task not in ids}

    @cached_property
    def accounts(self) -> list[Account]:
        """All conditions that must hold."""
        tasks = self._tasks
        refused = [order for order in self._orders.values() if order.refused]
        completed = [order for order in tasks if order.final and order.final["status"] == "completed"]
        calls = [order for order in self._orders.values() if not order.is_task]
        paid = [order for order in calls if order.final]
        unpaid = [order for order in calls if not order.final and not order.refused]
        answers = sum(len(order.answers) for order in completed)
        return [
            Account("acknowledged tasks are stored", len(tasks), _problems(tasks, self._not_stored)),
            Account("each of them ended once", len(tasks), _problems(tasks, self._not_ended_once)),
            Account("its customer saw that end", len(tasks), _problems(tasks, self._seen_otherwise)),
            Account("it was the right end", len(tasks), _problems(tasks, self._wrong_end)),
            Account("acknowledged answers counted", answers, _problems(completed, _lost_answers)),
            Account("completed: all side effects, by key", len(completed), _problems(completed, self._wrong_effects)),
            Account("no leg ran without a claim", len(tasks), _problems(tasks, self._too_many_legs)),
            Account("one flow an order, and no other's work", len(self._runs), list(self._mixed_up())),
            Account("paid or posted: once, and told so", len(paid), _problems(paid, self._wrong_charge)),
            Account("not known to be: once at most", len(unpaid), _problems(unpaid, self._doubtful_charge)),
            Account("refused orders ran nothing", len(refused), _problems(refused, self._ran)),
            Account("no task went a forbidden way", len(self._history), list(self._forbidden_ways())),
            Account("unknown to customers: accounted for", len(self._unknown), list(self._unaccounted())),
            Account("nothing is left over", len(self._rest.phases), list(self._left_over())),
            Account("no customer had to complain", len(self._orders), list(self._complaints())),
            Account("no process failed", 0, self._incidents),
        ]

    @property
    def balanced(self) -> bool:
        """Whether all conditions hold."""
        return not any(account.problems for account in self.accounts)

    def report(self) -> str:
        """Return all of it as tables, with a verdict."""
        lines = [*self._kinds(), "", *self._facts(), ""]
        for account in self.accounts:
            told = f"{len(account.problems)} PROBLEMS" if account.problems else "ok"
            lines.append(f"{account.name:40} {account.count or '':>8}  {told}")
            lines += [f"    {problem}" for problem in account.problems[:SHOWN]]
        verdict = "Every task is accounted for exactly once." if self.balanced else "THE LEDGER DOES NOT BALANCE."
        return "\n".join([*lines, "", verdict])

    def _phases(self, order: Order) -> list[str]:
        return self._history.get(order.task_id or "", [])

    def _not_stored(self, order: Order) -> str | None:
        return None if self._phases(order) else "was acknowledged and never stored"

    def _not_ended_once(self, order: Order) -> str | None:
        phases = self._phases(order)
        ends = sum(phase in OVER for phase in phases)
        return None if ends == 1 else f"ended {ends} times: {' → '.join(phases)}"

    def _seen_otherwise(self, order: Order) -> str | None:
        if order.final is None:
            return "was never told to have ended"
        end = "cancelled" if order.final["status"] == "cancelled" else "done"
        return None if self._phases(order)[-1:] == [end] else f"was told to be {order.final['status']}"

    def _wrong_end(self, order: Order) -> str | None:
        if order.final is None:
            return None  # already reported
        lost_workers = ("running", "running") in pairwise(self._phases(order))
        allowed = order.kind == "once" and lost_workers
        match order.final:
            case {"status": "cancelled", "result": None}:
                return None if order.cancelled else "is cancelled, and nobody wanted that"
            case {"status": "failed", "error": {"code": code}}:
                return None if allowed and code == LOST_WORKERS else f"failed: {order.final['error']}"
            case {"status": "completed", "result": {"isError": True}}:
                wanted = order.kind == "fail" and order.texts[0].startswith("fail failed (reference ")
                return None if wanted else f"failed: {order.texts}"
            case {"status": "completed"} if order.flow and not allowed and order.texts == order.expected_texts():
                return None
        return f"ended as {order.final}"

    def _wrong_effects(self, order: Order) -> str | None:
        runs = self._runs[order.name]
        if order.flow and order.flow not in runs:
            return f"was signed by a flow that did nothing; these did: {sorted(runs)}"
        run = runs.get(order.flow) or next(iter(runs.values()), Run())
        if run.steps.keys() != order.steps:
            return f"did {sorted(run.steps)} instead of {sorted(order.steps)}"
        if run.units != order.units:
            return f"computed {len(run.units)} units instead of {len(order.units)}"
        # A lost leg leaves at most one unknown side effect behind. Legs of calls are not counted.
        claims = self._phases(order).count("running")
        repeated = order.kind != "ship" and run.repeated >= max(claims, 1)
        return f"repeated {run.repeated} side effects in {claims} claims" if repeated else None

    def _too_many_legs(self, order: Order) -> str | None:
        if order.kind == "ship":  # it began as a call, whose legs are nobody's claim
            return None
        phases = self._phases(order)
        claims = phases.count("running")
        if order.kind == "once":
            claims = min(claims, 1)  # it has no checkpoint, so no leg of it is ever handed back
        legs = sum(run.legs for run in self._runs[order.name].values())
        return None if legs <= claims else f"ran {legs} legs: {' → '.join(phases)}"

    def _wrong_charge(self, order: Order) -> str | None:
        if self._charged(order) != 1:
            return f"was charged {self._charged(order)} times"
        signed = order.flow in self._runs[order.name] and order.texts == order.expected_texts()
        return None if signed else f"ended as {order.final}"

    def _doubtful_charge(self, order: Order) -> str | None:
        """The outcome of a charge may be unknown only if its replica was lost."""
        if self._charged(order) > (order.used or order.maybe):
            return f"was charged {self._charged(order)} times, and its customer does not know"
        return "is used, and no replica was lost" if order.used and not self._replicas_lost else None

    @property
    def _replicas_lost(self) -> int:
        return sum(count for fault, count in self._faults.items() if fault in LOSE_ANSWERS)

    def _charged(self, order: Order) -> int:
        return sum(run.steps.total() for run in self._runs.get(order.name, {}).values())

    def _mixed_up(self) -> Iterator[str]:
        for name, runs in self._runs.items():
            order = self._orders.get(name)
            if order is None:
                yield f"{name} was never ordered"
                continue
            if order.task_id in self._lost:
                continue
            if len(runs) > 1:
                yield f"{order} ran as {len(runs)} flows"
            for run in runs.values():
                if not (run.steps.keys() <= order.steps and run.units <= order.units):
                    yield f"{order} did {sorted(run.steps)} and {len(run.units)} units"
        orders_of = Counter(flow for runs in self._runs.values() for flow in runs)
        yield from (f"the flow {flow} ran for {count} orders" for flow, count in orders_of.items() if count > 1)

    def _ran(self, order: Order) -> str | None:
        return "was refused and ran" if order.name in self._runs else None

    def _forbidden_ways(self) -> Iterator[str]:
        for task, phases in self._history.items():
            step = None if task in self._lost else illegal(phases)
            if step is not None:
                yield f"{task}: {step}, in {' → '.join(phases)}"

    def _unaccounted(self) -> Iterator[str]:
        if len(self._unknown) > self._unanswered:
            yield f"{len(self._unknown)} tasks of {self._unanswered} calls that nobody answered"
        for task, phases in self._unknown.items():
            if phases[-1] not in {*OVER, "waiting"} and task not in self._lost:
                yield f"{task} is still {phases[-1]}"

    def _left_over(self) -> Iterator[str]:
        yield from (f"{queue} has {count} entries" for queue, count in self._rest.queued.items() if count)
        for task, phase in self._rest.phases.items():
            if phase not in OVER and task not in self._lost and not (phase == "waiting" and task in self._unknown):
                yield f"{task} is {phase}"
        yield from (f"{key} has no lifetime" for key in self._rest.endless)

    def _told(self) -> list[Order]:
        return [order for order in self._orders.values() if order.task_id not in self._lost]

    def _complaints(self) -> Iterator[str]:
        yield from (f"{order} {complaint}" for order in self._told() for complaint in order.complaints)

    def _kinds(self) -> Iterator[str]:
        columns = ("completed", "failed", "cancelled")
        yield f"{'kind':14} {'acknowledged':>12} " + " ".join(f"{column:>10}" for column in columns)
        for kind in (*KINDS, "all"):
            orders = [order for order in self._orders.values() if order.task_id is not None or not order.is_task]
            tasks = [order for order in orders if kind in (order.kind, "all") and not order.refused]
            ends = Counter(order.final["status"] for order in tasks if order.final)
            yield f"{kind:14} {len(tasks):12,} " + " ".join(f"{ends[column]:10,}" for column in columns)

    def _facts(self) -> Iterator[str]:
        yield f"faults: {', '.join(f'{fault} {count}' for fault, count in sorted(self._faults.items()))}"
        claims = sum(phases.count("running") for phases in self._history.values())
        lost = sum(pair == ("running", "running") for phases in self._history.values() for pair in pairwise(phases))
        yield f"legs: {claims:,} claimed, {lost:,} of them from a worker that was lost"
        runs = [run for runs in self._runs.values() for run in runs.values()]
        steps, repeated = sum(len(run.steps) for run in runs), sum(run.repeated for run in runs)
        yield f"side effects: {steps:,} by key; {repeated:,} times one was done again"
        spoken = Counter(order.version for order in self._orders.values())
        yield f"orders: {', '.join(f'{spoken[version]:,} on {version}' for version in VERSIONS)}"
        relayed = [order for order in self._orders.values() if order.relayed]
        maybe, refused = sum(order.maybe for order in relayed), sum(order.refused for order in relayed)
        yield f"relayed: {len(relayed):,}; {maybe} may have acted, {refused:,} were refused"
        yield f"tasks whose last writes were lost in a failover: {len(self._lost)}"
        used = [order for order in self._orders.values() if order.used]
        charged = sum(self._charged(order) for order in used)
        yield f"charges whose answer was lost with a replica: {len(used)}, {charged} of them done"
        phases = Counter(phases[-1] for phases in self._unknown.values())
        made = "".join(f", {count} {phase}" for phase, count in sorted(phases.items()))
        yield f"calls that nobody answered: {self._unanswered}; they made {len(self._unknown)} tasks{made}"


def _problems(orders: Iterable[Order], look: Callable[[Order], str | None]) -> list[str]:
    return [f"{order} {problem}" for order in orders if (problem := look(order)) is not None]


def _lost_answers(order: Order) -> str | None:
    lost = [key for key, answer in order.answers.items() if answer not in order.texts[-1]]
    return f"came to its end without the answers {lost}" if lost else None
