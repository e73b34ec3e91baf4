"""Drives `HeldLife` through every order of events, breadth first, with a model of the processes around it.

The world has one caller, two replicas, a holder and an upstream. The upstream asks in up to two rounds, one or two
questions each. Faults are bounded: each kind happens at most once in a run.

A message that is lost between holder and upstream is not modelled: it looks like an upstream that works forever.
"""

from __future__ import annotations

import copy
from collections import Counter, deque
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from gateway.upstreams.held.actions import (
    Ended,
    EndUpstream,
    Forget,
    Give,
    HeldAction,
    HeldEvent,
    HeldLimits,
    NextRound,
    Refuse,
    Reply,
    Stopped,
    Withdrawn,
)
from gateway.upstreams.held.life import HeldLife

LIMITS: Final = HeldLimits(
    timeout_seconds=7,
    held_seconds=5,
    together_seconds=2,
    unattended_seconds=3,
    kept_seconds=4,
    rounds=2,
    questions=4,
)
OTHER_CALL: Final = 99
"""The only request of another call, which the same holder has."""
OPEN: Final = frozenset({"coming", "out"})
FORGOTTEN: Final = "the holder does not know the call"
OUTCOME: Final = "outcome"

Step: TypeAlias = tuple[Any, ...]
"""Its fault or None, the method that takes it, and the arguments."""


class Invariant(StrEnum):
    """A condition that every state meets."""

    ONE_ANSWER = "no answer is sent twice"
    OWN_ANSWER = "each answer is sent to the question that it was given for"
    NOT_WITHDRAWN = "no answer is sent to a withdrawn question"
    WHOLE_ROUND = "all questions of a round are answered at once"
    SAME_ROUND = "an answered round does not change"
    OWN_OUTCOME = "no outcome is given to another call"
    AFTER_THE_END = "nothing is sent upstream after the end"
    FORGOTTEN = "with time alone, every call ends and is forgotten"
    ATTENDED = "the upstream does not work on while nobody waits"
    TOGETHER = "questions that come together go out together"
    IN_TIME = "a call is stopped for its reason, and in time"
    KEPT = "the last event is kept for its time"
    TOLD = "no request waits for an event that exists"
    CANCELLED = "a cancelled call ends at once"
    DRAINED = "a draining process stays until its calls have ended"
    REFUSED = "a request is refused for its reason, and changes nothing"
    RECORDED = "questions that the upstream withdraws are recorded"


class Violation(AssertionError):
    """An invariant does not hold. `steps` lead there."""

    def __init__(self, invariant: Invariant, steps: list[Step] | None = None) -> None:
        super().__init__(invariant, steps)
        self.invariant = invariant
        self.steps = steps or []


class Request(NamedTuple):
    """A request between a replica and the holder. The caller saw `questions` as keys and texts."""

    replica: int
    round: int
    answers: str
    questions: tuple[tuple[str, str], ...]

    @property
    def content(self) -> dict[str, tuple[str, str]]:
        content = {key: (text, self.answers) for key, text in self.questions}
        if self.answers == "missing":
            content.popitem()
        return content


class Response(NamedTuple):
    """What the holder sends back for a request."""

    request: Request
    waiter: int
    event: HeldEvent | str


class Transition(NamedTuple):
    """What the module did in a state."""

    state: str
    cause: str
    outcome: str


Transitions: TypeAlias = Counter[Transition]


class Bounds(NamedTuple):
    """How many rounds the upstream asks, how many questions in each, and how many faults there are in a run."""

    rounds: int
    each: int
    faults: int


