"""The audit log: who called what, and whether the call ran or was refused, and why.

Lines have the form of the log (see `logs`): time, level, message, then the fields, always in the same order. There is
one line for each leg, each refusal, and each time that a caller answers or cancels a task. The flow id and the number
of the leg connect the legs of a call; lines about a task have its id too. A line never contains a token, a key, an
argument, an answer or a result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, TypeAlias, final

from gateway.errors import AuditLogDown, GatewayError, InsufficientScope, InvalidRequestState
from gateway.observability.logs import LEVEL_WIDTH
from gateway.observability.metrics import RefusalReason
from gateway.sealing.principal import Principal

Write = Callable[[bytes], Any]
Fields: TypeAlias = Mapping[str, Any]

MAX_TARGET_CHARS = 256
"""Methods, names and URIs come from the caller, so longer ones are cut."""

LEVEL: Final = "info"
MESSAGES: Final = {
    "leg": "leg finished",
    "refused": "request refused",
    "task": "task changed",
    "operator": "operator changes a task",
}
"""The message of a line, by the value of its field `audit`."""

_LEVEL: Final = LEVEL.ljust(LEVEL_WIDTH)
_to_json: Final = json.JSONEncoder(separators=(",", ":")).encode
_THOUSANDTHS: Final = tuple([f".{number:03d}" for number in range(1000)])
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:/@-+~|")


class AuditLog:
    """Writes audit lines.

    `write` gets one whole line, including its line break. `clock` returns seconds since the epoch. `is_writable`
    returns whether lines are written now; None if calls may run without an audit line. `write_refused` gets the lines
    of refused requests, which may be lost while others still are not; by default it is `write`.
    """

    def __init__(
        self,
        write: Write,
        replica_id: str,
        clock: Callable[[], float],
        *,
        as_json: bool,
        is_writable: Callable[[], bool] | None = None,
        write_refused: Write | None = None,
    ) -> None:
        self._write = write
        self._write_refused = write_refused or write
        self._is_writable = is_writable
        self._clock = clock
        self._format = Json(replica_id) if as_json else Text(replica_id)
        self._second = -1
        self._until_second = ""

    @property
    def may_run(self) -> bool:
        """Whether calls may run. If every line is required, they may only while lines can be written."""
        return self._is_writable is None or self._is_writable()

    def require(self) -> None:
        """Refuse a call before it runs if its line could not be written.

        Raises:
            AuditLogDown: every line is required, but lines cannot be written now.
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
        upstream: str = "",
        away_seconds: float = 0.0,
        late_answer: bool = False,
    ) -> None:
        """Record a leg: how it ended and how long it took, its task if it has one.

        Of a relay, also the name of the upstream, how much of that time the upstream took, and whether it had withdrawn
        the question to which an answer came.
        """
        ran = AuditedLeg(
            method=method,
            target=target[:MAX_TARGET_CHARS],
            task=task,
            upstream=upstream,
            upstream_ms=_milliseconds(away_seconds) if upstream else "",
            late_answer=late_answer,
            flow=flow,
            leg=leg,
            outcome=outcome,
            ms=_milliseconds(seconds),
        )
        self._write(self._format.leg(self._timestamp(), ran, principal))

    def task(self, principal: Principal | None, method: str, tool: str, *, task: str, phase: str) -> None:
        """Record what a caller did with a task, and the phase of the task after that."""
        fields = {"method": method, "target": tool[:MAX_TARGET_CHARS], "task": task, "phase": phase}
        self._write(self._format.line(self._timestamp(), "task", fields, principal))

    def operator(self, user: str, method: str, tool: str, *, task: str, owner: str, phase: str) -> None:
        """Record what a user of this machine is about to do with a task, in the phase that it has.

        `owner` is its owner as the store names it.
        """
        fields = {"method": method, "target": tool[:MAX_TARGET_CHARS], "task": task, "phase": phase}
        fields |= {"operator": user, "owner": owner}
        self._write(self._format.line(self._timestamp(), "operator", fields, None))

    def refused(
        self,
        error: GatewayError,
        principal: Principal | None = None,
        *,
        method: str = "",
        target: str = "",
        client: str = "",
    ) -> None:
        """Record a refused request, with the reason that it is counted under.

        `client` is the address that the request came from, if the caller is unknown.
        """
        reason = RefusalReason.of(error).value
        fields = {"method": method, "target": target, "reason": reason, "cause": cause_of(error), "client": client}
        fields = {name: value[:MAX_TARGET_CHARS] for name, value in fields.items() if value}
        self._write_refused(self._format.line(self._timestamp(), "refused", fields, principal))

    def _timestamp(self) -> str:
        """Return the time in UTC, to the millisecond. Everything but the milliseconds is formatted once a second."""
        now = self._clock()
        second = int(now)
        if second != self._second:
            self._second = second
            self._until_second = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return self._until_second + _THOUSANDTHS[int((now - second) * 1000)] + "Z"


def cause_of(error: GatewayError) -> str:
    """Return the exact cause of a refusal, which clients may not learn; "" if the reason says it all."""
    if isinstance(error, InvalidRequestState):
        return error.reason.value
    return "scope" if isinstance(error, InsufficientScope) else ""


