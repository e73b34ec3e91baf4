"""The fields of a task's record that are not sealed. Any of them may be damaged, or written by a newer release."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from gateway.errors import RejectReason
from gateway.sealing.formats import FIRST, TASK_RECORD
from gateway.storage.unreadable import Unreadable
from gateway.tasks.model import Phase, Progress

MAX_DIGITS: Final = 15
"""The most digits of a number in a record. The end of the year 9999 in milliseconds has as many."""

_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999: later times have no date."""

_T = TypeVar("_T")


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The unsealed facts about a task. They are bound to the values sealed with them.

    `v` is the format of the record, `attempts` how many workers may be lost over the task. `creation` is random text
    that distinguishes this creation from any other.
    """

    v: int = FIRST
    tool: str
    version: int
    form: str
    attempts: int
    creation: str = ""


class PlainFields(msgspec.Struct, frozen=True, kw_only=True):
    """The plain fields of a record. A harmless value stands for a field that cannot be read.

    Attributes:
        about: facts about the task; its tool and form are "" if they cannot be read.
        phase: running if it cannot be read: such a task has not ended, and asks nothing.
        created_ms, updated_ms, ended_ms, expires_ms: times on the store's clock. Without the first one, the epoch; in
            place of the others, the first.
        kept_ms: how long it is kept after its end, if its retention counts from there.
        segments, emitted: how many segments are stored, and their size in bytes.
        asked: author's key → how often it was asked.
    """

    about: About
    phase: Phase
    created_ms: int
    updated_ms: int
    ended_ms: int | None
    expires_ms: int
    kept_ms: int | None
    generation: int
    progress: Progress | None
    lost: int
    segments: int
    emitted: int
    asked: dict[str, int]
    open_keys: list[str]
    problem: Unreadable | None


_NO_FACTS: Final = About(tool="", version=0, form="", attempts=0)
_ENTRY: Final = re.compile(rb"[0-9]{1,20}-[0-9]{1,20}")
_json = msgspec.json
_about = msgspec.json.Decoder(About)
_counts = msgspec.json.Decoder(dict[str, int])
_keys = msgspec.json.Decoder(list[str])
_report = msgspec.json.Decoder(tuple[float | int, float | int | None])


def read_plain(fields: Mapping[str, bytes | None]) -> PlainFields:
    """Read the plain fields of a record: name → value, None for a field that does not exist."""
    reader = _FieldReader(fields)
    phase = reader.phase()
    if phase in (Phase.QUEUED, Phase.RUNNING):
        reader.entry()
    created_ms = reader.moment("created", 0)
    return PlainFields(
        about=reader.about(),
        phase=phase,
        created_ms=created_ms,
        updated_ms=reader.moment("updated", created_ms),
        ended_ms=reader.optional("ended", _LAST_MS),
        expires_ms=reader.moment("expires", created_ms, created_ms),
        kept_ms=reader.optional("kept"),
        generation=reader.required(reader.optional("generation"), "generation", 0),
        progress=reader.progress(),
        lost=reader.optional("lost") or 0,
        segments=reader.optional("segments") or 0,
        emitted=reader.optional("emitted") or 0,
        asked=reader.json("asked", _counts, {}) if fields.get("asked") is not None else {},
        open_keys=reader.json("open", _keys, []) if phase is Phase.WAITING else [],
        problem=reader.problem,
    )


class _FieldReader:
    """Reads fields one by one, and remembers the first one that cannot be read."""

    def __init__(self, fields: Mapping[str, bytes | None]) -> None:
        self._fields = fields
        self.problem: Unreadable | None = None

    def phase(self) -> Phase:
        try:
            return Phase((self._fields.get("phase") or b"").decode())
        except ValueError:
            self._fail("phase")
            return Phase.RUNNING

    def about(self) -> About:
        """Read the facts about the task. Those in a newer format may still name the tool."""
        stored = self._fields.get("about") or b""
        try:
            about = _about.decode(stored)
        except (msgspec.DecodeError, ValueError):
            self._fail("about", _reason_of(stored))
            return _NO_FACTS
        if about.v > TASK_RECORD.reads:
            self._fail("about", RejectReason.NEWER_SCHEMA)
        return about

    def entry(self) -> None:
        """Check the id of the task's entry in the queue."""
        if not _ENTRY.fullmatch(self._fields.get("entry") or b""):
            self._fail("entry")

    def optional(self, name: str, most: int = 10**MAX_DIGITS - 1) -> int | None:
        """Read a number that a record may lack."""
        stored = self._fields.get(name)
        if stored is None:
            return None
        if stored.isdigit() and len(stored) <= MAX_DIGITS and int(stored) <= most:
            return int(stored)
        self._fail(name)
        return None

    def moment(self, name: str, otherwise: int, earliest: int = 0) -> int:
        """Read a time in milliseconds since the epoch that each record has; return another one if it cannot be read."""
        value = self.optional(name, _LAST_MS)
        return self.required(None if value is None or value < earliest else value, name, otherwise)

    def required(self, value: _T | None, name: str, otherwise: _T) -> _T:
        """Return the value of a field that each record has; another one if it could not be read."""
        if value is not None:
            return value
        self._fail(name)
        return otherwise

    def progress(self) -> Progress | None:
        if self._fields.get("progress") is None:
            return None
        numbers: Any = self.json("progress", _report, None)
        return None if numbers is None else Progress(*numbers)

    def json(self, name: str, decoder: msgspec.json.Decoder[_T], otherwise: Any) -> Any:
        try:
            return decoder.decode(self._fields.get(name) or b"")
        except (msgspec.DecodeError, ValueError):
            self._fail(name)
            return otherwise

    def _fail(self, field: str, reason: RejectReason = RejectReason.MALFORMED) -> None:
        # Facts with a newer number explain every other field that this release cannot read.
        if self.problem is None or reason is RejectReason.NEWER_SCHEMA:
            self.problem = Unreadable(reason, field)


def encode_about(about: About) -> bytes:
    """Return the facts about a task as they are stored."""
    return _json.encode(about)


def encode_progress(progress: Progress) -> bytes:
    """Return the numbers of a progress report as they are stored."""
    return _json.encode([progress.done, progress.total])


def _reason_of(about: bytes) -> RejectReason:
    """Return why facts cannot be read: those of a newer release need not have our members, but they have a number."""
    try:
        facts = _json.decode(about)
    except (msgspec.DecodeError, ValueError):
        return RejectReason.MALFORMED
    number = facts.get("v") if type(facts) is dict else None
    newer = type(number) is int and number > TASK_RECORD.reads
    return RejectReason.NEWER_SCHEMA if newer else RejectReason.MALFORMED