class World:
    """One state of everything. `steps` says what can happen next, and `take` makes it happen."""

    def __init__(self, kind: type[HeldLife], bounds: Bounds, transitions: Transitions) -> None:
        self.kind = kind
        self.bounds = bounds
        self.transitions = transitions
        self.spent: tuple[str, ...] = ()
        self.now = 0.0
        self.replicas = (True, True)
        self.requests: tuple[Request, ...] = ()
        self.responses: tuple[Response, ...] = ()
        # the holder
        self.holder = "serves"
        self.life: HeldLife | None = None
        self.has_begun = False
        self.waiting: dict[int, Request] = {}
        self.other: HeldLife | None = None
        # the caller
        self.caller = "idle"
        self.leg = 0
        self.seen: tuple[tuple[str, str], ...] = ()
        # the upstream: its questions by their number, and how many it asked in each of its rounds before this one
        self.questions: tuple[str, ...] = ()
        self.earlier: tuple[int, ...] = ()
        # what should be true of the call
        self.phase = "working"
        self.since = 0.0
        self.worked = 0.0
        self.left_at = 0.0
        self.asked_at = 0.0
        self.ending: HeldEvent | None = None
        self.shown: tuple[tuple[tuple[str, str], ...], ...] = ()
        self.accepted: dict[int, str] = {}
        self.ending_alone = set[int]()  # shared by all

    def clone(self) -> World:
        """Return a copy that shares nothing that changes."""
        world = copy.copy(self)
        world.waiting = self.waiting.copy()
        world.life = None if self.life is None else _shallow(self.life)
        world.other = None if self.other is None else _shallow(self.other)
        return world

    def key(self) -> int:
        """Return a hash of what distinguishes this state, with times as seen from now."""
        times = (
            self.now - self.since,
            self.now - self.left_at if self.phase == "working" and not self.waiting else None,
            self.now - self.asked_at if self.phase == "working" and "coming" in self.questions else None,
        )
        responses = frozenset((*response[:2], _frozen(response.event)) for response in self.responses)
        network = (tuple(sorted(self.requests)), responses, _frozen(self.waiting))
        processes = (self.replicas, self.holder, self.has_begun, self.spent)
        lives = (_life_key(self.life, self.now), self.other is not None and self.other.state)
        call = (self.phase, self.worked, self.ending, self.shown, _frozen(self.accepted), self.questions, self.earlier)
        return hash((times, network, processes, lives, call, self.caller, self.leg, self.seen))

    # what can happen

    def steps(self) -> Iterator[Step]:
        """Return what can happen next."""
        spent = Counter(self.spent)
        for step in self._steps():
            if step[0] is None or (len(self.spent) < self.bounds.faults and not spent[step[0]]):
                yield step

    def take(self, step: Step) -> None:
        """Let something happen, and check what has to hold then."""
        fault, name, *arguments = step
        if fault is not None:
            self.spent = tuple(sorted((*self.spent, fault)))
        getattr(self, name)(*arguments)
        self._check()

    def _steps(self) -> Iterator[Step]:
        yield from self._steps_of_caller()
        yield from self._steps_of_network()
        yield from self._steps_of_processes()
        if self.life is not None:
            if self.phase != "ended":
                yield from self._steps_of_upstream()
            yield (None, "time_passes")
            if self.phase != "ended" and self.life.due is not None and self.life.due - self.now > 1:
                yield ("pause", "pause")

    def _steps_of_caller(self) -> Iterator[Step]:
        if self.caller not in {"idle", "waits"}:
            return
        alive = [replica for replica in (0, 1) if self.replicas[replica]]
        under_way = [*self.requests, *self.waiting.values(), *(response.request for response in self.responses)]
        is_under_way = any(request.round == self.leg and request.answers == "right" for request in under_way)
        for replica in alive[: 1 if self.leg == 0 and not is_under_way else 2]:
            if not is_under_way:
                yield (None, "send", replica, self.leg, "right")
                continue
            yield ("again", "send", replica, self.leg, "right")
            yield ("future round", "send", replica, self.leg + 1, "future")
            if self.leg:
                yield ("other answers", "send", replica, self.leg, "other")
                yield ("missing answers", "send", replica, self.leg, "missing")
        yield ("caller leaves", "caller_leaves")
        if self.life is not None:
            yield ("cancelled", "cancel")

    def _steps_of_network(self) -> Iterator[Step]:
        for number in range(len(self.requests)):
            yield (None, "arrive", number)
            yield ("loss", "lose_request", number)
        for number in range(len(self.responses)):
            yield (None, "return_", number)
            yield ("loss", "lose_response", number)
        for waiter in self.waiting:
            yield ("loss", "lose_connection", waiter)

    def _steps_of_processes(self) -> Iterator[Step]:
        for replica in (0, 1):
            if self.replicas[replica] and any(request.replica == replica for request in self.waiting.values()):
                yield ("replica dies", "replica_dies", replica)
        if self.holder != "gone" and self.has_begun:
            yield ("holder dies", "holder_goes")
        if self.holder == "serves":
            yield ("draining", "drain")
        elif self.holder == "drains" and (self.life is None or self.life.state == "ended"):
            yield (None, "drained")
        if self.holder != "gone" and self.other is None:
            yield ("other call", "begin_other")
        elif self.other is not None and self.other.state == "working":
            yield (None, "end_other")

    def _steps_of_upstream(self) -> Iterator[Step]:
        rest = self.questions[sum(self.earlier) :]
        is_settled = not OPEN.intersection(rest)
        may_ask = len(self.earlier) + 1 < self.bounds.rounds if rest and is_settled else len(rest) < self.bounds.each
        yield (None if may_ask else "question too many", "ask")
        for number, question in enumerate(self.questions):
            if question in OPEN:
                yield ("question twice", "ask_again", number)
            if question != "withdrawn":
                yield ("withdrawal", "withdraw", number)
        yield (None, "end", OUTCOME)
        yield ("upstream dies", "end", "failure")

    # the caller and its replicas

    def send(self, replica: int, round_number: int, answers: str) -> None:
        self.requests += (Request(replica, round_number, answers, self.seen),)
        self.caller = "waits"

    def caller_leaves(self) -> None:
        nobody_returns = bool(self.waiting) and not self.shown and self.phase == "working"
        self.caller = "gone"
        for waiter in tuple(self.waiting):
            self._leave(waiter, for_good=True)
        if nobody_returns and self.phase != "ended":
            raise Violation(Invariant.ATTENDED)

    def cancel(self) -> None:
        self._apply("cancel", lambda life: life.cancel(self.now))
        if self.phase != "ended":
            raise Violation(Invariant.CANCELLED)

    def return_(self, number: int) -> None:
        request, _, event = self._take_response(number)
        if self.caller != "waits" or request.round != self.leg:
            return
        if isinstance(event, NextRound):
            self.caller, self.leg, self.seen = "idle", event.round, tuple(event.questions.items())
        elif request.answers == "right" or isinstance(event, Ended | Stopped):
            self.caller = "done"

    def replica_dies(self, replica: int) -> None:
        alive = list(self.replicas)
        alive[replica] = False
        self.replicas = (alive[0], alive[1])
        self.requests = tuple(request for request in self.requests if request.replica != replica)
        for response in self.responses:
            if response.request.replica == replica:
                self._leave(response.waiter, for_good=False)
        self.responses = tuple(response for response in self.responses if response.request.replica != replica)
        for waiter, request in tuple(self.waiting.items()):
            if request.replica == replica:
                self._leave(waiter, for_good=False)

    # the network

    def arrive(self, number: int) -> None:
        request = self.requests[number]
        self.lose_request(number)
        waiter = min({0, 1, 2, 3, 4} - self.waiting.keys() - {response.waiter for response in self.responses})
        if self.holder == "gone" or (
            self.life is None and (self.has_begun or request.round or self.holder == "drains")
        ):
            self.responses += (Response(request, waiter, FORGOTTEN),)
            return
        if self.life is None:
            self.life, self.has_begun = self.kind(LIMITS, b"right", self.now), True
            self.since = self.left_at = self.now
        self._join(waiter, request)
        if self.caller == "gone" and waiter in self.waiting:
            self._leave(waiter, for_good=True)

    def lose_request(self, number: int) -> None:
        self.requests = self.requests[:number] + self.requests[number + 1 :]

    def lose_response(self, number: int) -> None:
        self._leave(self._take_response(number).waiter, for_good=False)

    def lose_connection(self, waiter: int) -> None:
        self._leave(waiter, for_good=False)

    def _take_response(self, number: int) -> Response:
        response = self.responses[number]
        self.responses = self.responses[:number] + self.responses[number + 1 :]
        return response

    # the holder

    def holder_goes(self) -> None:
        self.holder, self.life, self.other, self.waiting = "gone", None, None, {}
        self.has_begun, self.phase = True, "ended"

    def drain(self) -> None:
        self.holder = "drains"

    def drained(self) -> None:
        if self.life is not None and self.phase != "ended":
            raise Violation(Invariant.DRAINED)
        self.holder_goes()

    def begin_other(self) -> None:
        self.other = self.kind(LIMITS, b"right", self.now)
        self._give_other(self.other.join(OTHER_CALL, 0, b"right", {}, self.now))

    def end_other(self) -> None:
        assert self.other is not None
        self._give_other(self.other.ends("other outcome", self.now), Give(OTHER_CALL, Ended("other outcome")))

    def _give_other(self, actions: list[HeldAction], *expected: HeldAction) -> None:
        if actions != list(expected):
            raise Violation(Invariant.OWN_OUTCOME)

    def time_passes(self) -> None:
        assert self.life is not None
        if self.life.due is None:
            raise Violation(Invariant.FORGOTTEN)
        self.now = self.life.due
        self._apply("tick", lambda life: life.tick(self.now))

    def pause(self) -> None:
        self.now += 1
        self._apply("tick", lambda life: life.tick(self.now))

    def _join(self, waiter: int, request: Request) -> None:
        self.waiting[waiter] = request
        self._apply(
            "join",
            lambda life: life.join(waiter, request.round, request.answers.encode(), request.content, self.now),
            request,
        )

    def _leave(self, waiter: int, *, for_good: bool) -> None:
        if self.waiting.pop(waiter, None) is not None and not self.waiting:
            self.left_at = self.now
        if self.life is not None:
            cause = "leave for good" if for_good else "leave"
            self._apply(cause, lambda life: life.leave(waiter, self.now, for_good=for_good))

    # the upstream

    def ask(self) -> None:
        rest = self.questions[sum(self.earlier) :]
        if rest and not OPEN.intersection(rest):
            self.earlier += (len(rest),)
        number = len(self.questions)
        self.questions += ("coming",)
        self.asked_at = self.now
        self._apply("asks", lambda life: life.asks(number, _text(number), self.now))

    def ask_again(self, number: int) -> None:
        self._apply("asks", lambda life: life.asks(number, _text(number), self.now))

    def withdraw(self, number: int) -> None:
        expected = (f"q{number + 1}",) if self.questions[number] == "out" else ()
        if self.questions[number] != "answered":
            self._settle(number, "withdrawn")
        self._apply("withdraws", lambda life: life.withdraws(number), withdrawn=expected)

    def end(self, outcome: str) -> None:
        asked_seconds = self.now - self.since if self.phase == "asked" else 0.0
        withdrawn = tuple(f"q{number + 1}" for number, state in enumerate(self.questions) if state == "out")
        self._ended(Ended(outcome, asked_seconds))
        self._apply("ends", lambda life: life.ends(outcome, self.now), withdrawn=withdrawn)

    def _settle(self, number: int, how: str) -> None:
        self.questions = (*self.questions[:number], how, *self.questions[number + 1 :])

    # what has to hold

    def _apply(
        self,
        cause: str,
        act: Callable[[HeldLife], list[HeldAction]],
        request: Request | None = None,
        withdrawn: tuple[str, ...] = (),
    ) -> None:
        """Give the module something to decide, and do what it says."""
        life = self.life
        assert life is not None
        state, untouched, was_over = life.state, _life_key(life, self.now), self.phase == "ended"
        refusal = None if request is None else self._refusal(request)
        actions = act(life)
        self._note(state, cause, actions, life)
        self._check_refusal(refusal, actions, request, changes=untouched != _life_key(life, self.now))
        is_answer = request is not None and refusal is None and self._begin_round(request)
        for action in actions:
            if isinstance(action, Reply):
                self._replied(action, request if is_answer else None)
            elif isinstance(action, EndUpstream):
                self._stopped(action, cause)
        if is_answer and "out" in self.questions:
            raise Violation(Invariant.WHOLE_ROUND)
        if self.phase == "working" and life.state != "working":
            self._asked(at_once=is_answer)
        elif is_answer and "coming" in self.questions and self.phase == "working":
            raise Violation(Invariant.TOGETHER)
        for action in actions:
            if isinstance(action, Give):
                self._given(action)
            elif isinstance(action, Forget):
                self._forgotten(life)
        if [action.keys for action in actions if isinstance(action, Withdrawn)] != [withdrawn] * bool(withdrawn):
            raise Violation(Invariant.RECORDED)
        if not was_over and self.phase == "ended":
            self._check_late(life)

    def _note(self, state: str, cause: str, actions: list[HeldAction], life: HeldLife) -> None:
        outcome = [*dict.fromkeys(map(_name, actions)), *([life.state] if life.state != state != "forgotten" else [])]
        self.transitions[Transition(state, cause, ", ".join(outcome) or "nothing")] += 1

    def _refusal(self, request: Request) -> str | None:
        """Return why a request has to be refused."""
        if request.round > len(self.shown):
            return "unknown_round"
        if request.round in self.accepted:
            return "other_answers" if self.accepted[request.round] != request.answers else None
        if self.phase == "asked" and not dict(self.shown[-1]).keys() <= request.content.keys():
            return "missing_answers"
        return None

    def _check_refusal(
        self, expected: str | None, actions: list[HeldAction], request: Request | None, *, changes: bool
    ) -> None:
        refused = [action for action in actions if isinstance(action, Refuse)]
        if expected is None and not refused:
            return
        if not refused:
            of_reason = {"other_answers": Invariant.SAME_ROUND, "missing_answers": Invariant.WHOLE_ROUND}
            raise Violation(of_reason.get(expected or "", Invariant.REFUSED))
        waiter = refused[0].waiter
        if (
            request is None
            or actions != [Refuse(waiter, cast("Any", expected))]
            or self.waiting[waiter] != request
            or changes
        ):
            raise Violation(Invariant.REFUSED)
        self.responses += (Response(self.waiting.pop(waiter), waiter, refused[0].reason),)

    def _begin_round(self, request: Request) -> bool:
        """Return whether a request answers the questions that are out."""
        if request.round in self.accepted or self.phase == "ended":
            return False
        self.accepted = {**self.accepted, request.round: request.answers}
        if request.round:
            self.phase, self.since = "working", self.now
        return request.round > 0

    def _replied(self, reply: Reply, request: Request | None) -> None:
        if self.phase == "ended":
            raise Violation(Invariant.AFTER_THE_END)
        number = cast("int", reply.question_id)
        if self.questions[number] == "answered":
            raise Violation(Invariant.ONE_ANSWER)
        if self.questions[number] == "withdrawn":
            raise Violation(Invariant.NOT_WITHDRAWN)
        if request is None or self.questions[number] != "out" or reply.answer != (_text(number), request.answers):
            raise Violation(Invariant.OWN_ANSWER)
        self._settle(number, "answered")

    def _stopped(self, action: EndUpstream, cause: str) -> None:
        if self.phase == "ended":
            raise Violation(Invariant.AFTER_THE_END)
        took = self.now - self.since
        worked = self.worked + took
        is_due = {
            "cancelled": cause == "cancel",
            "expired": self.phase == "asked" and took == LIMITS.held_seconds,
            "timed_out": self.phase == "working" and worked == LIMITS.timeout_seconds,
            "abandoned": self.phase == "working"
            and (
                (not self.waiting and self.now == self.left_at + LIMITS.unattended_seconds)
                or (cause == "leave for good" and not self.shown)
            ),
            "asked_too_much": len(self.questions) > LIMITS.questions or len(self.shown) == LIMITS.rounds,
        }
        if not is_due[action.reason]:
            raise Violation(Invariant.IN_TIME)
        self._ended(Stopped(action.reason, took if self.phase == "asked" else worked))

    def _ended(self, ending: Ended | Stopped) -> None:
        self.ending, self.phase, self.since = ending, "ended", self.now
        self.questions = tuple("withdrawn" if state in OPEN else state for state in self.questions)

    def _asked(self, *, at_once: bool) -> None:
        if not at_once and self.now < self.asked_at + LIMITS.together_seconds:
            raise Violation(Invariant.TOGETHER)
        self.worked += self.now - self.since
        self.phase, self.since = "asked", self.now
        coming = [number for number, state in enumerate(self.questions) if state == "coming"]
        self.shown += (tuple((f"q{number + 1}", _text(number)) for number in coming),)
        self.questions = tuple("out" if state == "coming" else state for state in self.questions)

    def _given(self, give: Give) -> None:
        if give.waiter not in self.waiting:
            raise Violation(Invariant.OWN_OUTCOME)
        request, event = self.waiting.pop(give.waiter), give.event
        if self.accepted.get(request.round, request.answers) != request.answers:
            raise Violation(Invariant.SAME_ROUND)
        if request.round < len(self.shown):
            questions = self.shown[request.round]
            if not isinstance(event, NextRound):
                raise Violation(Invariant.SAME_ROUND)
            if (event.round, tuple(event.questions.items())) != (request.round + 1, questions):
                raise Violation(Invariant.TOGETHER if request.round == len(self.shown) - 1 else Invariant.SAME_ROUND)
        elif event != self.ending:
            raise Violation(Invariant.OWN_OUTCOME)
        self.responses += (Response(request, give.waiter, event),)

    def _forgotten(self, life: HeldLife) -> None:
        if self.phase != "ended" or self.now != self.since + LIMITS.kept_seconds:
            raise Violation(Invariant.KEPT)
        self.life = None
        self._check_late(life)
        refused: list[HeldAction] = [Refuse(0, "forgotten")]
        if life.due is not None or life.tick(self.now) or life.join(0, 0, b"right", {}, self.now) != refused:
            raise Violation(Invariant.AFTER_THE_END)
        self._note("forgotten", "join", refused, life)

    def _check_late(self, life: HeldLife) -> None:
        """Check that messages of the upstream or the client change nothing if they come after the end."""
        late = _shallow(life)
        for cause, actions in (
            ("asks", late.asks(len(self.questions), "late", self.now)),
            ("withdraws", late.withdraws(0)),
            ("ends", late.ends("late", self.now)),
            ("cancel", late.cancel(self.now)),
        ):
            self._note(late.state, cause, actions, late)
            if actions:
                raise Violation(Invariant.AFTER_THE_END)
        if _life_key(late, self.now) != _life_key(life, self.now):
            raise Violation(Invariant.AFTER_THE_END)

    def _check(self) -> None:
        """Check what holds between two steps."""
        if self.waiting and self.phase != "working":
            raise Violation(Invariant.TOLD)
        if self.life is None:
            return
        if self.life.due is None:
            raise Violation(Invariant.FORGOTTEN)
        for latest, invariant in self._latest():
            if self.life.due > latest:
                raise Violation(invariant)
        self._check_time_alone(self.life)

    def _latest(self) -> Iterator[tuple[float, Invariant]]:
        """Return when the module has to be called at the latest."""
        if self.phase == "ended":
            yield self.since + LIMITS.kept_seconds, Invariant.KEPT
        elif self.phase == "asked":
            yield self.since + LIMITS.held_seconds, Invariant.IN_TIME
        else:
            yield self.since + LIMITS.timeout_seconds - self.worked, Invariant.IN_TIME
            if not self.waiting:
                yield self.left_at + LIMITS.unattended_seconds, Invariant.ATTENDED
            if "coming" in self.questions:
                yield self.asked_at + LIMITS.together_seconds, Invariant.TOGETHER

    def _check_time_alone(self, life: HeldLife) -> None:
        if (key := hash(_life_key(life, self.now))) in self.ending_alone:
            return
        left, actions = _shallow(life), list[HeldAction]()
        for _ in range(4):  # it asks, expires and is forgotten
            if left.due is not None:
                actions += left.tick(left.due)
        if actions[-1:] != [Forget()] or left.due is not None:
            raise Violation(Invariant.FORGOTTEN)
        self.ending_alone.add(key)


