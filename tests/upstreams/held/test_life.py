"""When a held call asks, answers, waits and ends."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.upstreams.held.actions import (
    Ended,
    EndUpstream,
    Forget,
    Give,
    HeldAction,
    HeldLimits,
    NextRound,
    Refuse,
    RefuseReason,
    Reply,
    Stopped,
    StopReason,
    Withdrawn,
)
from gateway.upstreams.held.life import HeldLife

LIMITS = HeldLimits(timeout_seconds=60, held_seconds=600)
FIRST = b"the first request"
ONE, TWO = NextRound(1, {"q1": "Delete 3?"}), NextRound(2, {"q2": "Delete 300?"})


def begun(limits: HeldLimits = LIMITS) -> HeldLife:
    """Return a call at time 0, for whose event request 1 waits."""
    life = HeldLife(limits, FIRST, 0)
    assert life.join(1, 0, FIRST, {}, 0) == []
    return life


def asked() -> HeldLife:
    """Return a call that asked one question at time 10. No request waits."""
    life = begun()
    life.asks("a", "Delete 3?", 9.95)
    assert life.tick(10) == [Give(1, ONE)]
    return life


def answered(now: float = 20) -> HeldLife:
    """Return a call whose first round was answered. Request 2 waits."""
    life = asked()
    assert answer(life, 2, now) == [Reply("a", "yes")]
    return life


def ended() -> HeldLife:
    life = begun()
    assert life.ends("done", 10) == [Give(1, Ended("done"))]
    return life


def answer(life: HeldLife, waiter: int, now: float, value: str = "yes") -> list[HeldAction]:
    return life.join(waiter, 1, value.encode(), {"q1": value}, now)


def refused(waiter: int, reason: RefuseReason) -> list[HeldAction]:
    return [Refuse(waiter, reason)]


def stopped(waiter: int, reason: StopReason, seconds: float) -> list[HeldAction]:
    return [EndUpstream(reason), Give(waiter, Stopped(reason, seconds))]


# rule 1: requests that are sent again


def test_a_first_request_that_is_sent_again_gets_the_same_event() -> None:
    life = begun()
    life.join(2, 0, FIRST, {}, 1)
    assert life.ends("done", 2) == [Give(1, Ended("done")), Give(2, Ended("done"))]


def test_another_first_request_under_the_same_call_is_refused() -> None:
    assert begun().join(2, 0, b"another", {}, 1) == refused(2, "other_answers")


def test_answers_that_are_sent_again_are_not_sent_upstream_again() -> None:
    life = answered()
    assert answer(life, 3, 21) == []
    assert life.ends("done", 22) == [Give(2, Ended("done")), Give(3, Ended("done"))]


def test_an_older_round_gets_its_own_event() -> None:
    assert answered().join(3, 0, FIRST, {}, 21) == [Give(3, ONE)]


def test_other_answers_to_an_answered_round_are_refused() -> None:
    assert answer(answered(), 3, 21, "no") == refused(3, "other_answers")


def test_other_answers_to_an_older_round_are_refused() -> None:
    life = answered()
    life.asks("b", "Delete 300?", 21)
    assert life.tick(22) == [Give(2, TWO)]
    assert answer(life, 3, 23, "no") == refused(3, "other_answers")


@pytest.mark.parametrize("round_number", [-1, 1, 2])
def test_a_round_that_no_event_leads_to_is_refused(round_number: int) -> None:
    assert begun().join(2, round_number, b"yes", {"q1": "yes"}, 1) == refused(2, "unknown_round")


def test_the_round_after_the_last_event_is_refused() -> None:
    assert answer(ended(), 2, 11) == refused(2, "unknown_round")


def test_a_refused_request_does_not_count_as_waiting() -> None:
    life = begun()
    life.leave(1, 1, for_good=False)
    life.join(2, 0, b"another", {}, 2)
    assert life.due == 6


def test_a_request_joins_after_the_end_until_the_call_is_forgotten() -> None:
    life = ended()
    assert life.join(2, 0, FIRST, {}, 129) == [Give(2, Ended("done"))]
    life.tick(130)
    assert life.join(3, 0, FIRST, {}, 131) == refused(3, "forgotten")


# rule 2: nobody waits


def test_a_call_for_which_nobody_waits_ends_after_five_seconds() -> None:
    life = begun()
    life.leave(1, 10, for_good=False)
    assert life.tick(14.9) == []
    assert life.tick(15) == [EndUpstream("abandoned")]
    assert life.join(2, 0, FIRST, {}, 16) == [Give(2, Stopped("abandoned", 15))]


def test_a_request_that_is_sent_again_in_time_keeps_the_call() -> None:
    life = begun()
    life.leave(1, 10, for_good=False)
    life.join(2, 0, FIRST, {}, 14)
    assert life.tick(15) == []
    assert life.due == 60


def test_a_call_goes_on_while_one_of_two_requests_waits() -> None:
    life = begun()
    life.join(2, 0, FIRST, {}, 1)
    life.leave(1, 10, for_good=False)
    assert life.due == 60


def test_a_client_that_leaves_before_the_first_question_ends_its_call_at_once() -> None:
    assert begun().leave(1, 1, for_good=True) == [EndUpstream("abandoned")]


def test_a_client_that_leaves_before_its_first_question_went_out_ends_its_call_at_once() -> None:
    life = begun()
    life.asks("a", "Delete 3?", 1)
    assert life.leave(1, 1, for_good=True) == [EndUpstream("abandoned")]


def test_a_client_that_leaves_after_an_answer_may_come_back() -> None:
    life = answered()
    assert life.leave(2, 21, for_good=True) == []
    assert life.due == 26


@pytest.mark.parametrize("for_good", [False, True])
def test_a_call_that_asks_ignores_requests_that_leave(for_good: bool) -> None:
    life = asked()
    assert life.leave(1, 11, for_good=for_good) == []
    assert life.due == 610


def test_a_question_that_nobody_waits_for_is_kept_for_the_request_that_is_sent_again() -> None:
    life = begun()
    life.leave(1, 1, for_good=False)
    life.asks("a", "Delete 3?", 2)
    assert life.tick(2.05) == []
    assert life.join(2, 0, FIRST, {}, 100) == [Give(2, ONE)]


# rule 3: questions and answers


def test_questions_within_fifty_milliseconds_go_out_together() -> None:
    life = begun()
    life.asks("a", "Delete 3?", 1)
    life.asks("b", "Delete 300?", 1.04)
    assert life.tick(1.05) == []
    assert life.tick(1.09) == [Give(1, NextRound(1, {"q1": "Delete 3?", "q2": "Delete 300?"}))]


def test_a_question_while_one_is_out_waits_for_the_next_round_and_goes_out_at_once() -> None:
    life = asked()
    assert life.asks("b", "Delete 300?", 11) == []
    assert answer(life, 2, 20) == [Reply("a", "yes"), Give(2, TWO)]
    assert life.state == "asked"


def test_each_question_of_a_round_gets_its_own_answer() -> None:
    life = begun()
    life.asks("a", "Delete 3?", 1)
    life.asks("b", "Delete 300?", 1)
    life.tick(2)
    answers = {"q2": "no", "q1": "yes"}
    assert life.join(2, 1, b"both", answers, 3) == [Reply("a", "yes"), Reply("b", "no")]


def test_nothing_is_sent_upstream_while_an_answer_is_missing() -> None:
    life = begun()
    life.asks("a", "Delete 3?", 1)
    life.asks("b", "Delete 300?", 1)
    life.tick(2)
    assert answer(life, 2, 3) == refused(2, "missing_answers")
    assert life.join(3, 1, b"both", {"q1": "yes", "q2": "no"}, 4) == [Reply("a", "yes"), Reply("b", "no")]


def test_answers_to_other_questions_are_ignored() -> None:
    assert asked().join(2, 1, b"more", {"q1": "yes", "q9": "no"}, 20) == [Reply("a", "yes")]


def test_a_question_that_comes_twice_is_asked_once() -> None:
    life = answered()
    assert life.asks("a", "Delete 3?", 21) == []
    assert life.due == 70


# rule 4: times and bounds


def test_a_call_that_asks_waits_for_its_user() -> None:
    life = asked()
    assert life.tick(609.9) == []
    assert life.tick(610) == [EndUpstream("expired")]
    assert answer(life, 2, 611) == [Give(2, Stopped("expired", 600))]


def test_each_round_waits_for_its_user_in_full() -> None:
    life = answered(now=500)
    life.asks("b", "Delete 300?", 501)
    life.tick(502)
    assert life.due == 1102


def test_only_the_time_in_which_the_upstream_works_counts_as_its_time() -> None:
    life = answered(now=500)  # it has worked for 10 seconds
    assert life.tick(549.9) == []
    assert life.tick(550) == stopped(2, "timed_out", 60)


def test_the_last_event_is_kept_for_two_minutes_and_then_forgotten() -> None:
    life = ended()
    assert life.tick(129.9) == []
    assert life.tick(130) == [Forget()]
    assert life.due is None


def test_nothing_happens_to_a_call_that_is_forgotten() -> None:
    life = ended()
    life.tick(130)
    assert life.tick(1000) == life.asks("a", "Delete 3?", 1000) == life.ends("again", 1000) == life.cancel(1000) == []
    assert life.leave(1, 1000, for_good=True) == life.withdraws("a") == []


def rounds_of(life: HeldLife, rounds: int) -> list[HeldAction]:
    """Let a call ask and answer one question in each of some rounds. Return the last actions."""
    actions = list[HeldAction]()
    for number in range(1, rounds + 1):
        life.asks(number, "Delete 3?", number)
        actions = life.tick(number + 0.05)
        if life.state == "asked":
            life.join(number, number, b"yes", {f"q{number}": "yes"}, number + 0.05)
    return actions


def test_a_call_asks_in_twenty_rounds() -> None:
    assert rounds_of(begun(), 20) == [Give(19, NextRound(20, {"q20": "Delete 3?"}))]


def test_a_call_that_asks_in_a_further_round_is_ended() -> None:
    ending, given = rounds_of(begun(), 21)
    assert ending == EndUpstream("asked_too_much")
    assert isinstance(given, Give)


def test_a_call_that_asks_more_than_sixty_four_questions_is_ended() -> None:
    life = begun()
    assert [life.asks(number, "Delete 3?", 1) for number in range(64)] == [[]] * 64
    assert life.asks(64, "Delete 3?", 2) == stopped(1, "asked_too_much", 2)


# rule 5: the upstream withdraws


def test_the_answer_to_a_withdrawn_question_is_not_sent() -> None:
    life = asked()
    assert life.withdraws("a") == [Withdrawn(("q1",))]
    assert answer(life, 2, 20) == []
    assert life.state == "working"


def test_the_other_questions_of_a_round_are_answered() -> None:
    life = begun()
    life.asks("a", "Delete 3?", 1)
    life.asks("b", "Delete 300?", 1)
    life.tick(2)
    life.withdraws("a")
    assert life.join(2, 1, b"both", {"q1": "yes", "q2": "no"}, 3) == [Reply("b", "no")]


def test_a_call_works_on_if_its_questions_are_withdrawn_before_they_go_out() -> None:
    life = begun()
    life.asks("a", "Delete 3?", 1)
    assert life.withdraws("a") == []
    assert (life.state, life.due) == ("working", 60)


def test_a_question_goes_out_although_another_one_is_withdrawn() -> None:
    life = begun()
    life.asks("a", "Delete 3?", 1)
    life.asks("b", "Delete 300?", 1)
    life.withdraws("a")
    assert life.tick(2) == [Give(1, NextRound(1, TWO.questions))]


def test_a_key_is_never_used_again() -> None:
    life = begun()
    life.asks("a", "Delete 3?", 1)
    life.withdraws("a")
    life.asks("b", "Delete 300?", 2)
    assert life.tick(3) == [Give(1, NextRound(1, {"q2": "Delete 300?"}))]


def test_a_question_that_is_withdrawn_while_it_waits_for_the_next_round_is_not_asked() -> None:
    life = asked()
    life.asks("b", "Delete 300?", 11)
    assert life.withdraws("b") == []
    assert answer(life, 2, 20) == [Reply("a", "yes")]


@pytest.mark.parametrize("answers", [{"q1": "yes"}, {}])
def test_an_outcome_while_asked_goes_to_the_next_request_whatever_it_answers(answers: dict[str, Any]) -> None:
    life = asked()
    assert life.ends("gave up", 70) == [Withdrawn(("q1",))]
    assert life.join(2, 1, b"yes", answers, 80) == [Give(2, Ended("gave up", 60))]
    assert life.join(3, 1, b"no", answers, 80) == [Give(3, Ended("gave up", 60))]


# rules 6 to 8


def test_only_the_first_outcome_counts() -> None:
    life = ended()
    assert life.ends("another", 11) == []
    assert life.join(2, 0, FIRST, {}, 12) == [Give(2, Ended("done"))]


def test_a_cancelled_call_ends_at_once_while_it_works() -> None:
    assert begun().cancel(7) == stopped(1, "cancelled", 7)


def test_a_cancelled_call_ends_at_once_while_it_asks() -> None:
    life = asked()
    assert life.cancel(17) == [EndUpstream("cancelled")]
    assert answer(life, 2, 18) == [Give(2, Stopped("cancelled", 7))]


def test_the_state_says_whether_a_draining_process_still_has_the_call() -> None:
    life = begun()
    states: list[str] = [life.state]
    life.asks("a", "Delete 3?", 9.95)
    life.tick(10)
    states.append(life.state)
    answer(life, 2, 20)
    states.append(life.state)
    life.ends("done", 21)
    assert [*states, life.state] == ["working", "asked", "working", "ended"]
