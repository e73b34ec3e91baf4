"""Every order of events keeps the rules of held calls; and each rule, once broken, is found to be broken."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from gateway.upstreams.held import life
from gateway.upstreams.held.life import HeldLife
from tests.upstreams.held.checker import Bounds, Exploration, Invariant, Transition, Violation, explore

WIDE: Final = Bounds(rounds=2, each=2, faults=1)
FAULTY: Final = Bounds(rounds=1, each=1, faults=2)

TRANSITIONS: Final = """
    working    join            nothing
    working    join            give NextRound
    working    join            Refuse other_answers
    working    join            Refuse unknown_round
    working    leave           nothing
    working    leave for good  nothing
    working    leave for good  EndUpstream abandoned, ended
    working    leave for good  EndUpstream abandoned, give Stopped, ended
    working    asks            nothing
    working    asks            EndUpstream asked_too_much, give Stopped, ended
    working    withdraws       nothing
    working    ends            ended
    working    ends            give Ended, ended
    working    cancel          EndUpstream cancelled, ended
    working    cancel          EndUpstream cancelled, give Stopped, ended
    working    tick            nothing
    working    tick            asked
    working    tick            give NextRound, asked
    working    tick            EndUpstream abandoned, ended
    working    tick            EndUpstream asked_too_much, ended
    working    tick            EndUpstream asked_too_much, give Stopped, ended
    working    tick            EndUpstream timed_out, ended
    working    tick            EndUpstream timed_out, give Stopped, ended
    asked      join            working
    asked      join            Reply, working
    asked      join            Reply, give NextRound
    asked      join            Reply, EndUpstream asked_too_much, give Stopped, ended
    asked      join            give NextRound
    asked      join            EndUpstream asked_too_much, give Stopped, ended
    asked      join            Refuse missing_answers
    asked      join            Refuse other_answers
    asked      join            Refuse unknown_round
    asked      leave           nothing
    asked      asks            nothing
    asked      asks            EndUpstream asked_too_much, ended
    asked      withdraws       nothing
    asked      withdraws       Withdrawn
    asked      ends            ended
    asked      ends            Withdrawn, ended
    asked      cancel          EndUpstream cancelled, ended
    asked      tick            nothing
    asked      tick            EndUpstream expired, ended
    ended      join            give NextRound
    ended      join            give Ended
    ended      join            give Stopped
    ended      join            Refuse other_answers
    ended      join            Refuse unknown_round
    ended      leave           nothing
    ended      leave for good  nothing
    ended      asks            nothing
    ended      withdraws       nothing
    ended      ends            nothing
    ended      cancel          nothing
    ended      tick            Forget
    forgotten  join            Refuse forgotten
