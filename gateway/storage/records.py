"""How the fields of a task's record are sealed, opened and written. `gateway.storage.record_reader` reads records."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.errors import RejectReason, ValueTooLarge
from gateway.observability.process_metrics import ProcessTelemetry
from gateway.sealing.binding import field_binding
from gateway.sealing.envelope import Rejected, token_chars
from gateway.sealing.formats import STORED_VALUE, TASK_RECORD, split_number
from gateway.sealing.packing import pack, unpack
from gateway.settings.model import MAX_STORED_BYTES
from gateway.storage.plain_fields import About, encode_about, encode_progress
from gateway.storage.scripts import Changes, Value
from gateway.storage.unreadable import Unreadable
from gateway.tasks import stored_journal as rest
from gateway.tasks.model import texts_of
from gateway.tasks.ports import Claim, Kept, NewTask, TaskQuestion
from gateway.tasks.question_keys import wire_keys
from gateway.tokens.key_holder import KeyHolder

SEGMENT_BYTES = 128
"""As how many bytes a segment counts besides its block: a task may have some 30,000 empty ones, not millions."""

MAX_FIELD_CHARS = token_chars(MAX_STORED_BYTES)
"""The longest sealed value that is opened, and so the longest that is written."""

_FROM_REQUEST = frozenset({"call", "capabilities"})
"""Fields whose size the limits on requests already bound."""

_WORDS = {
    "result": "The result",
    "error": "The error",
    "message": "The progress message",
    "questions": "The list of the task's questions",
    rest.CHECKPOINT: "The checkpoint",
    rest.SLOT: "What the relay keeps between two legs",
}

_MAX_WHY_CHARS = 301
"""How much of a failure's message is stored for lists: one character more than a list shows, so it is visibly cut."""

PASSED_ON = "~forwarded"
"""Names, beside the stored questions, those that are forwarded. No question has this name."""

_json = msgspec.json


