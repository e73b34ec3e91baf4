"""A call that a test runs: its legs, and its journal between them, as a server would carry it."""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import inspect
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from typing_extensions import override

from gateway.authoring.asyncio_host import AsyncioHost
from gateway.authoring.lifespans import Lifespan, open_all
from gateway.authoring.resources import Resource
from gateway.authoring.served import Served
from gateway.authoring.token_exchange import exchange_of
from gateway.authoring.tools import Tool
from gateway.engine.asking import SAME_KEYS
from gateway.engine.driver import run_leg
from gateway.engine.host import Keeper
from gateway.engine.journal import Checkpoint, Journal
from gateway.engine.leg import Detaching, Leg
from gateway.engine.leg_policy import LegPolicy
from gateway.engine.outcomes import Completed, Detached, Failed, NeedsInput, NotKept, Outcome
from gateway.engine.questions import Answer, Question
from gateway.engine.values import copy_json
from gateway.ensured import ensured, ensured_type
from gateway.errors import AuthoringError, CannotContinue, GatewayError, JournalTooLarge
from gateway.protocol.caller import Exchange
from gateway.sealing.envelope import Sealer
from gateway.sealing.keyring import KeyRing, generate_entry
from gateway.sealing.packing import pack, unpack
from gateway.sealing.principal import Principal
from gateway.sealing.state import StateTooLarge, open_state, seal_state
from gateway.testing.answers import Answering
from gateway.testing.faults import Faults
from gateway.testing.results import Asked, Ended, LegRun, Run

__tracebackhide__ = True  # pytest shows the test and the author's code

MAX_LEGS: Final = 100
"""A tool that still asks questions after this many legs will not stop asking."""

STATE_MAX_BYTES: Final = 65536
"""The default of `GATEWAY_STATE_MAX_BYTES`. Importing the settings only for this would take too long."""

STATE_TTL_SECONDS: Final = 3600.0
FLOW_MAX_MS: Final = 24 * 3600 * 1000


def _hint(leg: Leg) -> str:
    """Return advice on answers that no question used, or ""."""
    unused = leg.unused()
    return f"; the answer to {unused[0]!r} was never used: {SAME_KEYS}" if unused else ""


class Crash(Exception):
    """The process died after a step had run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The circumstances of a call, see `gateway.testing.running.Options`."""

    principal: Principal | None = None
    tokens: Mapping[str, str] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    can: Callable[[str], bool] = lambda _capability: True
    limit_seconds: float | None = 60
    checkpoint: tuple[int, Any] | None = None
    as_task: bool | None = None
    now: datetime | None = None
    seed: int | str | None = None
    state_max_bytes: int = STATE_MAX_BYTES

    @property
    def exchange(self) -> Exchange | None:
        """The exchange that hands out `tokens`."""
        return None if self.tokens is None else exchange_of(self.tokens)


@dataclass(frozen=True, slots=True)
class Taken:
    """A leg that counted: what it started from, and how it ended.

    Attributes:
        before: the journal at rest at the start of the leg.
        fresh: the answers that came with the request.
        detaching: what `detach` did.
        lacking: the capabilities that the function asked for and the client does not have.
        raised: the keys of the steps that raised.
        leg: the leg after its end.
        outcome: how it ended.
    """

    before: dict[str, Any]
    fresh: dict[str, Answer]
    detaching: Detaching
    lacking: set[str]
    raised: set[str]
    leg: Leg
    outcome: Outcome


