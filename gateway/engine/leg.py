"""Pure: one leg of a call, replayed from its journal.

A leg runs the author's function from the top. The journal answers at once whatever it knows; the first thing it does
not know ends the leg. All rules of replay are enforced here, whatever carries the journal.
"""

from __future__ import annotations

import inspect
import math
import uuid
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from contextvars import ContextVar
from enum import Enum
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

import msgspec

from gateway.engine.host import Host, Keeper, Notices
from gateway.engine.journal import Checkpoint, Journal, journal_key
from gateway.engine.keys import check_key, derived_random, derived_uuid
from gateway.engine.outcomes import Detached, Failed, NeedsInput, NotKept, Outcome, Shed
from gateway.engine.policy import LegPolicy
from gateway.engine.questions import Answer, InvalidAnswer, Question, explained
from gateway.engine.values import (
    MAX_VALUE_BYTES,
    Json,
    Recorder,
    copy_json,
    json_value,
    kind_of,
    refuse_coroutine,
    refuse_large,
)
from gateway.errors import AuthoringError, CannotContinue, MissingCapability

MAX_IGNORED_STOPS = 1000
"""How often a function may continue after its leg has ended before the leg abandons it."""

MAX_ASKED: Final = 3
"""How often one question is asked if no answer fits it."""

MAX_FORMS: Final = 5
"""How often one question is asked if its form is another one in each leg, so no answer belongs to it."""

MAX_SHEDS = 2
"""How often one call is shed. Clients abandon a call after about ten rounds, and some allow few rounds without a
question."""

MAX_ROUNDS_BEFORE_SHED = 6
"""A call that has asked more often than this is not shed: its questions need the rounds that are left."""

T = TypeVar("T")

Migration: TypeAlias = Callable[[Json], Any]
"""Converts a checkpoint from one version to another. The result should be JSON, but the author may be wrong."""

Questions: TypeAlias = Mapping[Any, Question]
"""Questions by the author's key, which may be any object until `check_key` has checked it."""

Stepping: TypeAlias = Callable[[str, Awaitable[Any]], Awaitable[Any]]
"""Awaits what a step with that key runs, and returns its result."""

_NO_ANSWER: Final = object()

_ANNOTATE: Final = "annotate the function's return type, or return JSON"
_NAME_TYPE: Final = "pass its type too, as in `checkpoint(value, list[Model])`"
_NEW_KEY: Final = "let its type accept the old form too, or give the step a new key"
_MIGRATE: Final = "let its type accept the old form too, or increase the tool's `version` and add a migration"
_STEP_ADVICE: Final = "pass the function and its arguments to the step, or "

_STEP: Final[ContextVar[tuple[str, str]]] = ContextVar("step", default=("", ""))
"""The flow id and the key of the step that runs this code."""


class Detaching(Enum):
    """The effect of `detach` in a leg."""

    DONE = "done"
    """The call is a task already."""
    POSSIBLE = "possible"
    """The call becomes a task."""
    IMPOSSIBLE = "impossible"
    """The call continues as it is: its client does not support tasks, or there is no store."""
    FORBIDDEN = "forbidden"
    """The function was not written to become a task."""


class LegStopped(BaseException):
    """Ends the author's function early. Derives from `BaseException`, so `except Exception` does not catch it.

    The leg also remembers its outcome, so a function that swallows even this cannot continue. Questions, steps and
    checkpoints raise it again, and the return value is ignored. A function that keeps trying is abandoned.
    """


class Away(msgspec.Struct):
    """The part of a leg in which another server worked.

    Attributes:
        seconds: how long it worked.
        restore_arguments: set once the relay has emptied the arguments, because it needs them only as JSON; fills them
            again.
        aside_bytes: how large their JSON is.
    """

    seconds: float = 0.0
    restore_arguments: Callable[[], None] | None = None
    aside_bytes: int = 0


