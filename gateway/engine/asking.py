"""Pure: the questions of a leg. An answer counts for the question that was asked, and for no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Final, NoReturn, TypeAlias

from gateway.engine.host import Host
from gateway.engine.journal import Journal, journal_key
from gateway.engine.keys import check_key
from gateway.engine.leg_policy import LegPolicy
from gateway.engine.outcomes import Failed, NeedsInput
from gateway.engine.questions import Answer, InvalidAnswer, Question, explained
from gateway.engine.stoppable_leg import LegStopped, StoppableLeg
from gateway.errors import AuthoringError, CannotContinue, MissingCapability

MAX_ASKED: Final = 3
"""How often one question is asked if no answer fits it."""

MAX_FORMS: Final = 5
"""How often one question is asked if its form is another one in each leg, so no answer belongs to it."""

SAME_KEYS: Final = "a key must be the same in every leg; ctx.random and ctx.uuid return the same value in each"
"""Advice to an author whose function does not come to a question that was answered."""

Questions: TypeAlias = Mapping[Any, Question]
"""Questions by the author's key, which may be any object until `check_key` has checked it."""

_NO_ANSWER: Final = object()


STEP: Final[ContextVar[tuple[str, str]]] = ContextVar("step", default=("", ""))
"""The flow id and the key of the step that runs this code."""


