"""Decides whether a call becomes a task, and creates it. It also lets a call use a state at most once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from gateway.authoring.tools import Tool
from gateway.calls.task_leg import error_of
from gateway.engine.journal import Journal
from gateway.engine.keys import derived_id
from gateway.errors import (
    ArgumentsTooLarge,
    CannotContinue,
    InProgress,
    InvalidParams,
    NotNow,
    RpcError,
    TaskIdTaken,
    TaskStoreDown,
    TryAgain,
    ValueTooLarge,
)
from gateway.protocol.capabilities import flags_of, from_flags
from gateway.protocol.strict_json import encode
from gateway.runtime.sources import RandomBytes
from gateway.sealing import base64url
from gateway.sealing.digest import arguments_digest
from gateway.sealing.principal import Principal
from gateway.tasks.model import Retention, TaskView
from gateway.tasks.ports import LegUse, NewTask, Spending, UseEnd

if TYPE_CHECKING:  # a process without a task store never loads redis, which takes memory
    from gateway.storage import RedisTaskStore

log = logging.getLogger(__name__)

MAX_CAPABILITIES_BYTES: Final = 8192
"""How large the capabilities of a client may be, as JSON, that a task keeps as they are."""

TASK_ID_BYTES: Final = 32

REPEATED_MS: Final = 300_000
"""How long a repeated request with a name of its own is recognised."""

ENDED_MS: Final = 5_000
"""How much longer than its limit a leg is assumed to run: stopping it and storing its answer take time."""


class AlreadyUsed(Exception):
    """The leg was used before, by another request or by one without an answer."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """Identifies an order that is sent again.

    Attributes:
        same: everything that a repetition has in common with the first order.
        ms: how long a repetition is recognised.
        continues: whether the order continues a call. Then the task's id derives from the journal, so it is the same
            each time, on every replica.
    """

    same: Mapping[str, Any]
    ms: int = REPEATED_MS
    continues: bool = False


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """The task that a client asks for, as far as its wire lets it choose.

    Attributes:
        form: the wire format, such as `released`.
        counts_from: the start of its retention.
        retention_ms: how long it should be kept, None for the deployment's default.
        task_id: the client's own choice, or None for a generated id.
        request: lets the client cancel the task by its request, see `NewTask.request`.
        at_once: whether the task begins before the function runs, whatever its author prefers.
        otherwise: if not None, a leg that ends is also reported as a task, an ended one. If the store accepts no task,
            the result of the leg is the answer, with this as its `_meta`.
    """

    form: str
    counts_from: Literal["created", "ended"] = "created"
    retention_ms: int | None = None
    task_id: str | None = None
    request: str = ""
    at_once: bool = False
    otherwise: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """The limits a deployment sets on tasks.

    Attributes:
        ttl_ms: how long a task is kept from its creation, in milliseconds.
        max_argument_bytes: how large the arguments of a task may be, as JSON.
        leg_ms: how long one leg of an ephemeral call may run, in milliseconds.
    """

    ttl_ms: int
    per_principal: int
    bytes_per_principal: int
    max_argument_bytes: int
    leg_ms: int = 60_000


class TaskCalls:
    """Turns calls into tasks, and makes sure that a single-use leg runs once.

    `random_bytes` is a source of strong randomness.
    """

    def __init__(self, store: RedisTaskStore, limits: TaskLimits, random_bytes: RandomBytes) -> None:
        self._store = store
        self._limits = limits
        self._random_bytes = random_bytes

    async def create(
        self,
        tool: Tool,
        order: TaskOrder,
        journal: Journal,
        *,
        principal: Principal | None,
        arguments: Mapping[str, Any],
        capabilities: Mapping[str, Any],
        repetition: Repetition | None = None,
        result: Mapping[str, Any] | None = None,
    ) -> TaskView:
        """Create a task from a call; it is durable and queued when this returns.

        A repeated order creates no task; it returns the first one. `repetition` is None if repetitions are not
        recognised. `result` is that of a task that has already ended, None for a task to run.

        Raises:
            ArgumentsTooLarge: the arguments are too large for a task to run.
            CannotContinue: the call has learned more than a task can store.
            InvalidParams: the order is a repetition, and its task was deleted.
            TaskIdTaken: the caller has, or had, a task with the id that the client chose.
            TooManyTasks: the caller has as many tasks as allowed.
            TooManyTaskBytes: the caller's tasks use as many bytes as allowed.
            TaskStoreDown: the store does not answer.
        """
        if result is None:
            self._check_size(arguments)
        owner = await self._store.owner(principal)
        same = b"" if repetition is None else arguments_digest(repetition.same)
        new = NewTask(
            owner=owner,
            task_id=order.task_id or self._task_id(journal, owner.encode() + same, repetition),
            tool=tool.name,
            tool_version=tool.version,
            form=order.form,
            retention=Retention(order.counts_from, self._retention_ms(order)),
            capabilities=_brief(capabilities),
            arguments=arguments,
            principal=principal,
            journal=journal.to_map(),
            max_attempts=tool.max_attempts,
            request=order.request,
            order=same.hex(),
            order_ms=0 if repetition is None else repetition.ms,
            scopes=tool.scopes,
            result=result,
        )
        try:
            return await self._store.create(new, self._limits.per_principal, self._limits.bytes_per_principal)
        except ValueTooLarge as error:
            raise CannotContinue(f"This call cannot continue as a task. {error}.") from None
        except TaskIdTaken:
            if order.task_id is not None:
                raise
            raise InvalidParams("This request became a task that was deleted. Call again to start over") from None

    def _task_id(self, journal: Journal, order: bytes, repetition: Repetition | None) -> str:
        """Return a new id, which is the same for a repeated order that continues a call."""
        continues = repetition is not None and repetition.continues
        entropy = derived_id(journal.seed, order) if continues else self._random_bytes(TASK_ID_BYTES)
        return "t_" + base64url.encode(entropy)

    def _check_size(self, arguments: Mapping[str, Any]) -> None:
        size, limit = len(encode(arguments)), self._limits.max_argument_bytes
        if size > limit:
            raise ArgumentsTooLarge(size, limit)

    def _retention_ms(self, order: TaskOrder) -> int:
        wanted = self._limits.ttl_ms if order.retention_ms is None else order.retention_ms
        return max(1, min(wanted, self._limits.ttl_ms))

    async def once(
        self,
        journal: Journal,
        principal: Principal | None,
        digest: bytes,
        ttl_ms: int,
        leg: Callable[[], Awaitable[tuple[msgspec.Raw, str]]],
    ) -> tuple[msgspec.Raw, str]:
        """Run the leg after `journal` unless it ran before; return its result.

        The result is stored for a short time, for a client that asks again because it never got the answer. `digest`
        covers everything that must be equal in a repetition of the request. The state of the journal may be presented
        for `ttl_ms`. `leg` returns the result as JSON and the name of the outcome.

        Raises:
            AlreadyUsed: it ran, or is running, for another request, or its answer is gone.
            InProgress: it is running for the same request.
            TaskStoreAway: the store does not answer; the leg did not run, and its state can still be used.
            RpcError: the leg ended with an error. After a `NotNow`, the same request can be sent again.
        """
        place = (await self._store.owner(principal), journal.flow_id, journal.legs, digest)
        spent = await self._store.spend(*place, ttl_ms, leg_ms=self._limits.leg_ms + ENDED_MS)
        if spent.outcome is Spending.ANSWERED and spent.body is not None:
            return _replayed(spent.body)
        if spent.outcome is Spending.RUNNING:
            raise InProgress
        if spent.use is None:
            raise AlreadyUsed
        return await self._kept(place, spent.use, leg)

    async def _kept(
        self,
        place: tuple[str, str, int, bytes],
        use: LegUse,
        leg: Callable[[], Awaitable[tuple[msgspec.Raw, str]]],
    ) -> tuple[msgspec.Raw, str]:
        """Run a leg that uses its state, and store how it ends."""
        try:
            result, outcome = await leg()
        except NotNow as error:
            # If the call may have become a task, only the same request may be repeated: it finds that task.
            self._store.end_use(use, UseEnd.NEVER if isinstance(error, TryAgain) else UseEnd.REPEATABLE)
            raise
        except asyncio.CancelledError:
            self._store.end_use(use, UseEnd.USED)
            raise
        except RpcError as error:
            await self._keep(place, {"error": error_of(error)})
            raise
        await self._keep(place, {"result": result, "outcome": outcome})
        return result, outcome

    async def _keep(self, place: tuple[str, str, int, bytes], answer: Mapping[str, Any]) -> None:
        try:
            await self._store.store_answer(*place, encode(answer))
        except (TaskStoreDown, ValueTooLarge):
            # The leg ran, and the client is about to get the answer. Only a client that misses it needs the stored one.
            log.warning("the answer of a single-use leg was not stored", extra={"leg": place[2]})


def _brief(capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return capabilities as a task keeps them: those that a session keeps, if they are large.

    They are read with every look at the task. Only a client that wants to do harm declares so many.
    """
    if len(encode(capabilities)) <= MAX_CAPABILITIES_BYTES:
        return capabilities
    return from_flags(flags_of(capabilities))


class _Answer(msgspec.Struct, omit_defaults=True):
    """The stored answer of a leg: a result and the name of its outcome, or an error."""

    result: msgspec.Raw = msgspec.Raw()
    outcome: str = ""
    error: dict[str, Any] | None = None


def _replayed(body: bytes) -> tuple[msgspec.Raw, str]:
    answer = msgspec.json.decode(body, type=_Answer)
    if answer.error is not None:
        raise RpcError(answer.error["code"], answer.error["message"], answer.error.get("data"))
    return answer.result, answer.outcome