class Leg:
    """The knowledge of one run of the author's function.

    Values from authors are typed `Any`: nothing has checked them against their type hints.

    Args:
        journal: what the call has learned so far; this leg adds to it in place.
        fresh: the answers that came with this leg's request, by wire key.
        policy: what the operator decides. Every leg keeps to it, wherever it runs.
        supports: returns whether the client declared a capability path, e.g. `("elicitation", "form")`.
        migrations: version → (next version, function) for checkpoints of older versions.
        declared: key → digest of the questions that the author declares; None if none are declared.
        notices: receives progress and log messages, None if the client did not ask for any.
        keeper: stores what is learned while the leg runs, in a task; None if only the journal carries it.
        sheds: returns at a checkpoint whether another process should continue the call; None if none could.

    Attributes:
        caller: whose call it is, set by the code that runs the function: callers share the pool of threads.
        reached: the keys of the questions and steps that the function has come to, in order.
        away: set once a relay runs the leg.
        forgotten: the first call of the context that the function never awaited, for people, or None.
    """

    outcome: Outcome | None = None
    given_up: bool = False
    caller: Hashable = None
    away: Away | None = None
    forgotten: str | None = None

    def __init__(
        self,
        journal: Journal,
        fresh: Mapping[str, Answer],
        host: Host,
        policy: LegPolicy,
        *,
        supports: Callable[[tuple[str, ...]], bool],
        version: int = 1,
        migrations: Mapping[int, tuple[int, Migration]] | None = None,
        declared: Mapping[str, bytes] | None = None,
        notices: Notices | None = None,
        keeper: Keeper | None = None,
        detaching: Detaching = Detaching.FORBIDDEN,
        sheds: Callable[[], bool] | None = None,
        stepping: Stepping | None = None,
    ) -> None:
        self.journal = journal
        self.host = host
        self.policy = policy
        self.supports = supports
        self.reached: dict[str, None] = {}
        self._ignored_stops = 0
        self._version = version
        self._migrations = migrations or {}
        self._declared = declared if policy.strict_asks else None
        self.notices = notices
        self.keeper = keeper
        self._detaching = detaching
        self.sheds = sheds
        self._stepping = stepping
        self._found = journal.checkpoint
        self._progressed = False
        self._logs = 0
        self._emits = 0
        self._emitting = False
        self._misfits: dict[str, InvalidAnswer] = {}
        # Now and not when the function runs: a task may run it, with the journal alone.
        self._fresh = self._record_expected(fresh, "" if journal.slot is None else journal_key(journal, ""))
        journal.legs += 1

    def unexpected(self) -> Mapping[str, Answer]:
        """Return the answers to questions that were not asked. This leg then has none any more."""
        fresh, self._fresh = self._fresh, {}
        return fresh

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
                self._misfits[key] = invalid
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
        flow_id, step = _STEP.get()
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
        for recorded_as, misfit in self._misfits.items():
            key = recorded_as.removeprefix(prefix)
            if key in missing:
                if self.journal.refused[recorded_as] >= MAX_ASKED:
                    return self._stopping(Failed(_never_fit(key, misfit.unquoted)))
                missing[key] = explained(missing[key], str(misfit))
        self.journal.input_rounds += 1
        return self._stopping(NeedsInput(missing))

    def answer(self, key: Any, question: Question, default: Any) -> Any:
        """Return the value of a question without asking it, or `default` if it has none.

        Raises:
            AskError: the client declined, dismissed or refused it.
        """
        self.check_running()
        check_key(key)
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

    async def step(
        self, key: Any, function: Callable[..., Any], args: tuple[Any, ...], recorder: Recorder | None = None
    ) -> Any:
        """Return the recorded result of a step, or run it once and record the result.

        Coroutine functions are awaited; others run in the host's pool of threads. An exception is not recorded: the
        step runs again when the tool reaches it again. The returned value belongs to the tool; changing it does not
        change the journal. The leg that runs the step reads its result from the JSON too, so every leg gets the same.
        `recorder` is for results that are not JSON.

        Raises:
            AuthoringError: the key is malformed or used before, an argument is a coroutine, or the result
                cannot be recorded or restored. A broken rule is final, see `ask_one`.
        """
        if self.outcome is not None:
            await self._stop_again()
        try:
            self._claim(key)
        except AuthoringError as error:
            raise self.broken(error) from None
        if key in self.journal.steps:
            recorded = self.journal.steps[key]
            if recorder is None:
                return copy_json(recorded)
            return self._restored(recorder, recorded, f"step {key!r}", _NEW_KEY)
        try:
            for given in args:
                refuse_coroutine(given, f"an argument of step {key!r}", _STEP_ADVICE)
        except AuthoringError as error:
            raise self.broken(error) from None
        value = await self._run_step(key, function, args)
        recorded, restored = self._record(value, f"the result of step {key!r}", recorder)
        # The result is recorded even if another part of the function has ended the leg by now.
        self.journal.steps[key] = recorded
        self._progressed = True
        if self.keeper is not None:
            await self.kept(self.keeper.keep_step(key, recorded))
        self.check_running()
        return copy_json(recorded) if recorder is None else restored

    def _record(self, value: Any, where: str, recorder: Recorder | None) -> tuple[Json, Any]:
        """Return the JSON of a value, and what a recorder restores from it."""
        try:
            return (json_value(value, where, _ANNOTATE), None) if recorder is None else recorder.record(value, where)
        except AuthoringError as error:
            raise self.broken(error) from None

    def _restored(self, recorder: Recorder, recorded: Json, what: str, fix: str) -> Any:
        """Return a recorded value, which an earlier release of the tool may have recorded."""
        recorded_as = f"was recorded earlier in this call, or by an earlier release, as {kind_of(recorded)}"
        try:
            return recorder.restore(recorded, f"{what} {recorded_as}; it")
        except AuthoringError as error:
            raise self.broken(AuthoringError(f"{error}; {fix}")) from None

    async def _run_step(self, key: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        outer = _STEP.get()
        _STEP.set((self.journal.flow_id, key))
        try:
            if inspect.iscoroutinefunction(function):
                result = function(*args)
            else:
                result = self.host.run_sync(function, *args, caller=self.caller)
            value = await (result if self._stepping is None else self._stepping(key, result))
            return await value if inspect.isawaitable(value) else value
        finally:
            _STEP.set(outer)  # not `reset`, which fails where the garbage collector closes the coroutine

    def step_id(self, key: Any) -> str:
        """Return the stable id of a step: the flow id and the key. Use it as an idempotency key."""
        check_key(key)
        return f"{self.journal.flow_id}:{key}"

    async def checkpoint(self, value: object, recorder: Recorder | None = None) -> None:
        """Store a value from which this computation can resume; the last one wins. Always yields once.

        `recorder` is for a value that is not JSON.

        Raises:
            AuthoringError: the value cannot be recorded. A broken rule is final, see `ask_one`.
        """
        if self.outcome is not None:
            await self._stop_again()
        try:
            if recorder is None:
                kept = json_value(value, "the checkpoint", _NAME_TYPE)
            else:
                kept, _restored = recorder.record(value, "the checkpoint")
        except AuthoringError as error:
            raise self.broken(error) from None
        self.journal.checkpoint = Checkpoint(self._version, kept, self._logs, self._emits)
        if self.keeper is not None and await self.kept(self.keeper.keep_checkpoint(self.journal.checkpoint)):
            self.stop(Shed())
        if self.sheds is not None:
            self._shed(self.sheds, kept)
        await self.host.yield_now()

    def _shed(self, wanted: Callable[[], bool], kept: Json) -> None:
        """End the leg if the process wants to shed it: another one continues, or the call becomes a task.

        Only after progress, so each leg brings the call closer to its end, and only a few times per call.
        """
        if not self._progressed and self._found is not None and self._found.value == kept:
            return
        may_shed = self.journal.sheds < MAX_SHEDS and self.journal.input_rounds <= MAX_ROUNDS_BEFORE_SHED
        if not (may_shed or self._detaching is Detaching.POSSIBLE) or not wanted():
            return
        if not may_shed:
            self.stop(Detached())
        self.journal.sheds += 1
        self.stop(Shed())

    def refuse_large(self, value: object, what: str) -> None:
        """Raise `ResultTooLarge`, before converting a value, if it has more JSON than the leg may send at a time."""
        refuse_large(value, what, MAX_VALUE_BYTES if self.in_task else self.policy.max_result_bytes)

    async def emit(self, block: dict[str, Any]) -> None:
        """Add a content block to the result now; the n-th block of a call is emitted once (replay rule 6).

        Raises:
            AuthoringError: another block is being emitted. Blocks have an order only if they are emitted one at a time.
                A broken rule is final, see `ask_one`.
        """
        if self.outcome is not None:
            await self._stop_again()
        if self._emitting:
            raise self.broken(AuthoringError("two blocks are emitted at once; await one before you emit the next"))
        self._emits += 1
        if self._emits <= len(self.journal.segments):
            return
        self.journal.segments.append(block)
        if self.keeper is None:
            return
        self._emitting = True
        try:
            await self.kept(self.keeper.keep_emit(self._emits, block))
        finally:
            self._emitting = False

    @property
    def in_task(self) -> bool:
        """Whether this is a leg of a task."""
        return self._detaching is Detaching.DONE

    async def detach(self) -> bool:
        """Make the call a task, which ends this leg. Return True in a task, False if the call cannot become one.

        Raises:
            AuthoringError: the tool was not written to become a task. A broken rule is final, see `ask_one`.
        """
        if self.outcome is not None:
            await self._stop_again()
        if self._detaching is Detaching.FORBIDDEN:
            raise self.broken(AuthoringError("only a tool with task='optional' or task='required' can detach"))
        if self._detaching is Detaching.POSSIBLE:
            self.stop(Detached())
        return self.in_task

    async def kept(self, keeping: Awaitable[T]) -> T:
        """Await the keeper; if it fails, end the leg in a way that the function cannot swallow."""
        try:
            return await keeping
        except Exception as error:  # noqa: BLE001 - after any failure, the leg must not continue
            self.stop(NotKept(error))

    def resumed(self, default: Any, recorder: Recorder | None = None) -> Any:
        """Return the checkpoint of an earlier leg, migrated to this version, or `default`.

        The checkpoint is dropped if its version is newer, or older with no chain of migrations to this one. The
        computation then starts again, with its answers and steps kept. `recorder` is for a checkpoint that is not JSON.

        Raises:
            AuthoringError: the checkpoint cannot be restored, or a migration returns a value that is not JSON.
        """
        self.check_running()
        checkpoint = self.journal.checkpoint
        if checkpoint is None:
            return default
        version, value = checkpoint.version, copy_json(checkpoint.value)
        while version < self._version and version in self._migrations:
            following, migrate = self._migrations[version]
            value = json_value(migrate(value), f"the checkpoint migrated from version {version} to {following}")
            version = following
        if version != self._version:
            return default
        self._logs = checkpoint.logs
        self._emits = checkpoint.emits
        return value if recorder is None else self._restored(recorder, value, "the checkpoint", _MIGRATE)

    def progress(self, done: Any, total: Any, message: Any) -> None:
        """Report how far the call has got. Values that an earlier leg reported, or lower ones, are not sent again.

        The total never falls either: new work may turn up, but none disappears.

        Raises:
            AuthoringError: `done` or `total` is not a finite number.
            ResultTooLarge: the message is too large to be sent.
        """
        self.check_running()
        if message is not None:
            self.refuse_large(message, "The progress message")
        for number in (done, total):
            if number is not None and not _is_finite(number):
                raise AuthoringError(f"progress takes finite numbers, not {number!r}")
        if self.journal.progress is not None and done <= self.journal.progress:
            return
        self.journal.progress = done = +done  # a plain number, whatever the author counts with
        if total is not None:
            self.journal.total = total = max(total, total if self.journal.total is None else self.journal.total)
        if self.notices is not None:
            self.notices.progress(done, total, message)

    def log(self, level: Any, data: object, logger: Any) -> None:
        """Send a log message, unless an earlier leg sent it: the n-th message of a call is sent once.

        Raises:
            AuthoringError: the data is not JSON.
            ResultTooLarge: the data, or the name of the logger, is too large to be sent.
        """
        self.check_running()
        self.refuse_large(data, "The log message")
        if logger is not None:
            self.refuse_large(logger, "The name of the logger")
        message = json_value(data, "the log message")
        self._logs += 1
        if self._logs <= self.journal.logs:
            return
        self.journal.logs = self._logs
        if self.notices is not None:
            self.notices.log(level, message, logger)

    def uuid(self, key: Any) -> uuid.UUID:
        """Return a version 4 UUID that is the same in every leg of this call."""
        return derived_uuid(self.journal.seed, key)

    def random(self, key: Any) -> float:
        """Return a number from [0, 1) that is the same in every leg of this call."""
        return derived_random(self.journal.seed, key)

    def check_running(self) -> None:
        """Raise the stop signal again if this leg has already ended (replay rule 3)."""
        if self.outcome is not None:
            raise LegStopped

    async def _stop_again(self) -> NoReturn:
        """Raise the stop signal again, or suspend for good a function that keeps ignoring it.

        Callers check `outcome` first, so a leg that continues does not pay for a coroutine.
        """
        self._ignored_stops += 1
        if self._ignored_stops > MAX_IGNORED_STOPS:
            self.given_up = True
            await self.host.park()
        raise LegStopped

    def broken(self, error: AuthoringError) -> AuthoringError:
        """Record a broken rule as the outcome: otherwise a loop around `except Exception` would run forever."""
        self._stopping(Failed(error))
        return error

    def stop(self, outcome: Outcome) -> NoReturn:
        """End the leg; the first outcome is the one that counts."""
        raise self._stopping(outcome)

    def _stopping(self, outcome: Outcome) -> LegStopped:
        """Record how the leg ends, and return the signal for the caller to raise: each frame it passes costs time."""
        if self.outcome is None:
            self.outcome = outcome
        return LegStopped()

    def _claim(self, key: Any) -> None:
        check_key(key)
        if key in self.reached:
            raise AuthoringError(
                f"the key {key!r} is used twice in one call; give each question and each step its own key"
            )
        self.reached[key] = None

    def _check_question(self, key: Any, question: Question) -> None:
        if question.problem:
            raise AuthoringError(f"the question {key!r} {question.problem}")
        if self._declared is None:
            return
        if key not in self._declared:
            raise AuthoringError(f"the question {key!r} is not declared in the tool's `asks`")
        if self._declared[key] != question.digest:
            raise AuthoringError(f"the question {key!r} differs from its declaration in the tool's `asks`")


def _is_finite(number: object) -> bool:
    return isinstance(number, (int, float)) and not isinstance(number, bool) and -math.inf < number < math.inf


def _asked_in_step(step: str, keys: Iterable[str]) -> AuthoringError:
    return AuthoringError(
        f"step {step!r} asks {', '.join(map(repr, keys))}, so the step would run again with the answer; ask before the "
        "step, and pass the answer to it"
    )


def _never_fit(key: str, reason: str) -> CannotContinue:
    return CannotContinue(f"The client's answers to {key!r} do not match what was asked. {reason}".rstrip())


def _never_same(key: str) -> CannotContinue:
    return CannotContinue(f"The question {key!r} is a different one each time, so no answer belongs to it")