class AskingLeg(StoppableLeg):
    """The part of a leg that asks. See `gateway.engine.leg.Leg` for its arguments."""

    _progressed = False
    _read: set[str] | None = None  # the keys of the answers that the function has read without asking

    def __init__(
        self,
        journal: Journal,
        fresh: Mapping[str, Answer],
        host: Host,
        policy: LegPolicy,
        *,
        supports: Callable[[tuple[str, ...]], bool],
        declared: Mapping[str, bytes] | None,
    ) -> None:
        self.host = host
        self.reached = {}
        self.journal = journal
        self.policy = policy
        self.supports = supports
        self._declared = declared if policy.strict_asks else None
        self._misfits: dict[str, tuple[str, str]] = {}  # why answers do not fit: for the user, and for everyone else
        # Now and not when the function runs: a task may run it, with the journal alone.
        self._fresh = self._record_expected(fresh, "" if journal.slot is None else journal_key(journal, ""))

    def unexpected(self) -> Mapping[str, Answer]:
        """Return the answers to questions that were not asked. This leg then has none any more."""
        fresh, self._fresh = self._fresh, {}
        return fresh

    def unused(self) -> list[str]:
        """Return the keys of recorded answers that this leg has not come to.

        If it asks something else instead, the function probably makes up a new key in each leg. A relay replays
        nothing, and a function that continues from a checkpoint may have left its questions behind.
        """
        journal = self.journal
        if journal.slot is not None or journal.checkpoint is not None:
            return []
        read = self._read or ()
        return [key for key in journal.answers if key not in self.reached and key not in read]

    def _record_expected(self, fresh: Mapping[str, Answer], prefix: str) -> dict[str, Answer]:
        """Record the answers to questions that the journal asked; return the others (replay rule 2).

        `prefix` begins the keys under which the journal records them.
        """
        unexpected: dict[str, Answer] = {}
        for key, answer in fresh.items():
            digest = self.journal.pending.get(prefix + key)
            if digest is None:
                unexpected[key] = answer
            else:
                self.journal.record(prefix + key, digest, answer)
                self._progressed = True
        return unexpected

    async def ask_one(self, key: Any, question: Question) -> Any:
        """Return the value of a question, or end the leg to ask it.

        Raises:
            AskError: the client declined, dismissed or refused it.
            AuthoringError: the key is malformed, was used before in this leg, or is not declared. A broken rule is
                final: the leg fails with it even if the tool catches it.
        """
        if self.outcome is not None:
            await self._stop_again()
        self._claim_question(key, question)
        value = self._value(key, question, _NO_ANSWER)
        if value is _NO_ANSWER:
            raise self._asking({key: question})
        return value

    async def ask(self, questions: Questions) -> dict[str, Any]:
        """Return each question's value, or end the leg to ask those that have none. Raise what `ask_one` raises."""
        if self.outcome is not None:
            await self._stop_again()
        for key, question in questions.items():
            self._claim_question(key, question)
        return self.answered(questions)

    def answered(self, questions: Mapping[str, Question], prefix: str = "") -> dict[str, Any]:
        """Return each question's value, or end the leg to ask those that have none, under the journal's `prefix`."""
        values: dict[str, Any] = {}
        missing: dict[str, Question] = {}
        for key, question in questions.items():
            value = values[key] = self._value(prefix + key, question, _NO_ANSWER)
            if value is _NO_ANSWER:
                missing[key] = question
        if missing:
            raise self._asking(missing, prefix)
        return values

    def _claim_question(self, key: Any, question: Question) -> None:
        try:
            self._claim(key)
            self._check_question(key, question)
        except AuthoringError as error:
            raise self.broken(error) from None

    def _value(self, key: str, question: Question, default: Any) -> Any:
        """Return the value of the recorded or fresh answer, else `default`."""
        digest = question.digest
        answer = self._answer(key, digest)
        if answer is not None:
            try:
                return question.read(answer)
            except InvalidAnswer as invalid:
                self.journal.forget(key, digest)
                self.journal.refused[key] = self.journal.refused.get(key, 0) + 1
                # Not the error itself: its traceback would keep the answer, which may be large, as long as the leg.
                self._misfits[key] = (str(invalid), invalid.unquoted)
        return default

    def _answer(self, key: str, digest: bytes) -> Answer | None:
        """Return the recorded answer, else the fresh answer to a question that was not asked before."""
        recorded = self.journal.answers.get(key)
        if recorded is not None and digest in recorded:
            return recorded[digest]
        answer = self._fresh.pop(key, None)
        if answer is not None:
            self.journal.record(key, digest, answer)
            self._progressed = True
        return answer

    def lacking(self, questions: Iterable[Question]) -> MissingCapability | None:
        """Return the error for a client that cannot be asked these questions, or None for one that can."""
        paths = [path for question in questions for path in question.capabilities if not self.supports(path)]
        return MissingCapability(*paths) if paths else None

    def _asking(self, missing: dict[str, Question], prefix: str = "") -> LegStopped:
        """Return the signal that ends the leg: it asks for input, or fails if it must not or cannot ask."""
        flow_id, step = STEP.get()
        if flow_id == self.journal.flow_id:
            return self._stopping(Failed(_asked_in_step(step, missing)))
        lacking = self.lacking(missing.values())
        if lacking is not None:
            return self._stopping(Failed(lacking))
        pending = self.journal.pending
        for key, question in missing.items():
            if len(self.journal.answers.get(prefix + key, {})) >= MAX_FORMS:  # all of them are answers to other forms
                return self._stopping(Failed(_never_same(key)))
            pending[prefix + key] = question.digest
        for recorded_as, (reason, unquoted) in self._misfits.items():
            key = recorded_as.removeprefix(prefix)
            if key in missing:
                if self.journal.refused[recorded_as] >= MAX_ASKED:
                    return self._stopping(Failed(_never_fit(key, unquoted)))
                missing[key] = explained(missing[key], reason)
        self.journal.input_rounds += 1
        return self._stopping(NeedsInput(missing))

    def answer(self, key: Any, question: Question, default: Any) -> Any:
        """Return the value of a question without asking it, or `default` if it has none.

        Raises:
            AskError: the client declined, dismissed or refused it.
        """
        self.check_running()
        check_key(key)
        if self._read is None:
            self._read = set()
        self._read.add(key)
        return self._value(key, question, default)

    def require(self, questions: Questions) -> NoReturn:
        """End the leg and ask those questions that have no answer yet (return style).

        Raises:
            AuthoringError: all of them have answers, so asking would never end; or a key is wrong.
        """
        self.check_running()
        missing: dict[str, Question] = {}
        for key, question in questions.items():
            self._check_question(key, question)
            if self.answer(key, question, _NO_ANSWER) is _NO_ANSWER:
                missing[key] = question
        if not missing:
            raise AuthoringError(f"the tool asks questions that already have answers: {', '.join(questions)}")
        raise self._asking(missing)

    def _check_question(self, key: Any, question: Question) -> None:
        if question.problem:
            raise AuthoringError(f"the question {key!r} {question.problem}")
        if self._declared is None:
            return
        if key not in self._declared:
            raise AuthoringError(f"the question {key!r} is not declared in the tool's `asks`")
        if self._declared[key] != question.digest:
            raise AuthoringError(f"the question {key!r} differs from its declaration in the tool's `asks`")


def _asked_in_step(step: str, keys: Iterable[str]) -> AuthoringError:
    return AuthoringError(
        f"step {step!r} asks {', '.join(map(repr, keys))}, so the step would run again with the answer; ask before the "
        f"step, and pass the answer to it: ctx.step({step!r}, function, answer)"
    )


def _never_fit(key: str, reason: str) -> CannotContinue:
    return CannotContinue(f"The client's answers to {key!r} do not match what was asked. {reason}".rstrip())


def _never_same(key: str) -> CannotContinue:
    return CannotContinue(f"The question {key!r} is a different one each time, so no answer belongs to it")
