"""Pure: the limits of a held call, the events that its requests get, and the actions that its holder takes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal, TypeAlias

import msgspec

HeldState: TypeAlias = Literal["working", "asked", "ended"]
"""The upstream works, or waits for its user, or the call has ended."""

StopReason: TypeAlias = Literal["abandoned", "asked_too_much", "cancelled", "expired", "timed_out"]
"""Why the holder ended a call. `expired`: the user was too slow. `timed_out`: the upstream was."""

RefuseReason: TypeAlias = Literal["forgotten", "missing_answers", "other_answers", "unknown_round"]
"""Why a request is refused. `other_answers`: its round has others. `unknown_round`: no event leads to it."""


class HeldLimits(msgspec.Struct, frozen=True):
    """How long a held call may take, and how much its upstream may ask. Times are in seconds.

    Attributes:
        timeout_seconds: how long the upstream may work, over all rounds.
        held_seconds: how long each round waits for the user.
        together_seconds: a question goes out after this time without another one, together with those before it.
        unattended_seconds: how long the upstream may work while no request waits.
        kept_seconds: how long the last event is kept.
    """

    timeout_seconds: float
    held_seconds: float
    together_seconds: float = 0.05
    unattended_seconds: float = 5.0
    kept_seconds: float = 120.0
    rounds: int = 20
    questions: int = 64


class NextRound(msgspec.Struct, frozen=True):
    """The upstream asks. The next request has this round, and an answer to each of the questions by its key."""

    round: int
    questions: dict[str, Any]


class Ended(msgspec.Struct, frozen=True):
    """The upstream ended the call. If it did so while it was asking, `asked_seconds` says how long it had waited."""

    outcome: Any
    asked_seconds: float = 0.0


class Stopped(msgspec.Struct, frozen=True):
    """The holder ended the call. `seconds` says how long it waited for its user; if it worked, how long in all."""

    reason: StopReason
    seconds: float


HeldEvent: TypeAlias = NextRound | Ended | Stopped


class Give(msgspec.Struct, frozen=True):
    """Answer a request with an event. It no longer waits."""

    waiter: int
    event: HeldEvent


class Refuse(msgspec.Struct, frozen=True):
    """Answer a request with an error. Nothing has changed."""

    waiter: int
    reason: RefuseReason


class Reply(msgspec.Struct, frozen=True):
    """Send an answer to the upstream."""

    question_id: Hashable
    answer: Any


class EndUpstream(msgspec.Struct, frozen=True):
    """Cancel the request to the upstream, and close what only this call uses."""

    reason: StopReason


class Withdrawn(msgspec.Struct, frozen=True):
    """Record that the upstream no longer waits for answers to these questions, which the user may have seen."""

    keys: tuple[str, ...]


class Forget(msgspec.Struct, frozen=True):
    """Drop the call. Nobody can get its outcome any more."""


HeldAction: TypeAlias = Give | Refuse | Reply | EndUpstream | Withdrawn | Forget
