"""Pure: the life of one held call. It decides what happens; `gateway.upstreams.held` makes it happen."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from gateway.upstreams.held.actions import (
    Ended,
    EndUpstream,
    Forget,
    Give,
    HeldAction,
    HeldEvent,
    HeldLimits,
    HeldState,
    NextRound,
    Refuse,
    RefuseReason,
    Reply,
    Stopped,
    StopReason,
    Withdrawn,
)


class HeldLife:
    """One call to an upstream, with the requests that wait for it, and the questions that it asks.

    Round 0 is the first request. The request of a later round has the answers to the questions of the round before.
    Requests can be sent again at any time: all of one round get the same event, and only the first one answers
    the questions.

    Each method returns the actions to take, in their order. `now` is in seconds, of a clock that never goes back.

    Args:
        digest: of the first request. Another one under the same call is refused.
        now: when the first request came. It joins like those that follow.
    """

    def __init__(self, limits: HeldLimits, digest: bytes, now: float) -> None:
        self._limits = limits
        self._state: HeldState = "working"
        self._since = now
        self._worked_seconds = 0.0  # before `_since`
        self._digests = [digest]  # of the answers, by round
        self._events: list[HeldEvent] = []  # by round
        self._waiters = set[int]()  # all of the newest round, because older ones have their event
        self._left_at: float | None = now
        self._question_ids = set[Hashable]()
        self._coming: dict[Hashable, tuple[str, Any]] = {}  # keys and questions of the next round
        self._goes_out_at: float | None = None
        self._open: dict[Hashable, str] = {}  # keys that wait for their answer
        self._is_forgotten = False

    @property
    def state(self) -> HeldState:
        """Return whether the upstream works, waits for its user, or the call has ended."""
        return self._state

    @property
    def round(self) -> int:
        """Return the round whose request comes next."""
        return len(self._digests)

    @property
    def due(self) -> float | None:
        """Return when to call `tick`. None: never again."""
        if self._is_forgotten:
            return None
        if self._state == "ended":
            return self._since + self._limits.kept_seconds
        if self._state == "asked":
            return self._since + self._limits.held_seconds
        moments = (self._times_out_at, self._goes_out_at, self._abandoned_at)
        return min(moment for moment in moments if moment is not None)

    @property
    def _times_out_at(self) -> float:
        return self._since + self._limits.timeout_seconds - self._worked_seconds

    @property
    def _abandoned_at(self) -> float | None:
        return None if self._left_at is None else self._left_at + self._limits.unattended_seconds

    def join(
        self, waiter: int, round_number: int, digest: bytes, answers: Mapping[str, Any], now: float
    ) -> list[HeldAction]:
        """Let a request wait for the event of its round. It gets the event at once if there is one.

        The first complete answers to a round are sent to the upstream; the same answers join them, by their digest.
        Answers to questions of other rounds are ignored.
        """
        reason = self._problem(round_number, digest, answers)
        if reason is not None:
            return [Refuse(waiter, reason)]
        if round_number < len(self._events):
            return [Give(waiter, self._events[round_number])]
        self._waiters.add(waiter)
        self._left_at = None
        return [] if round_number < len(self._digests) else self._answer(digest, answers, now)

    def leave(self, waiter: int, now: float, *, for_good: bool) -> list[HeldAction]:
        """Note that a request no longer waits. `for_good`: its client has left, so it sends no request again."""
        if waiter not in self._waiters:
            return []
        self._waiters.remove(waiter)
        if for_good and not self._events:
            return self._stop("abandoned", now)  # nobody has a state with which to come back
        if not self._waiters:
            self._left_at = now
        return []

    def asks(self, question_id: Hashable, question: Any, now: float) -> list[HeldAction]:
        """Note a question of the upstream. It goes out with others; while a round is out, it waits for the next."""
        if self._state == "ended" or question_id in self._question_ids:
            return []
        if len(self._question_ids) == self._limits.questions:
            return self._stop("asked_too_much", now)
        self._question_ids.add(question_id)
        self._coming[question_id] = (f"q{len(self._question_ids)}", question)
        if self._state == "working":
            self._goes_out_at = now + self._limits.together_seconds
        return []

    def withdraws(self, question_id: Hashable) -> list[HeldAction]:
        """Note that the upstream no longer waits for an answer. If it comes, it is not sent."""
        if self._coming.pop(question_id, None) is not None:
            if not self._coming:
                self._goes_out_at = None
            return []
        key = self._open.pop(question_id, None)
        return [] if key is None else [Withdrawn((key,))]

    def ends(self, outcome: Any, now: float) -> list[HeldAction]:
        """Note the upstream's result, error or failure."""
        if self._state == "ended":
            return []
        withdrawn = tuple(self._open.values())
        asked_seconds = now - self._since if self._state == "asked" else 0.0
        gives = self._end(Ended(outcome, asked_seconds), now)
        return [Withdrawn(withdrawn), *gives] if withdrawn else gives

    def cancel(self, now: float) -> list[HeldAction]:
        """End the call for its client, or because its client can no longer answer."""
        return [] if self._state == "ended" else self._stop("cancelled", now)

    def tick(self, now: float) -> list[HeldAction]:
        """Do what is due."""
        if self.due is None or now < self.due:
            return []
        if self._state == "ended":
            self._is_forgotten = True
            return [Forget()]
        if self._state == "asked":
            return self._stop("expired", now)
        if self._goes_out_at is not None and self._goes_out_at <= now:
            return self._ask(now)
        return self._stop("timed_out" if self._times_out_at <= now else "abandoned", now)

    def _problem(self, round_number: int, digest: bytes, answers: Mapping[str, Any]) -> RefuseReason | None:
        """Return why a request is refused, or None."""
        if self._is_forgotten:
            return "forgotten"
        if not 0 <= round_number <= len(self._digests):
            return "unknown_round"
        if round_number < len(self._digests):
            return None if digest == self._digests[round_number] else "other_answers"
        if round_number < len(self._events):
            return None  # the call ended while it was asking, so no answer is needed
        asked = self._events[-1] if self._state == "asked" else None
        if not isinstance(asked, NextRound):
            return "unknown_round"
        return None if asked.questions.keys() <= answers.keys() else "missing_answers"

    def _answer(self, digest: bytes, answers: Mapping[str, Any], now: float) -> list[HeldAction]:
        """Answer all questions of a round. Those that came meanwhile go out."""
        replies: list[HeldAction] = [Reply(question_id, answers[key]) for question_id, key in self._open.items()]
        self._open = {}
        self._digests.append(digest)
        self._state, self._since = "working", now
        return [*replies, *self._ask(now)] if self._coming else replies

    def _ask(self, now: float) -> list[HeldAction]:
        """Begin a round with the questions that have come."""
        if len(self._events) == self._limits.rounds:
            return self._stop("asked_too_much", now)
        event = NextRound(len(self._digests), dict(self._coming.values()))
        self._open = {question_id: key for question_id, (key, _) in self._coming.items()}
        self._coming, self._goes_out_at = {}, None
        self._worked_seconds += now - self._since
        self._state, self._since = "asked", now
        return self._give(event)

    def _stop(self, reason: StopReason, now: float) -> list[HeldAction]:
        seconds = now - self._since + (0.0 if self._state == "asked" else self._worked_seconds)
        return [EndUpstream(reason), *self._end(Stopped(reason, seconds), now)]

    def _end(self, event: Ended | Stopped, now: float) -> list[HeldAction]:
        self._coming, self._goes_out_at, self._open = {}, None, {}
        self._state, self._since = "ended", now
        return self._give(event)

    def _give(self, event: HeldEvent) -> list[HeldAction]:
        self._events.append(event)
        gives: list[HeldAction] = [Give(waiter, event) for waiter in sorted(self._waiters)]
        self._waiters = set()
        self._left_at = None
        return gives
