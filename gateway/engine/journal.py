"""Pure: the journal, which holds what a call has learned so far, and its stored form.

The stored form is a map of JSON values and byte strings that `gateway.sealing.state` packs. A name in it never gets
another meaning. A release reads the journals of the previous and the next release; fields it does not know are kept and
written back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from gateway.engine.questions import Answer
from gateway.engine.values import Json

FLOW_ID_BYTES: Final = 16
SEED_BYTES: Final = 16

ROUND_END: Final = ":"
"""Ends the number of a round in the keys of a relay."""


class MalformedJournal(Exception):
    """An authentic map is not a journal that this release can read."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The value from which a long computation can resume.

    `logs` and `emits` count the log messages and blocks sent before it, so resuming here does not skip later ones.
    """

    version: int
    value: Json
    logs: int = 0
    emits: int = 0

    def to_map(self) -> dict[str, Any]:
        """Return the stored form."""
        rest = {"version": self.version, "value": self.value, "logs": self.logs}
        return {**rest, "emits": self.emits} if self.emits else rest

    @classmethod
    def from_map(cls, rest: Mapping[Any, Any]) -> Checkpoint:
        """Read the stored form; raise `KeyError` or `TypeError` if a field is missing or has another type."""
        logs, emits = _typed(rest["logs"], int), _typed(rest.get("emits", 0), int)
        return cls(_typed(rest["version"], int), rest["value"], logs, emits)


class Journal(msgspec.Struct):
    """Everything a call has learned so far.

    Attributes:
        flow_id: names the flow in logs and in step ids; 32 hex digits.
        seed: random bytes from which the tool's `uuid` and `random` are derived.
        started_ms: when the flow began, milliseconds since the epoch.
        deadline_ms: when the flow ends at the latest, milliseconds since the epoch.
        legs: legs begun so far.
        input_rounds: legs that ended as input required.
        pending: key → digest of each question that was asked and has no answer yet.
        answers: key → digest of the question → the answer; releases of a tool may ask differently under one key.
        progress: the highest progress reported so far, if any.
        total: the highest total reported with it, if any.
        segments: the content blocks emitted so far, in order.
        sheds: legs that ended early at a checkpoint, so another process could continue.
        refused: key → how many answers did not fit its question.
        trace: the span of the first traced leg: ids of trace and span, and flags; None if no leg was traced.
        headers: the headers of the first request that functions may see, by lower-case name.
        slot: where a relay stands (`gateway.engine.relaying`), None for any other call. Only its `round` is read here.
        unknown: fields of a newer release, kept as they came.
    """

    flow_id: str
    seed: bytes
    started_ms: int
    deadline_ms: int
    legs: int = 0
    input_rounds: int = 0
    pending: dict[str, bytes] = {}
    answers: dict[str, dict[bytes, Answer]] = {}
    steps: dict[str, Json] = {}
    checkpoint: Checkpoint | None = None
    progress: float | None = None
    total: float | None = None
    logs: int = 0
    segments: list[dict[str, Any]] = []
    sheds: int = 0
    refused: dict[str, int] = {}
    trace: bytes | None = None
    slot: dict[str, Any] | None = None
    headers: dict[str, str] = {}
    unknown: dict[str, Any] = {}

    @classmethod
    def begin(cls, *, now_ms: int, flow_max_ms: int, random_bytes: Callable[[int], bytes]) -> Journal:
        """Start the journal of a new flow at `now_ms`."""
        entropy = random_bytes(FLOW_ID_BYTES + SEED_BYTES)
        return cls(
            flow_id=entropy[:FLOW_ID_BYTES].hex(),
            seed=entropy[FLOW_ID_BYTES:],
            started_ms=now_ms,
            deadline_ms=now_ms + flow_max_ms,
        )

    def record(self, key: str, digest: bytes, answer: Answer) -> None:
        """Record the answer to a question, which is no longer pending."""
        self.answers.setdefault(key, {})[digest] = answer
        if self.pending.get(key) == digest:
            del self.pending[key]

    def forget(self, key: str, digest: bytes) -> None:
        """Drop an answer that does not fit the question."""
        by_digest = self.answers.get(key, {})
        by_digest.pop(digest, None)
        if not by_digest:
            self.answers.pop(key, None)

    def to_map(self) -> dict[str, Any]:  # noqa: C901, PLR0912 - one condition for each part
        """Return the stored form. Empty parts are left out."""
        # In the order of the class: reading all fields at once costs a fraction of reading each.
        (
            flow_id,
            seed,
            started_ms,
            deadline_ms,
            legs,
            input_rounds,
            pending,
            answers,
            steps,
            checkpoint,
            progress,
            total,
            logs,
            segments,
            sheds,
            refused,
            trace,
            slot,
            headers,
            unknown,
        ) = msgspec.structs.astuple(self)
        rest: dict[str, Any] = dict(unknown)
        rest["flow"] = flow_id
        rest["seed"] = seed
        rest["start"] = started_ms
        rest["deadline"] = deadline_ms
        rest["legs"] = legs
        rest["rounds"] = input_rounds
        if pending:
            rest["pending"] = pending
        if answers:
            rest["answers"] = {key: list(by.items()) for key, by in answers.items()}
        if steps:
            rest["steps"] = steps
        if checkpoint is not None:
            rest["checkpoint"] = checkpoint.to_map()
        if progress is not None:
            rest["progress"] = progress
        if total is not None:
            rest["total"] = total
        if logs:
            rest["logs"] = logs
        if segments:
            rest["segments"] = segments
        if sheds:
            rest["sheds"] = sheds
        if refused:
            rest["refused"] = refused
        if trace is not None:
            rest["trace"] = trace
        if slot is not None:
            rest["slot"] = slot
        if headers:
            rest["headers"] = headers
        return rest

    @classmethod
    def from_map(cls, rest: Mapping[Any, Any]) -> Journal:
        """Read the stored form; raise `MalformedJournal` if a field is missing or has another type."""
        try:
            unread = dict(_typed(rest, dict))
            take = unread.pop
            journal = cls(
                flow_id=_typed(take("flow"), str),
                seed=_typed(take("seed"), bytes),
                started_ms=_typed(take("start"), int),
                deadline_ms=_typed(take("deadline"), int),
                legs=_typed(take("legs"), int),
                input_rounds=_typed(take("rounds"), int),
                pending={key: _typed(digest, bytes) for key, digest in _by_key(take("pending", {})).items()},
                answers={
                    key: {_typed(digest, bytes): _typed(answer, dict) for digest, answer in pairs}
                    for key, pairs in _by_key(take("answers", {})).items()
                },
                steps=dict(_by_key(take("steps", {}))),
                checkpoint=Checkpoint.from_map(take("checkpoint")) if "checkpoint" in unread else None,
                progress=_number(take("progress", None)),
                total=_number(take("total", None)),
                logs=_typed(take("logs", 0), int),
                segments=[_typed(block, dict) for block in _typed(take("segments", []), list)],
                sheds=_typed(take("sheds", 0), int),
                refused=_counts(take("refused")) if "refused" in unread else {},
                trace=_typed(take("trace"), bytes) if "trace" in unread else None,
                slot=_slot(take("slot")) if "slot" in unread else None,
                headers=_texts(take("headers", {})),
                unknown=unread,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MalformedJournal(str(error)) from None
        return journal


def _number(value: Any) -> float | None:
    if value is None or type(value) in (int, float):
        number: float | None = value
        return number
    raise TypeError(f"{type(value).__name__} is not a number")


def _counts(rest: Any) -> dict[str, int]:
    return {key: _typed(count, int) for key, count in _by_key(rest).items()}


def _texts(rest: Any) -> dict[str, str]:
    return {name: _typed(text, str) for name, text in _by_key(rest).items()}


def _slot(rest: Any) -> dict[str, Any]:
    slot = _by_key(rest)
    _typed(slot["round"], int)
    return slot


def _by_key(rest: Any) -> dict[str, Any]:
    """Return a map by author's keys, after checking that all keys are text."""
    by_key: dict[str, Any] = _typed(rest, dict)
    for key in rest:
        _typed(key, str)
    return by_key


def journal_key(journal: Journal, key: str) -> str:
    """Return the key under which a journal records the answer to a forwarded question of its newest round."""
    slot = journal.slot
    return f"{0 if slot is None else slot['round']}{ROUND_END}{key}"


def _typed(value: Any, kind: type[Any]) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{type(value).__name__} is not {kind.__name__}")
    return value