class CallRun:
    """A call of a test, which runs leg by leg.

    Args:
        served: the tool, prompt or resource.
        arguments: as a client would send them.
        answering: answers its questions.
        faults: happen to it.
        setting: the other options.
        taken: called with each leg that counted.

    Raises:
        AuthoringError: `as_task` contradicts the tool's `task`.
    """

    def __init__(
        self,
        served: Served,
        arguments: Mapping[str, Any],
        answering: Answering,
        faults: Faults,
        setting: Setting,
        *,
        taken: Callable[[Taken], None] = lambda _taken: None,
    ) -> None:
        self.run = Run[Any]()
        self._served = served
        self._arguments = arguments
        self._answering = answering
        self._faults = faults
        self._setting = setting
        self._taken = taken
        self._host = AsyncioHost(setting.limit_seconds, "test", on_change=self.run.changed.append)
        self._detaching = _detaching(served, setting.as_task)
        self._random_bytes = secrets.token_bytes if setting.seed is None else _bytes_from(setting.seed)
        self._rest: dict[str, Any] | None = None
        self._fresh: dict[str, Answer] = {}
        self._number = 0
        self._lost_workers = 0
        self._leg: Leg | None = None
        self._ran: list[str] = []
        self._raised: set[str] = set()
        starts_as_task = isinstance(served, Tool) and served.starts_as_task
        self.run.became_task = setting.as_task or (setting.as_task is None and starts_as_task)

    async def to_its_end(self) -> Run[Any]:
        """Run the legs until the function returns, or a question has no answer."""
        try:
            async with open_all(lifespans_of(self._served)):
                await self._run_legs()
        finally:
            self._host.close()
        self._answering.check_all_used()
        self._faults.check_all_happened(self.run.steps, self._number)
        return self.run

    async def _run_legs(self) -> None:
        for self._number in range(1, MAX_LEGS + 1):
            outcome, leg = await self._next_leg()
            self._rest = leg.journal.to_map()
            self.run.segments = leg.journal.segments
            if isinstance(outcome, Completed):
                self.run.value = outcome.value
                target = target_of(self._served, self._arguments)
                self.run.result = self._served.whole_result(outcome.value, target, leg.journal)
                return
            if isinstance(outcome, Failed):
                raise outcome.error
            if isinstance(outcome, Detached):
                self.run.became_task = True
                self._fresh = {}
                continue
            asked = ensured_type(outcome, NeedsInput)  # the keeper here neither fails nor ends a leg
            if self._answer(asked.questions):
                return
        raise GatewayError(
            f"{self._served} still asks questions after {MAX_LEGS} legs; the last ones: "
            f"{', '.join(self.run.asked[-3:])}{_hint(leg)}"
        )

    async def _next_leg(self) -> tuple[Outcome, Leg]:
        """Run the next leg, and again after each fault."""
        named = self._faults.lose_response(self._number)
        losing = named or self._faults.every_response
        while True:
            leg, taken = self._begin()
            self.run.legs += 1
            arguments = _copy_of(self._arguments)
            bound = self._served.bind(arguments, self._setting.principal, exchange=self._setting.exchange)
            outcome = self._carried(
                await run_leg(bound, leg, seconds=None if leg.in_task else self._served.leg_seconds), leg
            )
            if isinstance(outcome, NotKept):
                self._note("crashed", ())
                self._lose_process()
            elif losing and not self._is_spent and (named or not self._is_last_worker):
                self._note("lost", _keys_asked(outcome))
                self._lose_process()
            else:
                self._note(_ended(outcome), _keys_asked(outcome))
                self._taken(Taken(*taken, leg, outcome))
                return outcome, leg
            losing = losing and isinstance(outcome, NotKept)

    def _begin(self) -> tuple[Leg, tuple[dict[str, Any], dict[str, Answer], Detaching, set[str], set[str]]]:
        """Return the next leg, or the same one again, and what it starts from."""
        in_task = self.run.became_task
        if in_task and self._rest is None:
            self._rest = self._begun()
        before = unpack(pack(self._rest or self._begun()))
        detaching = Detaching.DONE if in_task else self._detaching
        lacking: set[str] = set()
        self._ran, self._raised = [], set()
        self._leg = Leg(
            Journal.from_map(unpack(pack(before))),
            self._fresh,
            self._host,
            LegPolicy.strict(),
            supports=functools.partial(self._supports, lacking),
            version=self._served.version,
            migrations=self._served.migrations,
            declared=self._served.asks,
            notices=_RecordedNotices(self.run),
            keeper=MemoryKeeper(self._rest or {}, self._host) if in_task else None,
            detaching=detaching,
            stepping=self._run_step,
        )
        return self._leg, (before, self._fresh, detaching, lacking, self._raised)

    def _begun(self) -> dict[str, Any]:
        """Return the journal of a new flow at rest."""
        now = self._setting.now
        now_ms = int((time.time() if now is None else now.timestamp()) * 1000)
        journal = Journal.begin(now_ms=now_ms, flow_max_ms=FLOW_MAX_MS, random_bytes=self._random_bytes)
        journal.headers = {name.lower(): value for name, value in self._setting.headers.items()}
        checkpoint = self._setting.checkpoint
        journal.checkpoint = None if checkpoint is None else Checkpoint(*checkpoint)
        return journal.to_map()

    def _supports(self, lacking: set[str], path: tuple[str, ...]) -> bool:
        capability = ".".join(path)
        if self._setting.can(capability):
            return True
        lacking.add(capability)
        return False

    async def _run_step(self, key: str, running: Awaitable[Any]) -> Any:
        self._ran.append(key)
        self.run.steps[key] = self.run.steps.get(key, 0) + 1
        try:
            value = await running
            if inspect.isawaitable(value):  # the leg would await it, after a crash had already happened
                value = await value
        except Exception:
            self._raised.add(key)
            raise
        if self._faults.crash_after(key):
            ensured(self._leg, "a step runs in a leg").stop(NotKept(Crash(key)))
        return value

    def _carried(self, outcome: Outcome, leg: Leg) -> Outcome:
        """Return the outcome after handing the journal to the client, as a server does between legs.

        Raises:
            JournalTooLarge: a server would refuse the state, and the call cannot become a task.
        """
        if not isinstance(outcome, NeedsInput) or self.run.became_task:
            return outcome
        try:
            leg.journal = Journal.from_map(_through_client(leg.journal, self._setting.state_max_bytes))
        except JournalTooLarge:
            if self._detaching is not Detaching.POSSIBLE:
                raise
            return Detached()
        return outcome

    @property
    def _is_spent(self) -> bool:
        """Whether the leg has used up a state that works once."""
        single_use = isinstance(self._served, Tool) and self._served.single_use
        return single_use and self._number > 1 and not self.run.became_task

    @property
    def _is_last_worker(self) -> bool:
        """Whether the task fails if it loses this worker too."""
        most = self._served.max_attempts if isinstance(self._served, Tool) else 1
        return self.run.became_task and self._lost_workers + 1 >= most

    def _lose_process(self) -> None:
        """Lose the process that ran the leg, before another runs it again.

        Raises:
            CannotContinue: none may, so the call is lost.
        """
        is_last = self._is_last_worker
        self._lost_workers += self.run.became_task
        if is_last:
            lost = f"{self._lost_workers} worker{'s' if self._lost_workers > 1 else ''}"
            raise CannotContinue(f"{self._served} lost {lost}, its max_attempts, so the task failed")
        if self._is_spent:
            raise CannotContinue(f"{self._served} has single_use=True, so the leg that crashed may not run again")

    def _note(self, ended: Ended, asked: tuple[str, ...]) -> None:
        self.run.history.append(LegRun(self._number, tuple(self._ran), asked, ended))

    def _answer(self, questions: Mapping[str, Question]) -> bool:
        """Answer the questions of a leg; return whether the call ends because one has no answer."""
        self.run.asked.extend(questions)
        self.run.questions.extend(Asked.of(key, question) for key, question in questions.items())
        answers = {key: self._answering.answer(key, question) for key, question in questions.items()}
        self._fresh = {key: answer for key, answer in answers.items() if answer is not None}
        self.run.unanswered = {key: questions[key] for key, answer in answers.items() if answer is None}
        return bool(self.run.unanswered)


