"""The audit log: who called what, and whether it was let through or refused and why.

Lines have the form of the log (see `logs`): time, level, message, then the fields, always in the same order.
One line a leg, one a refusal, and one each time that a caller answers or cancels a task. The flow id
and the number of the leg join the legs of a call; those of a task name its id too. No line ever holds a token, a key,
an argument, an answer or a result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from gateway.errors import AuditLogDown, GatewayError, InsufficientScope, InvalidRequestState
from gateway.observability.logs import LEVEL_WIDTH
from gateway.observability.metrics import RefusalReason
from gateway.sealing.principal import Principal

Write = Callable[[bytes], Any]
Fields: TypeAlias = Mapping[str, Any]

MAX_TARGET_CHARS = 256
"""Methods, names and URIs come from the caller; longer ones are cut."""

LEVEL: Final = "info"
MESSAGES: Final = {"leg": "leg finished", "refused": "request refused", "task": "task changed"}
"""By the field `audit`, the message of a line."""

_LEVEL: Final = LEVEL.ljust(LEVEL_WIDTH)
_to_json: Final = json.JSONEncoder(separators=(",", ":")).encode
_THOUSANDTHS: Final = tuple([f".{number:03d}" for number in range(1000)])
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:/@-+~|")


class AuditLog:
    """Writes audit lines.

    Args:
        write: takes one whole line, its line break included.
        replica_id: told in every line.
        clock: seconds since the epoch.
        as_json: whether lines are JSON objects, for machines, or text for people.
        is_writable: reports whether lines are written now; None where calls run without a line too.
    """

    def __init__(
        self,
        write: Write,
        replica_id: str,
        clock: Callable[[], float],
        *,
        as_json: bool,
        is_writable: Callable[[], bool] | None = None,
    ) -> None:
        self._write = write
        self._is_writable = is_writable
        self._clock = clock
        self._format = Json(replica_id) if as_json else Text(replica_id)
        self._second = -1
        self._until_second = ""

    @property
    def may_run(self) -> bool:
        """Whether calls may run: where every line is required, only while lines are written."""
        return self._is_writable is None or self._is_writable()

    def require(self) -> None:
        """Refuse a call before it runs if its line could not be written.

        Raises:
            AuditLogDown: every line is required, and none can be written now.
        """
        if self._is_writable is not None and not self._is_writable():
            raise AuditLogDown

    def leg(
        self,
        principal: Principal | None,
        method: str,
        target: str,
        *,
        flow: str,
        leg: int,
        outcome: str,
        seconds: float,
        task: str = "",
    ) -> None:
        """Note a leg that ran: how it ended, and how long it took; of a task, its id too."""
        micros = max(0, int(seconds * 1_000_000 + 0.5))  # to write a float costs more than the rest of the line
        ran = AuditedLeg(
            method=method,
            target=target[:MAX_TARGET_CHARS],
            task=task,
            flow=flow,
            leg=leg,
            outcome=outcome,
            ms=str(micros // 1000) + _THOUSANDTHS[micros % 1000],
        )
        self._write(self._format.leg(self._timestamp(), ran, principal))

    def task(self, principal: Principal | None, method: str, tool: str, *, task: str, phase: str) -> None:
        """Note what a caller did with a task, and in which phase that left it."""
        self._note("task", principal, method=method, target=tool[:MAX_TARGET_CHARS], task=task, phase=phase)

    def refused(
        self,
        error: GatewayError,
        principal: Principal | None = None,
        *,
        method: str = "",
        target: str = "",
        client: str = "",
    ) -> None:
        """Note a request that was refused, for the reason that it is counted under.

        Args:
            error: what it was refused with.
            principal: the caller, as far as known.
            method: the JSON-RPC method, as far as known.
            target: the name or URI asked for, as far as known.
            client: the address the request came from, where the caller is not known.
        """
        reason = RefusalReason.of(error).value
        fields = {"method": method, "target": target, "reason": reason, "cause": cause_of(error), "client": client}
        self._note("refused", principal, **{name: value[:MAX_TARGET_CHARS] for name, value in fields.items() if value})

    def _note(self, event: str, principal: Principal | None, **fields: Any) -> None:
        self._write(self._format.line(self._timestamp(), event, fields, principal))

    def _timestamp(self) -> str:
        """Return the time in UTC, to the millisecond; all but the milliseconds is worked out once a second."""
        now = self._clock()
        second = int(now)
        if second != self._second:
            self._second = second
            self._until_second = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return self._until_second + _THOUSANDTHS[int((now - second) * 1000)] + "Z"


def cause_of(error: GatewayError) -> str:
    """Return what more there is to say of a refusal than its reason, which the client may not be told; else nothing."""
    if isinstance(error, InvalidRequestState):
        return error.reason.value
    return "scope" if isinstance(error, InsufficientScope) else ""


class AuditedLeg:
    """What is told of a leg.

    Args:
        method: as the client gave it.
        target: the name or URI asked for, cut.
        task: the id of the task, "" for none.
        flow: the id of the call, made by the gateway like all that follows.
        leg: its number in the call.
        outcome: how it ended.
        ms: how long it took, a decimal number.
    """

    __slots__ = ("flow", "leg", "method", "ms", "outcome", "target", "task")

    def __init__(self, *, method: str, target: str, task: str, flow: str, leg: int, outcome: str, ms: str) -> None:
        self.method: Final = method
        self.target: Final = target
        self.task: Final = task
        self.flow: Final = flow
        self.leg: Final = leg
        self.outcome: Final = outcome
        self.ms: Final = ms


class Format:
    """How lines are written.

    Args:
        replica_id: told in every line.
    """

    def __init__(self, replica_id: str) -> None:
        self._replica_id = replica_id

    def line(self, time: str, event: str, fields: Fields, principal: Principal | None) -> bytes:
        """Return the line for an event."""
        raise NotImplementedError

    def leg(self, time: str, ran: AuditedLeg, principal: Principal | None) -> bytes:
        """Return the line for a leg, of which there are more than of all other events: one format, nothing nested.

        What the gateway itself makes needs no quotes.
        """
        raise NotImplementedError


class Json(Format):
    """Lines of ASCII: some readers take U+0085 and U+2028 for line breaks too."""

    def __init__(self, replica_id: str) -> None:
        super().__init__(replica_id)
        self._leg = f'"level":"{LEVEL}","message":"{MESSAGES["leg"]}","replica":{_in_json(replica_id)},"audit":"leg"'

    def line(self, time: str, event: str, fields: Fields, principal: Principal | None) -> bytes:
        """See `Format.line`."""
        told = {
            "time": time,
            "level": LEVEL,
            "message": MESSAGES[event],
            "replica": self._replica_id,
            "audit": event,
            **fields,
            **_caller(principal),
        }
        return _to_json(told).encode() + b"\n"

    def leg(self, time: str, ran: AuditedLeg, principal: Principal | None) -> bytes:
        """See `Format.leg`."""
        named = f',"task":{_in_json(ran.task)}' if ran.task else ""
        told = (
            f'{{"time":"{time}",{self._leg},"method":{_in_json(ran.method)},'
            f'"target":{_in_json(ran.target)}{named},"flow":"{ran.flow}","leg":{ran.leg},"outcome":"{ran.outcome}",'
            f'"ms":{ran.ms}{_caller_json(principal)}}}\n'
        )
        return told.encode()


class Text(Format):
    """Lines for people: `time level message name=value …`."""

    def __init__(self, replica_id: str) -> None:
        super().__init__(replica_id)
        self._replica = _quoted(replica_id)
        self._leg = f"{_LEVEL} {MESSAGES['leg']} replica={self._replica} audit=leg"

    def line(self, time: str, event: str, fields: Fields, principal: Principal | None) -> bytes:
        """See `Format.line`."""
        begin = f"{time} {_LEVEL} {MESSAGES[event]} replica={self._replica} audit={event}"
        told = f"{begin}{_text(fields)}{_caller_text(principal)}\n"
        return told.encode("utf-8", "backslashreplace")

    def leg(self, time: str, ran: AuditedLeg, principal: Principal | None) -> bytes:
        """See `Format.leg`."""
        named = f" task={_quoted(ran.task)}" if ran.task else ""
        told = (
            f"{time} {self._leg} method={_quoted(ran.method)} target={_quoted(ran.target)}"
            f"{named} flow={ran.flow} leg={ran.leg} outcome={ran.outcome} ms={ran.ms}{_caller_text(principal)}\n"
        )
        return told.encode("utf-8", "backslashreplace")


def _text(fields: Fields) -> str:
    return "".join([f" {name}={_quoted(value) if isinstance(value, str) else value}" for name, value in fields.items()])


def _caller(principal: Principal | None) -> Fields:
    return {} if principal is None else msgspec.structs.asdict(principal)


@lru_cache(maxsize=1024)
def _caller_text(principal: Principal | None) -> str:
    return _text(_caller(principal))


@lru_cache(maxsize=1024)
def _caller_json(principal: Principal | None) -> str:
    return "".join([f',"{name}":{_to_json(value)}' for name, value in _caller(principal).items()])


@lru_cache(maxsize=1024)
def _in_json(text: str) -> str:
    return _to_json(text)


@lru_cache(maxsize=1024)
def _quoted(text: str) -> str:
    """Return a text that cannot be mistaken for another field or another line."""
    return text if text and _PLAIN.issuperset(text) else _to_json(text)