"""
"""All that the module does: its state, what happens, and the outcome, with the next state if that is another."""


class Mutation(NamedTuple):
    """A way to break a rule of held calls, and what is found then."""

    rule: int
    breaks: str
    changes: tuple[tuple[str, str], ...]
    found: Invariant


MUTATIONS: Final = (
    Mutation(
        1,
        "other answers to an answered round join it",
        (('return None if digest == self._digests[round_number] else "other_answers"', "return None"),),
        Invariant.SAME_ROUND,
    ),
    Mutation(
        1,
        "answers that are sent again answer again",
        (
            ("        return [*replies,", "        self._sent = replies\n        return [*replies,"),
            ("return [] if round_number <", 'return vars(self).get("_sent", []) if round_number <'),
        ),
        Invariant.ONE_ANSWER,
    ),
    Mutation(
        1,
        "a refused request keeps its call alive",
        (("            return [Refuse(", "            self._left_at = None\n            return [Refuse("),),
        Invariant.REFUSED,
    ),
    Mutation(
        1,
        "only one of several requests gets the event",
        (("in sorted(self._waiters)", "in sorted(self._waiters)[:1]"),),
        Invariant.TOLD,
    ),
    Mutation(
        1,
        "a request that has its event gets the next one too",
        (("        self._waiters = set()\n", ""),),
        Invariant.OWN_OUTCOME,
    ),
    Mutation(
        2,
        "the upstream works on although the last request has left",
        (("            self._left_at = now\n", "            pass\n"),),
        Invariant.ATTENDED,
    ),
    Mutation(
        2,
        "a client that has answered ends its call by leaving",
        (("if for_good and not self._events:", "if for_good:"),),
        Invariant.IN_TIME,
    ),
    Mutation(
        3,
        "each question goes out alone",
        (("= now + self._limits.together_seconds", "= now"),),
        Invariant.TOGETHER,
    ),
    Mutation(
        3,
        "only the first question of a round is answered",
        (("in self._open.items()]", "in list(self._open.items())[:1]]"),),
        Invariant.WHOLE_ROUND,
    ),
    Mutation(
        3,
        "two questions get the answers of each other",
        (("in self._open.items()]", "in zip(self._open, [*self._open.values()][::-1])]"),),
        Invariant.OWN_ANSWER,
    ),
    Mutation(
        4,
        "the time of the user counts as time of the upstream",
        (
            (
                '        self._state, self._since = "working", now\n',
                "        self._worked_seconds += now - self._since\n"
                '        self._state, self._since = "working", now\n',
            ),
        ),
        Invariant.IN_TIME,
    ),
    Mutation(
        4,
        "the last event is not kept",
        (("return self._since + self._limits.kept_seconds", "return self._since"),),
        Invariant.KEPT,
    ),
    Mutation(
        5,
        "a withdrawn question gets its answer",
        (
            (
                "Reply(question_id, answers[key]) for question_id, key in self._open.items()",
                "Reply(int(key[1:]) - 1, answers[key]) for key in self._events[-1].questions",
            ),
        ),
        Invariant.NOT_WITHDRAWN,
    ),
    Mutation(
        5,
        "an outcome that withdraws questions leaves no record of them",
        (("return [Withdrawn(withdrawn), *gives] if withdrawn else gives", "return gives"),),
        Invariant.RECORDED,
    ),
    Mutation(
        5,
        "a question that comes too late ends the call a second time",
        (('if self._state == "ended" or question_id in', "if question_id in"),),
        Invariant.AFTER_THE_END,
    ),
    Mutation(
        6,
        "a user who never answers holds the call forever",
        (("return self._since + self._limits.held_seconds", "return None"),),
        Invariant.FORGOTTEN,
    ),
    Mutation(
        7,
        "a call whose client has gone while asked is kept",
        (
            (
                '[] if self._state == "ended" else self._stop("cancelled", now)',
                '[] if self._state != "working" else self._stop("cancelled", now)',
            ),
        ),
        Invariant.CANCELLED,
    ),
    Mutation(
        8,
        "a draining process does not see the calls that wait for their user",
        (("        return self._state\n", '        return "ended" if self._state == "asked" else self._state\n'),),
        Invariant.DRAINED,
    ),
)


def mutated(changes: tuple[tuple[str, str], ...]) -> type[HeldLife]:
    """Return the class as its module has it after some changes of the text."""
    assert life.__file__ is not None
    source = Path(life.__file__).read_text()
    for old, new in changes:
        assert source.count(old) == 1, f"change the mutation as the module was changed: {old!r}"
        source = source.replace(old, new)
    module: dict[str, Any] = {"__name__": "mutated"}
    exec(compile(source, "mutated.py", "exec"), module)
    kind: type[HeldLife] = module["HeldLife"]
    return kind


def explore_all(kind: type[HeldLife]) -> tuple[Exploration, Exploration]:
    return explore(kind, WIDE), explore(kind, FAULTY)


@pytest.mark.timeout(600)
def test_every_order_of_events_keeps_the_rules_and_every_transition_occurs() -> None:
    began = time.process_time()
    wide, faulty = explore_all(HeldLife)
    transitions = wide.transitions + faulty.transitions
    sys.stdout.write(f"{wide.states} + {faulty.states} states in {time.process_time() - began:.0f} s\n")
    for transition, times in sorted(transitions.items()):
        sys.stdout.write(f"{times:8}  {transition.state:10} {transition.cause:15} {transition.outcome}\n")
    assert min(wide.states, faulty.states) > 10_000
    listed = [re.split(" {2,}", line.strip()) for line in TRANSITIONS.splitlines()[1:]]
    assert set(transitions) == {Transition(*columns) for columns in listed}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_faults_in_two_rounds_keep_the_rules() -> None:
    assert explore(HeldLife, Bounds(rounds=2, each=1, faults=2)).states > 400_000


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"rule {mutation.rule}, {mutation.breaks}")
def test_a_broken_rule_is_found(mutation: Mutation) -> None:
    kind = mutated(mutation.changes)
    with pytest.raises(Violation) as found:
        explore_all(kind)
    assert found.value.invariant == mutation.found


def test_every_rule_is_broken_and_every_invariant_finds_something() -> None:
    assert {mutation.rule for mutation in MUTATIONS} == set(range(1, 9))
    assert {mutation.found for mutation in MUTATIONS} == set(Invariant)


def test_a_violation_names_the_steps_that_lead_there() -> None:
    (expiring,) = (mutation for mutation in MUTATIONS if mutation.rule == 6)
    with pytest.raises(Violation) as found:
        explore(mutated(expiring.changes), WIDE)
    assert [step[1] for step in found.value.steps] == ["send", "arrive", "ask"]