@final
class AuditedLeg:
    """The fields of a leg's line.

    Attributes:
        target: the requested name or URI, cut to `MAX_TARGET_CHARS`.
        task: the id of the task; "" if there is none.
        upstream: the name of the other server that a relay called; "" for everything of our own.
        upstream_ms: how many of the milliseconds that server took; "" for everything of our own.
        late_answer: whether that server had withdrawn a question whose answer came with the leg.
        flow: the id of the call. The gateway makes this value and all that follow.
        ms: how many milliseconds it took, as a decimal number.
    """

    def __init__(
        self,
        *,
        method: str,
        target: str,
        task: str,
        upstream: str,
        upstream_ms: str,
        late_answer: bool,
        flow: str,
        leg: int,
        outcome: str,
        ms: str,
    ) -> None:
        self.method: Final = method
        self.target: Final = target
        self.task: Final = task
        self.upstream: Final = upstream
        self.upstream_ms: Final = upstream_ms
        self.late_answer: Final = late_answer
        self.flow: Final = flow
        self.leg: Final = leg
        self.outcome: Final = outcome
        self.ms: Final = ms


class LineFormat:
    """The form in which lines are written."""

    def line(self, time: str, event: str, fields: Fields, principal: Principal | None) -> bytes:
        """Return the line for an event."""
        raise NotImplementedError

    def leg(self, time: str, ran: AuditedLeg, principal: Principal | None) -> bytes:
        """Return the line for a leg. Legs outnumber all other events, so one f-string formats the whole line.

        Values that the gateway itself makes need no quotes.
        """
        raise NotImplementedError


class Json(LineFormat):
    """JSON lines in ASCII, because some readers also take U+0085 and U+2028 for line breaks.

    Args:
        replica_id: the id that every line contains.
    """

    def __init__(self, replica_id: str) -> None:
        self._replica_id = replica_id
        self._leg = f'"level":"{LEVEL}","message":"{MESSAGES["leg"]}","replica":{_in_json(replica_id)},"audit":"leg"'

    def line(self, time: str, event: str, fields: Fields, principal: Principal | None) -> bytes:
        """See `LineFormat.line`."""
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
        """See `LineFormat.leg`."""
        named = f',"task":{_in_json(ran.task)}' if ran.task else ""
        if ran.upstream:
            named += f',"upstream":{_in_json(ran.upstream)},"upstream_ms":{ran.upstream_ms}'
            if ran.late_answer:
                named += ',"late_answer":true'
        told = (
            f'{{"time":"{time}",{self._leg},"method":{_in_json(ran.method)},'
            f'"target":{_in_json(ran.target)}{named},"flow":"{ran.flow}","leg":{ran.leg},"outcome":"{ran.outcome}",'
            f'"ms":{ran.ms}{_caller_json(principal)}}}\n'
        )
        return told.encode()


class Text(LineFormat):
    """Lines for people: `time level message name=value …`.

    Args:
        replica_id: the id that every line contains.
    """

    def __init__(self, replica_id: str) -> None:
        self._replica = _quoted(replica_id)
        self._leg = f"{_LEVEL} {MESSAGES['leg']} replica={self._replica} audit=leg"

    def line(self, time: str, event: str, fields: Fields, principal: Principal | None) -> bytes:
        """See `LineFormat.line`."""
        begin = f"{time} {_LEVEL} {MESSAGES[event]} replica={self._replica} audit={event}"
        told = f"{begin}{_text(fields)}{_caller_text(principal)}\n"
        return told.encode("utf-8", "backslashreplace")

    def leg(self, time: str, ran: AuditedLeg, principal: Principal | None) -> bytes:
        """See `LineFormat.leg`."""
        named = f" task={_quoted(ran.task)}" if ran.task else ""
        if ran.upstream:
            named += f" upstream={_quoted(ran.upstream)} upstream_ms={ran.upstream_ms}"
            if ran.late_answer:
                named += " late_answer=true"
        told = (
            f"{time} {self._leg} method={_quoted(ran.method)} target={_quoted(ran.target)}"
            f"{named} flow={ran.flow} leg={ran.leg} outcome={ran.outcome} ms={ran.ms}{_caller_text(principal)}\n"
        )
        return told.encode("utf-8", "backslashreplace")


def _text(fields: Fields) -> str:
    return "".join([f" {name}={_quoted(value) if isinstance(value, str) else value}" for name, value in fields.items()])


def _milliseconds(seconds: float) -> str:
    """Return a time as a decimal number. Formatting a float costs more than the rest of the line."""
    micros = max(0, int(seconds * 1_000_000 + 0.5))
    return str(micros // 1000) + _THOUSANDTHS[micros % 1000]


def _caller(principal: Principal | None) -> Fields:
    if principal is None:
        return {}
    return {"issuer": principal.issuer, "subject": principal.subject, "client_id": principal.client_id}


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
    """Return a text that cannot be mistaken for another field or line."""
    return text if text and _PLAIN.issuperset(text) else _to_json(text)
