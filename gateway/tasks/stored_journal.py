"""Pure: the stored form of a task's journal, in parts that are sealed and replaced separately.

A journal map (`gateway.engine.journal.Journal.to_map`) becomes the fields `head` (everything small), `a:<key>` (the
answers under a key), `s:<key>` (a step's result), `cp` (the checkpoint) and `slot` (where a relay stands). An answer
that arrives while the task waits is stored in `n:<wire key>` until a worker adds it to the journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.tasks.model import Progress

HEAD = "head"
CHECKPOINT = "cp"
SLOT = "slot"
ANSWER = "a:"
STEP = "s:"
NEW_ANSWER = "n:"

_PENDING = "pending"
_ANSWERS = "answers"
_STEPS = "steps"
_CHECKPOINT = "checkpoint"


def split(journal: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a journal map, each to be packed and sealed separately."""
    fields: dict[str, Any] = {
        HEAD: {name: value for name, value in journal.items() if name not in (_ANSWERS, _STEPS, _CHECKPOINT, SLOT)}
    }
    for key, pairs in journal.get(_ANSWERS, {}).items():
        fields[ANSWER + key] = pairs
    for key, value in journal.get(_STEPS, {}).items():
        fields[STEP + key] = value
    if _CHECKPOINT in journal:
        fields[CHECKPOINT] = journal[_CHECKPOINT]
    if SLOT in journal:
        fields[SLOT] = journal[SLOT]
    return fields


def progress(journal: Mapping[str, Any]) -> Progress | None:
    """Return the progress that a call reported before it became a task. A journal keeps no messages."""
    done = journal.get("progress")
    return None if done is None else Progress(done, journal.get("total"))


def is_journal(field: str) -> bool:
    """Return whether a stored field is part of the journal."""
    return field in (HEAD, CHECKPOINT, SLOT) or field.startswith((ANSWER, STEP))


def join(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the journal map from its fields; other fields are ignored."""
    journal = dict(fields.get(HEAD, {}))
    answers = {name[len(ANSWER) :]: pairs for name, pairs in fields.items() if name.startswith(ANSWER)}
    steps = {name[len(STEP) :]: value for name, value in fields.items() if name.startswith(STEP)}
    if answers:
        journal[_ANSWERS] = answers
    if steps:
        journal[_STEPS] = steps
    if CHECKPOINT in fields:
        journal[_CHECKPOINT] = fields[CHECKPOINT]
    if SLOT in fields:
        journal[SLOT] = fields[SLOT]
    return journal


def record(journal: dict[str, Any], key: str, digest: bytes, answer: Any) -> None:
    """Add an answer to a journal map as `Journal.record` would; the question is no longer pending."""
    answers = dict(journal.get(_ANSWERS, {}))
    answers[key] = [pair for pair in answers.get(key, ()) if pair[0] != digest] + [[digest, answer]]
    journal[_ANSWERS] = answers
    pending = dict(journal.get(_PENDING, {}))
    if pending.get(key) == digest:
        del pending[key]
    journal[_PENDING] = pending
    if not pending:
        del journal[_PENDING]
