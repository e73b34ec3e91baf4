"""Pure: one leg of a call, replayed from its journal.

A leg runs the author's function from the top. The journal answers at once whatever it knows; the first thing it does
not know ends the leg. All rules of replay are enforced here, whatever carries the journal.
"""

from __future__ import annotations

import inspect
import math
import uuid
from collections.abc import Awaitable, Callable, Hashable, Mapping
from enum import Enum
from typing import Any, Final, TypeAlias, TypeVar, final

from gateway.engine.asking import STEP, AskingLeg
from gateway.engine.host import Host, Keeper, Notices
from gateway.engine.journal import Checkpoint, Journal
from gateway.engine.keys import check_key, derived_random, derived_uuid
from gateway.engine.leg_policy import LegPolicy
from gateway.engine.outcomes import Detached, NotKept, Shed
from gateway.engine.questions import Answer
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
from gateway.errors import AuthoringError

MAX_SHEDS = 2
"""How often one call is shed. Clients abandon a call after about ten rounds, and some allow few rounds without a
question."""

MAX_ROUNDS_BEFORE_SHED = 6
"""A call that has asked more often than this is not shed: its questions need the rounds that are left."""

EMITS_AT_ONCE = 256
"""How many blocks a leg emits again before others have a turn: a task may have emitted thousands."""

T = TypeVar("T")

Migration: TypeAlias = Callable[[Json], Any]
"""Converts a checkpoint from one version to another. The result should be JSON, but the author may be wrong."""

Stepping: TypeAlias = Callable[[str, Awaitable[Any]], Awaitable[Any]]
"""Awaits what a step with that key runs, and returns its result."""

_ANNOTATE: Final = (
    "return JSON (a dict, a list, text, a number), or a model or dataclass that the function's return type names"
)
_CANNOT_DETACH: Final = (
    "only a tool that may be a task can detach: write `@tool(task='optional')`, or 'required' to refuse clients "
    "without tasks"
)
_NAME_TYPE: Final = "pass its type too, as in `checkpoint(value, list[Model])`"
_NEW_KEY: Final = "let its type accept the old form too, or give the step a new key"
_MIGRATE: Final = "let its type accept the old form too, or increase the tool's `version` and add a migration"
_STEP_ADVICE: Final = "pass the function and its arguments to the step, or "


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


@final
class Away:
    """The part of a leg in which another server worked.

    Attributes:
        seconds: how long it worked.
        late_answer: whether it had withdrawn a question whose answer came with this leg.
        restore_arguments: set once the relay has emptied the arguments, because it needs them only as JSON; fills them
            again.
        aside_bytes: how large their JSON is.
        release_result: set once a large result counts; called once the result is not used any more.
    """

    seconds = 0.0
    late_answer = False
    restore_arguments: Callable[[], None] | None = None
    aside_bytes = 0
    release_result: Callable[[], None] | None = None

    def keep_result(self, release: Callable[[], None]) -> None:
        """Let a large result count until it is not used any more."""
        self.release_result = release

    def drop_result(self) -> None:
        """Let the result count no more."""
        if self.release_result is not None:
            self.release_result()
            self.release_result = None


class Leg(AskingLeg):
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
        away: set once a relay runs the leg.
        forgotten: the first call of the context that the function never awaited, for people, or None.
    """

    caller: Hashable = None
    away: Away | None = None
    forgotten: str | None = None
    _logs = 0
    _emits = 0
    _emitting = False

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
        super().__init__(journal, fresh, host, policy, supports=supports, declared=declared)
        self._version = version
        self._migrations = migrations or {}
        self.notices = notices
        self.keeper = keeper
        self._detaching = detaching
        self.sheds = sheds
        self._stepping = stepping
        self._found = journal.checkpoint
        journal.legs += 1

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
        outer = STEP.get()
        STEP.set((self.journal.flow_id, key))
        try:
            if inspect.iscoroutinefunction(function):
                result = function(*args)
            else:
                result = self.host.run_sync(function, *args, caller=self.caller)
            value = await (result if self._stepping is None else self._stepping(key, result))
            return await value if inspect.isawaitable(value) else value
        finally:
            STEP.set(outer)  # not `reset`, which fails where the garbage collector closes the coroutine

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
            if self._emits % EMITS_AT_ONCE == 0:
                await self.host.yield_now()
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
            raise self.broken(AuthoringError(_CANNOT_DETACH))
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


def _is_finite(number: object) -> bool:
    return isinstance(number, (int, float)) and not isinstance(number, bool) and -math.inf < number < math.inf