class Exploration(NamedTuple):
    """How many states there were, and how often the module did what."""

    states: int
    transitions: Transitions


Ways: TypeAlias = dict[int, tuple[int, Step] | None]
"""The states by key, each with the one before it and the step that leads from there."""


def explore(kind: type[HeldLife], bounds: Bounds) -> Exploration:
    """Visit every state that some order of events leads to.

    Raises:
        Violation: an invariant does not hold. No shorter way leads to a violation.
    """
    start = World(kind, bounds, Counter())
    ways: Ways = {start.key(): None}
    waiting = deque([start])
    while waiting:
        world = waiting.popleft()
        key = world.key()
        for step in world.steps():
            following = world.clone()
            try:
                following.take(step)
            except Violation as violation:
                raise Violation(violation.invariant, [*_way(ways, key), step]) from None
            if (reached := following.key()) not in ways:
                ways[reached] = (key, step)
                waiting.append(following)
    return Exploration(len(ways), start.transitions)


def _way(ways: Ways, key: int) -> list[Step]:
    steps = list[Step]()
    while (way := ways[key]) is not None:
        key, step = way
        steps.append(step)
    return steps[::-1]


def _text(number: int) -> str:
    return f"question {number}"


def _name(action: HeldAction) -> str:
    match action:
        case Give(event=event):
            return f"give {type(event).__name__}"
        case Refuse(reason=reason) | EndUpstream(reason=reason):
            return f"{type(action).__name__} {reason}"
        case _:
            return type(action).__name__


_T = TypeVar("_T")


def _shallow(of: _T) -> _T:
    """Copy an object and its collections, whose members do not change."""
    copied = object.__new__(type(of))
    copied.__dict__ = {
        name: copy.copy(value) if type(value) in {list, dict, set} else value for name, value in vars(of).items()
    }
    return copied


def _life_key(life: HeldLife | None, now: float) -> Any:
    """Return what distinguishes two lives, with times as seen from now."""
    return life and tuple(
        now - value if value is not None and name.endswith(("_at", "_since")) else _frozen(value)
        for name, value in vars(life).items()
    )


def _frozen(value: Any) -> Any:
    """Return a hashable copy."""
    kind = type(value)
    if kind is dict:
        return tuple([(key, _frozen(of_key)) for key, of_key in value.items()])
    if kind is list:
        return tuple([_frozen(member) for member in value])
    if kind is set:
        return frozenset(value)
    if kind is NextRound:
        return (value.round, *value.questions.items())
    return value