class MemoryKeeper(Keeper):
    """Records what a task's leg learns immediately, in a journal at rest."""

    def __init__(self, rest: dict[str, Any], host: AsyncioHost) -> None:
        self._rest = rest
        self._host = host

    @override
    async def keep_step(self, key: str, value: Any) -> None:
        await self._host.yield_now()
        self._rest["steps"] = {**self._rest.get("steps", {}), key: copy_json(value)}

    @override
    async def keep_emit(self, number: int, block: dict[str, Any]) -> None:
        await self._host.yield_now()
        self._rest["segments"] = [*self._rest.get("segments", [])[: number - 1], block]

    @override
    async def keep_slot(self, slot: dict[str, Any]) -> None:
        self._rest["slot"] = slot

    @override
    async def keep_checkpoint(self, checkpoint: Checkpoint) -> bool:
        self._rest["checkpoint"] = checkpoint.to_map()
        return False


class _RecordedNotices:
    """Records the progress and log messages of a leg."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        self._run.progress.append((done, total, message))

    def log(self, level: str, data: Any, _logger: str | None) -> None:
        self._run.logs.append((level, data))


def _copy_of(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments as a server would parse them again for a leg."""
    with contextlib.suppress(Exception):  # copying may run any code; `bind` then explains what is not JSON
        return copy.deepcopy(arguments)
    return arguments


