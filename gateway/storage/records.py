"""How the fields of a task's record are sealed, written and read."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from gateway.errors import RejectReason, ValueTooLarge
from gateway.observability.process_metrics import ProcessTelemetry
from gateway.sealing.binding import field_binding
from gateway.sealing.envelope import Rejected, token_chars
from gateway.sealing.packing import pack, unpack
from gateway.sealing.principal import Claims, Principal
from gateway.settings.model import MAX_STORED_BYTES
from gateway.storage.redis_keys import TaskPlace
from gateway.storage.scripts import Changes, Value
from gateway.storage.shared_scripts import BRIEF_FIELDS
from gateway.storage.task_scripts import VIEW_FIELDS
from gateway.tasks import stored_journal as rest
from gateway.tasks.model import Phase, Progress, TaskView, WireQuestion, texts_of
from gateway.tasks.ports import Claim, Kept, NewTask, TaskQuestion
from gateway.tasks.question_keys import wire_keys
from gateway.tokens.key_holder import KeyHolder

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

_PASSED_ON = "~forwarded"
"""Names, beside the stored questions, those that are forwarded. No question has this name."""

_json = msgspec.json


class Unreadable(Exception):
    """A sealed value of a record cannot be opened here: its key was removed, or someone changed it."""


class Records:
    """Seals and opens the fields of records.

    Args:
        max_value_bytes: the size of the largest value written. Larger stored values, up to `MAX_STORED_BYTES`, are
            still read.
    """

    def __init__(self, holder: KeyHolder, telemetry: ProcessTelemetry, max_value_bytes: int = MAX_STORED_BYTES) -> None:
        self._holder = holder
        self._telemetry = telemetry
        self._max_value_bytes = max_value_bytes

    def seal(self, owner: str, task_id: str, field: str, value: Any, about: bytes = b"") -> str:
        """Seal a value for one field of one task. `about` is clear text that the value gets bound to.

        Raises:
            ValueTooLarge: the value is over the limit.
        """
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

        Raises:
            ValueTooLarge: the segments would be larger than the result that they belong to may be.
        """
        packed = pack(dict(block))
        emitted = claim.emitted + len(packed)
        if emitted > self._max_value_bytes:
            raise ValueTooLarge("The output of the task", emitted, self._max_value_bytes)
        return self.seal_packed(claim.owner, claim.task_id, segment_field(seq), packed), emitted

    def open_packed(self, owner: str, task_id: str, field: str, sealed: bytes, about: bytes = b"") -> bytes:
        """Open a value sealed by `seal_packed`.

        Raises:
            Unreadable: it does not open.
        """
        binding = self._binding(owner, task_id, field, about)
        try:
            opened = self._holder.current.open(sealed.decode("ascii"), binding, max_chars=MAX_FIELD_CHARS)
        except (Rejected, UnicodeDecodeError) as error:
            self._telemetry.field_rejected(error.reason if isinstance(error, Rejected) else RejectReason.MALFORMED)
            raise Unreadable from None
        self._telemetry.field_opened(opened.key_id)
        return opened.plaintext

    def open(self, owner: str, task_id: str, field: str, sealed: bytes, about: bytes = b"") -> Any:
        """Open a value sealed by `seal`.

        Raises:
            Unreadable: it does not open.
        """
        return _unpack(self.open_packed(owner, task_id, field, sealed, about))

    def _binding(self, owner: str, task_id: str, field: str, about: bytes) -> bytes:
        return field_binding(self._holder.audience, owner, task_id, f"{field} {about.decode()}" if about else field)

    def created(self, new: NewTask) -> tuple[bytes, dict[str, Value]]:
        """Return the unsealed facts about a new task, and the fields of its record.

        The unsealed facts, such as the tool's name, are bound to the values sealed with them. If someone changes one,
        the other no longer opens. They include a random part that distinguishes this creation from any other.

        Raises:
            ValueTooLarge: a part of the task, or its whole journal, is over the limit.
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
        about = _json.encode(
            {
                "tool": new.tool,
                "version": new.tool_version,
                "form": new.form,
                "attempts": new.max_attempts,
                "creation": secrets.token_hex(8),
            }
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

        Args:
            owner: of the task.
            task_id: of the task.
            name: `result` or `error`.
            value: its value.

        Raises:
            ValueTooLarge: the value is over the limit.
        """
        fields: dict[str, Value] = {name: self.seal(owner, task_id, name, dict(value))}
        if name == "result" and value.get("isError") is True:
            texts = texts_of(value)
            fields["failed"] = 1
            if texts:
                fields["why"] = self.seal(owner, task_id, "why", texts[-1][:_MAX_WHY_CHARS])
        return fields

    def changes(self, claim: Claim, kept: Kept) -> tuple[Changes, dict[str, bytes | None]]:
        """Return the changes that turn the stored journal into the current one.

        Returns:
            The changes to the record, and what to pass to `learn` once they are stored.

        Raises:
            ValueTooLarge: a part of the journal, or all of it, is over the limit.
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
            rows[_PASSED_ON] = passed_on  # not in the rows: older releases expect four values there
        counts = {**claim.asked, **{key: claim.asked.get(key, 0) + 1 for key in questions}}
        return (
            open_keys,
            _json.encode(counts),
            self.seal(claim.owner, claim.task_id, "questions", rows),
        )

    def view(self, owner: str, task_id: str, reply: Any) -> TaskView | None:
        """Return the task from a script's `view()`, None if there is none."""
        if not reply:
            return None
        return self._view(owner, task_id, int(reply[0]), dict(zip(VIEW_FIELDS, reply[1:], strict=True)))

    def brief(self, owner: str, task_id: str, now_ms: int, values: list[Any]) -> TaskView | None:
        """Return a task in brief for a list, None if it no longer exists.

        Args:
            owner: of the task.
            task_id: of the task.
            now_ms: the time of reading.
            values: the values of `BRIEF_FIELDS`.
        """
        brief = dict(zip(BRIEF_FIELDS, values, strict=True))
        if brief["phase"] is None:
            return None
        view = self._view(owner, task_id, now_ms, {**dict.fromkeys(VIEW_FIELDS), **brief})
        if view.opened and view.phase is Phase.DONE and view.error is None:
            return replace(view, result=self._brief_result(owner, task_id, brief))
        return view

    def _brief_result(self, owner: str, task_id: str, brief: Mapping[str, bytes | None]) -> dict[str, Any]:
        """Return the part of a result that a list shows: whether it is an error, and its message."""
        if not brief["failed"]:
            return {}
        try:
            why = None if brief["why"] is None else self.open(owner, task_id, "why", brief["why"])
        except Unreadable:
            why = None
        return {"isError": True, "content": [] if why is None else [{"type": "text", "text": why}]}

    def _view(self, owner: str, task_id: str, now_ms: int, fields: Mapping[str, Any]) -> TaskView:
        about = _json.decode(fields["about"])
        clear: dict[str, Any] = {
            "task_id": task_id,
            "tool": about["tool"],
            "form": about["form"],
            "phase": Phase(fields["phase"].decode()),
            "created_ms": int(fields["created"]),
            "updated_ms": int(fields["updated"]),
            "ended_ms": None if fields["ended"] is None else int(fields["ended"]),
            "expires_ms": int(fields["expires"]),
            "ttl_ms": int(fields["expires"]) - int(fields["created"]),
            "now_ms": now_ms,
            "generation": int(fields["generation"]),
            "kept_ms": None if fields["kept"] is None else int(fields["kept"]),
            "withdrawn": fields["withdrawn"] is not None,
        }
        try:
            return TaskView(**clear, **self._sealed_parts(owner, task_id, clear["phase"], fields))
        except Unreadable:
            return TaskView(**clear, progress=_progress(fields["progress"], None), opened=False)

    def _open_client(self, owner: str, task_id: str, sealed: bytes, about: bytes) -> tuple[dict[str, Any], list[str]]:
        """Return what the client that created the task declared, and the scopes its tool required then."""
        match self.open(owner, task_id, "capabilities", sealed, about):
            case [dict(capabilities), list(scopes)]:
                return capabilities, scopes
        raise Unreadable  # release 0.1 wrote it without scopes

    def _sealed_parts(
        self, owner: str, task_id: str, phase: Phase, fields: Mapping[str, bytes | None]
    ) -> dict[str, Any]:
        opened = {
            name: self.open(owner, task_id, name, sealed)
            for name in ("message", "result", "error", "questions")
            if (sealed := fields[name]) is not None
        }
        parts = {name: opened.get(name) for name in ("result", "error")}
        about, capabilities = fields["about"] or b"", fields["capabilities"] or b""
        parts["capabilities"], scopes = self._open_client(owner, task_id, capabilities, about)
        parts["scopes"] = frozenset(scopes)
        parts["progress"] = _progress(fields["progress"], opened.get("message"))
        if phase is Phase.WAITING and fields["open"] is not None:
            rows = opened["questions"]
            passed_on = rows.get(_PASSED_ON, ())
            parts["questions"] = {
                name: _question(rows[name], forwarded=name in passed_on) for name in _json.decode(fields["open"])
            }
        return parts

    def claimed(
        self, place: TaskPlace, owner: str, task_id: str, entry_id: str, reply: Any
    ) -> tuple[Claim, dict[str, bytes]]:
        """Return a claim from the reply to `scripts.claim`, and the record from which `open_claim` completes it."""
        record = _pairs(reply[2])
        about = _json.decode(record["about"])
        claim = Claim(
            owner=owner,
            task_id=task_id,
            tool=about["tool"],
            tool_version=about["version"],
            form=about["form"],
            capabilities={},
            arguments={},
            principal=None,
            context={},
            partition=place.partition,
            entry_id=entry_id,
            generation=int(record["generation"]),
            token=record["token"].decode(),
            attempt=int(record.get("lost", 0)) + 1,
            max_attempts=about["attempts"],
            created_ms=int(record["created"]),
            expires_ms=int(record["expires"]),
            now_ms=int(reply[1]),
            journal={},
            segments=int(record.get("segments", 0)),
            emitted=int(record.get("emitted", 0)),
            asked=_json.decode(record.get("asked", b"{}")),
        )
        return claim, record

    def open_claim(self, claim: Claim, record: Mapping[str, bytes]) -> None:
        """Fill in the sealed parts of a claim.

        Raises:
            Unreadable: they do not open, or the task's unsealed facts are not those it was created with.
        """
        owner, task_id, about = claim.owner, claim.task_id, record["about"]
        claim.capabilities, _ = self._open_client(owner, task_id, record["capabilities"], about)
        call = self.open(owner, task_id, "call", record["call"], about)
        claim.arguments, claim.context = call["arguments"], call["context"]
        if call["principal"] is not None:
            scopes, claims = call.get("token") or ((), "{}")
            claim.principal = Principal(*call["principal"]).holding(scopes=scopes, claims=Claims(claims))
        self._read_journal(claim, record)

    def _read_journal(self, claim: Claim, record: Mapping[str, bytes]) -> None:
        owner, task_id = claim.owner, claim.task_id
        claim.written = {
            name: self.open_packed(owner, task_id, name, sealed)
            for name, sealed in record.items()
            if rest.is_journal(name)
        }
        claim.journal = rest.join({name: _unpack(packed) for name, packed in claim.written.items()})
        fresh = [name for name in record if name.startswith(rest.NEW_ANSWER)]
        if not fresh:
            return
        questions = self.open(owner, task_id, "questions", record["questions"])
        for name in fresh:
            key, digest = questions[name[len(rest.NEW_ANSWER) :]][:2]
            rest.record(claim.journal, key, digest, self.open(owner, task_id, name, record[name]))
            claim.written[name] = b""


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


def encode_progress(progress: Progress) -> bytes:
    """Return the numbers of a progress report as they are stored."""
    return _json.encode([progress.done, progress.total])


def _check_total(journal: Mapping[str, bytes | None]) -> None:
    """Check that a journal is small enough for a worker, which reads it in one piece.

    Raises:
        ValueTooLarge: it is not.
    """
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


def _question(row: Sequence[Any], *, forwarded: bool) -> WireQuestion:
    key, digest, method, params = row
    return WireQuestion(key, digest, method, params, forwarded)


def _progress(stored: bytes | None, message: str | None) -> Progress | None:
    if stored is None:
        return None
    done, total = _json.decode(stored)
    return Progress(done, total, message)


def _pairs(flat: Iterable[bytes]) -> dict[str, bytes]:
    parts = iter(flat)
    return {name.decode(): value for name, value in zip(parts, parts, strict=True)}


def _unpack(packed: bytes) -> Any:
    try:
        return unpack(packed)
    except ValueError:
        raise Unreadable from None
