"""The ledger balances when everything is as it should be, and each violation shows in its account."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.soak.effects import Effect
from tests.soak.ledger import Ledger, Rest
from tests.soak.orders import POST, Order, answer_to

RUN = ["queued", "running", "done"]
ASKED = ["queued", "running", "waiting", "queued", "running", "done"]
LOST = ["queued", "running", "running", "done"]


@dataclass
class Books:
    """The records of a few orders, all as they should be."""

    orders: dict[str, Order] = field(default_factory=dict)
    effects: list[Effect] = field(default_factory=list)
    history: dict[str, list[str]] = field(default_factory=dict)
    rest: Rest = field(default_factory=Rest)
    incidents: list[str] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)

    def add(self, kind: str, phases: list[str], *, amount: int = 0, keys: tuple[str, ...] = ()) -> Order:
        """Add an order that went as it should, with answers to these questions."""
        order = Order(kind, kind, amount, task_id=f"t_{kind}")
        order.answers = {key: answer_to(kind, key) for key in keys}
        flow = f"f{kind}"
        self.effects += [Effect("leg", kind, flow)] * phases.count("running")
        self.effects += [Effect("step", kind, flow, f"{flow}:{step}") for step in order.steps]
        self.effects += [Effect("unit", kind, flow, unit) for unit in order.units]
        order.final = {"status": "completed", "error": None, "result": texts(f"order {kind} by flow {flow}")}
        order.final["result"] = texts(*order.expected_texts())
        self.orders[kind] = order
        self.history[f"t_{kind}"] = [*phases]
        return order

    def ledger(self) -> Ledger:
        return Ledger(
            list(self.orders.values()),
            self.effects,
            self.history,
            self.rest,
            incidents=self.incidents,
            faults=self.faults,
            lost=self.lost,
        )

    def wrong(self) -> set[str]:
        return {account.name for account in self.ledger().accounts if account.problems}

    def result(self, kind: str) -> dict[str, Any]:
        final = self.orders[kind].final
        assert final is not None
        result: dict[str, Any] = final["result"]
        return result

    def requeue(self, task: str) -> None:
        self.history[task].append("queued")
        self.rest.phases[task] = "queued"

    def drop(self, kind: str, what: str) -> None:
        """Forget the last effect of a kind."""
        found = next(effect for effect in reversed(self.effects) if (effect.order, effect.what) == (kind, what))
        self.effects.remove(found)


def texts(*blocks: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": block} for block in blocks]}


def end(order: Order, status: str, **more: object) -> None:
    order.final = {"status": status, "result": None, "error": None, **more}


@pytest.fixture
def books() -> Books:
    """One order of each kind, a refused one, and a task of an unanswered call."""
    books = Books()
    books.add("plain", RUN)
    books.add("build", LOST, amount=3)
    books.add("count", LOST, amount=3)
    books.add("survey", ASKED, keys=("name", "colour", "size"))
    books.add("ship", ASKED, keys=("size", "go"))
    failing = books.add("once", LOST)
    end(failing, "failed", error={"code": -32603})
    books.effects.remove(Effect("leg", "once", "fonce"))
    broken = Order("fail", "fail", task_id="t_fail")
    end(broken, "completed", result={**texts("fail failed (reference 1)"), "isError": True})
    held = Order("hold", "hold", task_id="t_hold", cancelled=True)
    end(held, "cancelled")
    paid = Order("charge", "charge", answers={"name": answer_to("charge", "name")})
    paid.final = {"status": "completed", "error": None, "result": texts("order charge by flow fc")}
    paid.final["result"] = texts(*paid.expected_texts())
    posted = Order("post", POST)
    posted.final = {"status": "completed", "error": None, "result": texts("order post by flow fpost")}
    unposted = Order("maybe", POST, maybe=True)
    doubtful = Order("doubtful", "charge", used=True)
    refused = Order("refused", "plain", refused=True)
    unanswered = Order("unanswered", "survey", unanswered=1)
    books.orders |= {
        order.name: order for order in (broken, held, paid, posted, unposted, doubtful, refused, unanswered)
    }
    books.effects += [Effect("step", "post", "fpost", "fpost:post"), Effect("step", "maybe", "fmaybe", "fmaybe:post")]
    books.effects += [Effect("step", "charge", "fc", "fc:charge"), Effect("step", "doubtful", "fd", "fd:charge")]
    books.faults["replica killed"] = 1
    books.effects += [Effect("leg", "fail", "ff"), Effect("step", "fail", "ff", "ff:try"), Effect("leg", "hold", "fh")]
    books.history |= {"t_fail": [*RUN], "t_hold": ["queued", "running", "cancelled"], "t_new": [*ASKED[:3]]}
    books.rest = Rest({"queue": 0}, {task: phases[-1] for task, phases in books.history.items()})
    return books


def test_it_balances_when_everything_is_as_it_should_be(books: Books) -> None:
    assert books.wrong() == set()
    assert books.ledger().balanced
    assert books.ledger().report().endswith("Every task is accounted for exactly once.")


STORED, ENDED, SEEN = "acknowledged tasks are stored", "each of them ended once", "its customer saw that end"
RIGHT, ANSWERS, EFFECTS = "it was the right end", "acknowledged answers counted", "completed: all side effects, by key"
LEGS, FLOWS, REFUSED = (
    "no leg ran without a claim",
    "one flow an order, and no other's work",
    "refused orders ran nothing",
)
WAYS, UNKNOWN, LEFT = "no task went a forbidden way", "unknown to customers: accounted for", "nothing is left over"
PAID, UNPAID = "paid or posted: once, and told so", "not known to be: once at most"
COMPLAINTS, PROCESSES = "no customer had to complain", "no process failed"

WRONGS: dict[str, tuple[set[str], Callable[[Books], object]]] = {
    "an acknowledged task is nowhere": ({STORED, ENDED, SEEN, LEGS}, lambda b: b.history.pop("t_plain")),
    "a task never ended": ({ENDED, SEEN}, lambda b: b.history["t_plain"].pop()),
    "a task ended twice": ({ENDED, WAYS}, lambda b: b.history["t_plain"].append("done")),
    "a cancelled task was completed afterwards": (
        {ENDED, SEEN, WAYS},
        lambda b: b.history["t_hold"].extend(["running", "done"]),
    ),
    "nobody saw its end": ({SEEN}, lambda b: setattr(b.orders["hold"], "final", None)),
    "its customer saw another end": ({SEEN}, lambda b: b.history["t_hold"].__setitem__(-1, "done")),
    "a task was cancelled unasked": ({RIGHT}, lambda b: setattr(b.orders["hold"], "cancelled", False)),
    "a cancelled task has a result": ({RIGHT}, lambda b: end(b.orders["hold"], "cancelled", result=texts("x"))),
    "a task failed": ({RIGHT}, lambda b: end(b.orders["plain"], "failed", error={"code": -32603})),
    "a task that may be tried once failed though no worker was lost": (
        {RIGHT},
        lambda b: b.history.__setitem__("t_once", [*RUN]),
    ),
    "a tool failed that should not": (
        {RIGHT},
        lambda b: end(b.orders["plain"], "completed", result={**texts("plain failed"), "isError": True}),
    ),
    "a tool did not fail that should": ({RIGHT}, lambda b: b.result("fail").pop("isError")),
    "a segment is missing": ({RIGHT}, lambda b: b.result("build")["content"].pop(1)),
    "a segment is there twice": (
        {RIGHT},
        lambda b: b.result("build")["content"].insert(0, b.result("build")["content"][0]),
    ),
    "segments are in another order": (
        {RIGHT},
        lambda b: b.result("build")["content"].insert(0, b.result("build")["content"].pop(1)),
    ),
    "an answer is lost": (
        {RIGHT, ANSWERS},
        lambda b: setattr(b.orders["survey"], "final", {"status": "completed", "result": texts("order survey")}),
    ),
    "a side effect was never done": ({EFFECTS}, lambda b: b.drop("build", "step")),
    "a side effect was done under two keys": (
        {EFFECTS, FLOWS},
        lambda b: b.effects.append(Effect("step", "build", "fbuild", "fbuild:part 7")),
    ),
    "a side effect was done again though no leg was lost": (
        {EFFECTS},
        lambda b: b.effects.append(Effect("step", "fail", "ff", "ff:try")),
    ),
    "side effects were done again more often than legs were lost": (
        {EFFECTS},
        lambda b: b.effects.extend([Effect("step", "build", "fbuild", "fbuild:part 1")] * 2),
    ),
    "a unit was left out": ({EFFECTS}, lambda b: b.drop("count", "unit")),
    "a leg ran that nobody claimed": ({LEGS}, lambda b: b.effects.append(Effect("leg", "plain", "fplain"))),
    "what may be tried once was tried twice": ({LEGS}, lambda b: b.effects.append(Effect("leg", "once", "fonce"))),
    "an order ran as two flows": (
        {FLOWS, LEGS},
        lambda b: b.effects.append(Effect("leg", "plain", "another")),
    ),
    "a flow ran for two orders": ({FLOWS}, lambda b: b.effects.append(Effect("unit", "count", "fplain", "0"))),
    "something ran that was never ordered": ({FLOWS}, lambda b: b.effects.append(Effect("leg", "?", "f?"))),
    "a charge that was told never happened": ({PAID}, lambda b: b.drop("charge", "step")),
    "a customer was charged twice": (
        {PAID},
        lambda b: b.effects.append(Effect("step", "charge", "fc", "fc:charge")),
    ),
    "a customer got another one's receipt": (
        {PAID},
        lambda b: b.result("charge").update(texts("name for another, order another by flow fc")),
    ),
    "a customer was charged twice and told nothing": (
        {UNPAID},
        lambda b: b.effects.append(Effect("step", "doubtful", "fd", "fd:charge")),
    ),
    "a customer was charged and told that nothing ran": (
        {UNPAID},
        lambda b: setattr(b.orders["doubtful"], "used", False),
    ),
    "a state was used up though no replica was lost": ({UNPAID}, lambda b: b.faults.clear()),
    "an upstream acted twice, and its customer knows of once": (
        {PAID, FLOWS},
        lambda b: b.effects.append(Effect("step", "post", "another", "another:post")),
    ),
    "an upstream acted twice, and its customer does not know of once": (
        {UNPAID, FLOWS},
        lambda b: b.effects.append(Effect("step", "maybe", "another", "another:post")),
    ),
    "an upstream acted, and its customer was told otherwise": (
        {REFUSED},
        lambda b: vars(b.orders["maybe"]).update(maybe=False, refused=True),
    ),
    "a refused order ran": ({REFUSED}, lambda b: b.effects.append(Effect("leg", "refused", "fr"))),
    "there are tasks that nobody can have made": ({UNKNOWN}, lambda b: b.history.__setitem__("t_x", [*RUN])),
    "a task that nobody knows of is still queued": (
        {UNKNOWN, LEFT},
        lambda b: b.requeue("t_new"),
    ),
    "a queue is not empty": ({LEFT}, lambda b: b.rest.queued.update(queue=1)),
    "a record still waits": ({LEFT}, lambda b: b.rest.phases.update(t_survey="waiting")),
    "a key would stay for ever": ({LEFT}, lambda b: setattr(b.rest, "endless", ["key"])),
    "a customer complained": ({COMPLAINTS}, lambda b: b.orders["plain"].complaints.append("was told nonsense")),
    "a process ended by itself": ({PROCESSES}, lambda b: b.incidents.append("w1 ended by itself")),
}


@pytest.mark.parametrize("wrong", WRONGS)
def test_it_shows_that(wrong: str, books: Books) -> None:
    accounts, spoil = WRONGS[wrong]
    spoil(books)
    assert books.wrong() == accounts
    assert not books.ledger().balanced
    assert "THE LEDGER DOES NOT BALANCE" in books.ledger().report()


@pytest.mark.parametrize(
    "wrong",
    ["an acknowledged task is nowhere", "a task never ended", "nobody saw its end", "an order ran as two flows"],
)
def test_a_task_whose_last_writes_were_lost_in_a_failover_is_excused_and_no_other(wrong: str, books: Books) -> None:
    accounts, spoil = WRONGS[wrong]
    spoil(books)
    books.lost = {"t_build"}
    assert books.wrong() == accounts
    books.lost = {"t_plain", "t_hold"}
    assert books.wrong() == set()