class Records:
    """Seals and opens the fields of records.

    Nothing larger than `max_value_bytes` is written. Larger stored values, up to `MAX_STORED_BYTES`, are still read.
    """

    def __init__(self, holder: KeyHolder, telemetry: ProcessTelemetry, max_value_bytes: int = MAX_STORED_BYTES) -> None:
        self._holder = holder
        self._telemetry = telemetry
        self._max_value_bytes = max_value_bytes

    def seal(self, owner: str, task_id: str, field: str, value: Any, about: bytes = b"") -> str:
        """Seal a value for one field of one task, or raise `ValueTooLarge`. It is bound to the clear text `about`."""
        return self.seal_packed(owner, task_id, field, pack(value), about)

    def seal_packed(self, owner: str, task_id: str, field: str, packed: bytes, about: bytes = b"") -> str:
        """Seal bytes for one field of one task; see `seal`."""
        limit = MAX_STORED_BYTES if field in _FROM_REQUEST else self._max_value_bytes
        if len(packed) > limit:
            raise ValueTooLarge(_in_words(field), len(packed), limit)
        sealer = self._holder.current
        self._telemetry.field_sealed(sealer.key_id)
        return sealer.seal(packed, self._binding(owner, task_id, field, about))

    def seal_segment(self, claim: Claim, seq: int, block: Mapping[str, Any]) -> tuple[str, int]:
        """Seal the next segment of a task; return it and the total size of the segments including it.

        If they are larger than the result that they belong to may be, this raises `ValueTooLarge`.
        """
        packed = pack(dict(block))
        emitted = claim.emitted + SEGMENT_BYTES + len(packed)
        if emitted > self._max_value_bytes:
            raise ValueTooLarge("The output of the task", emitted, self._max_value_bytes)
        return self.seal_packed(claim.owner, claim.task_id, segment_field(seq), packed), emitted

    def open_packed(self, owner: str, task_id: str, field: str, sealed: bytes, about: bytes = b"") -> bytes:
        """Open a value sealed by `seal_packed`, or raise `Unreadable`."""
        number, token = split_number(sealed)
        if number > STORED_VALUE.reads:
            raise self.unreadable(Unreadable(RejectReason.NEWER_SCHEMA, field))
        binding = self._binding(owner, task_id, field, about)
        try:
            opened = self._holder.current.open(token.decode("ascii"), binding, max_chars=MAX_FIELD_CHARS)
        except (Rejected, UnicodeDecodeError) as error:
            reason = error.reason if isinstance(error, Rejected) else RejectReason.MALFORMED
            raise self.unreadable(Unreadable(reason, field)) from None
        self._telemetry.field_opened(opened.key_id)
        return opened.plaintext

    def open(self, owner: str, task_id: str, field: str, sealed: bytes, about: bytes = b"") -> Any:
        """Open a value sealed by `seal`, or raise `Unreadable`."""
        return self.unpack(field, self.open_packed(owner, task_id, field, sealed, about))

    def unpack(self, field: str, packed: bytes) -> Any:
        """Return the value in an opened field, or raise `Unreadable`."""
        try:
            return unpack(packed)
        except ValueError:
            raise self.unreadable(Unreadable(RejectReason.MALFORMED, field)) from None

    def unreadable(self, problem: Unreadable) -> Unreadable:
        """Count a field that cannot be read, and return the problem to raise it."""
        self._telemetry.field_rejected(problem.reason)
        return problem

    def _binding(self, owner: str, task_id: str, field: str, about: bytes) -> bytes:
        return field_binding(self._holder.audience, owner, task_id, f"{field} {about.decode()}" if about else field)

    def created(self, new: NewTask) -> tuple[bytes, dict[str, Value]]:
        """Return the unsealed facts about a new task, and the fields of its record.

        The unsealed facts, such as the tool's name, are bound to the values sealed with them. If someone changes one,
        the other no longer opens. They include a random part that distinguishes this creation from any other. A part of
        the task that is over the limit, or its whole journal, raises `ValueTooLarge`.
        """
        who = new.principal
        call: dict[str, Any] = {
            "arguments": dict(new.arguments),
            "principal": None if who is None else [who.issuer, who.subject, who.client_id],
            "context": dict(new.context),
        }
        if who is not None and (who.scopes or who.claims):
            # Not part of the member above: workers of other releases expect three names there.
            call["token"] = [sorted(who.scopes), who.claims.text]
        client = [dict(new.capabilities), sorted(new.scopes)]
        about = encode_about(
            About(
                v=TASK_RECORD.writes,
                tool=new.tool,
                version=new.tool_version,
                form=new.form,
                attempts=new.max_attempts,
                creation=secrets.token_hex(8),
            )
        )
        fields: dict[str, Value] = {"capabilities": self.seal(new.owner, new.task_id, "capabilities", client, about)}
        told = rest.progress(new.journal)
        if told is not None:
            fields["progress"] = encode_progress(told)
        if new.result is not None:
            return about, fields | self.ended(new.owner, new.task_id, "result", new.result)
        fields["call"] = self.seal(new.owner, new.task_id, "call", call, about)
        journal = {name: pack(value) for name, value in rest.split(new.journal).items()}
        _check_total(journal)
        for name, packed in journal.items():
            fields[name] = self.seal_packed(new.owner, new.task_id, name, packed)
        return about, fields

    def ended(self, owner: str, task_id: str, name: str, value: Mapping[str, Any]) -> dict[str, Value]:
        """Return the fields with a task's outcome; the first one is the outcome itself.

        `name` is `result` or `error`. A value over the limit raises `ValueTooLarge`.
        """
        fields: dict[str, Value] = {name: self.seal(owner, task_id, name, dict(value))}
        if name == "result" and value.get("isError") is True:
            texts = texts_of(value)
            fields["failed"] = 1
            if texts:
                fields["why"] = self.seal(owner, task_id, "why", texts[-1][:_MAX_WHY_CHARS])
        return fields

    def changes(self, claim: Claim, kept: Kept) -> tuple[Changes, dict[str, bytes | None]]:
        """Return the changes that turn the stored journal into the current one, and what to pass to `learn` then.

        If a part of the journal, or all of it, is over the limit, this raises `ValueTooLarge`.
        """
        values: dict[str, Any] = {}
        dropped: set[str] = set()
        if kept.journal is not None:
            values = rest.split(kept.journal)
            dropped = claim.written.keys() - values.keys()
        values.update((rest.STEP + key, value) for key, value in kept.steps.items())
        if kept.checkpoint is not None:
            values[rest.CHECKPOINT] = kept.checkpoint
        if kept.slot is not None:
            values[rest.SLOT] = kept.slot
        dropped -= values.keys()
        learned: dict[str, bytes | None] = dict.fromkeys(dropped)
        written: dict[str, Value] = {}
        for name, value in values.items():
            packed = pack(value)
            if claim.written.get(name) != packed:
                written[name] = self.seal_packed(claim.owner, claim.task_id, name, packed)
                learned[name] = packed
        _check_total({**claim.written, **learned})
        return Changes(frozenset(dropped), written), learned

    def asked(self, claim: Claim, questions: Mapping[str, TaskQuestion]) -> tuple[bytes, bytes, str]:
        """Return the open wire keys, the updated number of times each key was asked, and the sealed questions."""
        names = wire_keys(questions, claim.asked)
        rows: dict[str, Any] = {
            names[key]: [question.recorded_as or key, question.digest, question.method, dict(question.params)]
            for key, question in questions.items()
        }
        open_keys = _json.encode(list(rows))
        passed_on = [names[key] for key, question in questions.items() if question.recorded_as]
        if passed_on:
            rows[PASSED_ON] = passed_on  # not in the rows: older releases expect four values there
        counts = {**claim.asked, **{key: claim.asked.get(key, 0) + 1 for key in questions}}
        return (
            open_keys,
            _json.encode(counts),
            self.seal(claim.owner, claim.task_id, "questions", rows),
        )


def learn(claim: Claim, learned: Mapping[str, bytes | None]) -> None:
    """Note what the store now holds of the journal; None for what it dropped."""
    for name, packed in learned.items():
        if packed is None:
            del claim.written[name]
        else:
            claim.written[name] = packed


def segment_field(seq: int) -> str:
    """Name a segment for its seal."""
    return f"segment:{seq}"


def _check_total(journal: Mapping[str, bytes | None]) -> None:
    """Raise `ValueTooLarge` unless a journal is small enough for a worker, which reads it in one piece."""
    total = sum(len(packed) for packed in journal.values() if packed is not None)
    if total > MAX_STORED_BYTES:
        raise ValueTooLarge("The stored state of the task", total, MAX_STORED_BYTES)


def _in_words(field: str) -> str:
    """Name a field for people, as the start of a sentence."""
    kind, colon, key = field.partition(":")
    if kind + colon == rest.STEP:
        return f"The result of step {key!r}"
    if kind + colon in (rest.ANSWER, rest.NEW_ANSWER):
        return f"The answer to {key!r}"
    return _WORDS.get(field, "The stored state of the call")