def lifespans_of(served: Served) -> list[Lifespan[Any]]:
    """Return the lifespans of the tool's module that the test has not opened itself."""
    names = getattr(sys.modules.get(served.__module__), "__dict__", {})
    return [value for value in names.values() if isinstance(value, Lifespan) and not value.is_open]


def target_of(served: Served, arguments: Mapping[str, Any]) -> str:
    """Return what a client requests: a name, or the URI of a resource with its variables filled in."""
    if not isinstance(served, Resource):
        return served.name
    return served.uri if served.template is None else served.template.expand(arguments)


def _detaching(served: Served, as_task: bool | None) -> Detaching:
    support = served.task if isinstance(served, Tool) else "forbidden"
    if as_task and support == "forbidden":
        raise AuthoringError(f"{served} never becomes a task; set task='optional', or run it with as_task=None")
    if as_task is False and support == "required":
        raise AuthoringError(f"{served} has task='required'; clients that do not support tasks cannot call it")
    if support == "forbidden":
        return Detaching.FORBIDDEN
    return Detaching.IMPOSSIBLE if as_task is False else Detaching.POSSIBLE


def _ended(outcome: Outcome) -> Ended:
    if isinstance(outcome, NeedsInput):
        return "asked"
    if isinstance(outcome, Detached):
        return "detached"
    return "returned" if isinstance(outcome, Completed) else "raised"


def _keys_asked(outcome: Outcome) -> tuple[str, ...]:
    return tuple(outcome.questions) if isinstance(outcome, NeedsInput) else ()


def _bytes_from(seed: int | str) -> Callable[[int], bytes]:
    """Return a source of bytes that depend on the seed alone. Each flow gets others, as on a server."""
    numbers: Iterator[int] = iter(range(sys.maxsize))

    def random_bytes(count: int) -> bytes:
        return hashlib.shake_256(f"{seed!r} {next(numbers)}".encode()).digest(count)

    return random_bytes


@functools.cache
def _sealer() -> Sealer:
    return Sealer(KeyRing.parse(generate_entry(secrets.token_bytes)), secrets.token_bytes)


def _through_client(journal: Journal, max_bytes: int) -> dict[str, Any]:
    """Return a journal at rest after a client has carried it.

    Raises:
        JournalTooLarge: it is over the size limit.
    """
    now = journal.started_ms / 1000
    expires_at = now + STATE_TTL_SECONDS
    try:
        token = seal_state(_sealer(), journal.to_map(), aad=b"", now=now, expires_at=expires_at, max_bytes=max_bytes)
    except StateTooLarge as error:
        raise JournalTooLarge(error.size, error.limit) from None
    return open_state(_sealer(), token, aad=b"", now=now, max_bytes=max_bytes).journal
