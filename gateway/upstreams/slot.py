"""The slot of a relay: where a call to an upstream stands between two legs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.protocol.upstream.asking import AskedQuestion, AskedRound

ERA: Final = "stateless"
HELD_ERA: Final = "session"
"""The call is kept in the upstream's state, or by a process that holds it. Another era belongs to another release."""

VISITING: Final = "visiting"
"""The era of a slot whose answers are not sent upstream. Releases that do not know this would send them."""


class MalformedSlot(ValueError):
    """The journal has a slot that this release cannot read."""


class Slot(msgspec.Struct, frozen=True):
    """Where a call stands. It contains nothing of earlier rounds.

    Attributes:
        identity: see `Definition.identity`; the call can only continue there.
        round: how often the upstream has asked for something, its bare states included.
        state: its newest `requestState`, to the byte; None if it sent none. If the call `is_held`, where.
        questions: what it asked last, so that an answer that is missing or does not fit can be asked for again.
        spent_ms: how long the upstream has worked so far, in milliseconds.
        sent: whether a request was about to be sent, and no outcome is recorded. Only in tasks.
        place: where the call begins that was about to be sent, if its request can be sent again; else None.
        own: the upstream's name of a tool, if a worker may be unable to find it out; else None.
        param_headers: the names of its `Mcp-Param-*` headers, each followed by the path of the argument.
        visits: how often the upstream has refused the first request until the user visits URLs, which are the questions
            then; 0 once it has asked anything else.
    """

    identity: bytes
    round: int = 0
    state: str | None = None
    questions: tuple[AskedQuestion, ...] = ()
    spent_ms: int = 0
    sent: bool = False
    token: str | None = None
    own: str | None = None
    param_headers: tuple[tuple[str, ...], ...] = ()
    is_held: bool = False
    visits: int = 0
    place: str | None = None

    @property
    def can_resend(self) -> bool:
        """Whether the request that was about to be sent can be sent again: it joins the first one."""
        return self.is_held or self.place is not None

    def __repr__(self) -> str:
        """Return a text without the token, the state and the questions."""
        return f"Slot(round={self.round}, spent_ms={self.spent_ms}, sent={self.sent})"

    def asked(self, asked: AskedRound, *, visits: int = 0, is_held: bool = False) -> Slot:
        """Return the slot after the upstream has asked for something."""
        return msgspec.structs.replace(
            self,
            round=self.round + 1,
            state=asked.state,
            questions=asked.questions,
            sent=False,
            visits=visits,
            is_held=is_held,
            place=None,
        )

    @property
    def is_first_request(self) -> bool:
        """Whether the next request is the first one of the call, or repeats it: the upstream has not acted so far."""
        return self.round == self.visits

    def to_map(self) -> dict[str, Any]:
        """Return the form for the journal. Members with their default are left out, except for the round."""
        era = HELD_ERA if self.is_held else VISITING if self.visits else ERA
        slot: dict[str, Any] = {"round": self.round, "era": era, "upstream": self.identity}
        if self.state is not None:
            slot["state"] = self.state
        if self.questions:
            slot["asked"] = [[asked.key, asked.wire_key, asked.method, asked.params] for asked in self.questions]
        if self.spent_ms:
            slot["spent"] = self.spent_ms
        if self.sent:
            slot["sent"] = True
        if self.place is not None:
            slot["place"] = self.place
        if self.token is not None:
            slot["token"] = self.token
        if self.own is not None:
            slot["own"] = self.own
        if self.param_headers:
            slot["headers"] = [list(header) for header in self.param_headers]
        if self.visits:
            slot["visits"] = self.visits
        return slot

    @classmethod
    def from_map(cls, slot: Mapping[str, Any]) -> Slot:
        """Read the form of the journal.

        A missing member, one of another type, or a slot of another era raises `MalformedSlot`.
        """
        try:
            if slot["era"] not in ((VISITING,) if "visits" in slot else (ERA, HELD_ERA)):
                raise MalformedSlot("the slot is of another era")
            return cls(
                identity=_typed(slot["upstream"], bytes),
                round=_typed(slot["round"], int),
                state=_typed(slot["state"], str) if "state" in slot else None,
                questions=tuple(_question(*asked) for asked in slot.get("asked", ())),
                spent_ms=_typed(slot.get("spent", 0), int),
                sent=_typed(slot.get("sent", False), bool),
                token=_typed(slot["token"], str) if "token" in slot else None,
                own=_typed(slot["own"], str) if "own" in slot else None,
                param_headers=tuple(tuple(_typed(part, str) for part in header) for header in slot.get("headers", ())),
                is_held=slot["era"] == HELD_ERA,
                visits=_typed(slot.get("visits", 0), int),
                place=_typed(slot["place"], str) if "place" in slot else None,
            )
        except (KeyError, TypeError) as error:
            raise MalformedSlot(str(error)) from None


def _question(key: Any, wire_key: Any, method: Any, params: Any) -> AskedQuestion:
    return AskedQuestion(_typed(key, str), _typed(wire_key, str), _typed(method, str), _typed(params, dict))


def _typed(value: Any, kind: type[Any]) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{type(value).__name__} is not {kind.__name__}")
    return value
