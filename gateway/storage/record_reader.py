"""Reads the records of tasks: for their owners, for lists, and for the worker that claims them.

A record may come from a newer release, from a process with other keys, or be damaged. Its owner then sees a task that
cannot be read, and no worker runs it. Other tasks never notice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gateway.errors import RejectReason
from gateway.sealing.principal import Claims, Principal
from gateway.storage.lua.task_scripts import BRIEF_FIELDS, VIEW_FIELDS
from gateway.storage.plain_fields import PlainFields, read_plain
from gateway.storage.records import PASSED_ON, Records, segment_field
from gateway.storage.redis_keys import TaskPlace, split_member
from gateway.storage.unreadable import Unreadable, UnreadableLog
from gateway.tasks import stored_journal as rest
from gateway.tasks.model import Phase, Progress, TaskView, WireQuestion
from gateway.tasks.ports import Claim

_SEALED: Final = ("message", "result", "error", "questions")
"""The sealed fields of a view, without `capabilities`."""

_MISSHAPEN: Final = (LookupError, TypeError, ValueError, AttributeError)
"""Errors from reading a value that has another form than expected."""


class RecordReader:
    """Reads records, and logs those that cannot be read."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._log = UnreadableLog()

    def note(self, owner: str, task_id: str, problem: Unreadable) -> None:
        """Log that a task cannot be read, once for each task."""
        self._log.note(owner, task_id, problem)

    def view(self, owner: str, task_id: str, reply: Any) -> TaskView | None:
        """Return the task from a script's `view()`, None if there is none."""
        if not reply:
            return None
        return self._view(owner, task_id, int(reply[0]), dict(zip(VIEW_FIELDS, reply[1:], strict=True)), in_brief=False)

    def brief(self, owner: str, task_id: str, now_ms: int, values: list[Any]) -> TaskView | None:
        """Return a task in brief for a list, from the values of `BRIEF_FIELDS`; None if it no longer exists."""
        brief = dict(zip(BRIEF_FIELDS, values, strict=True))
        if brief["phase"] is None and brief["about"] is None:
            return None
        view = self._view(owner, task_id, now_ms, {**dict.fromkeys(VIEW_FIELDS), **brief}, in_brief=True)
        is_result = view.opened and view.phase is Phase.DONE and view.error is None
        return replace(
            view,
            capabilities={},
            error=None if view.error is None else {name: view.error[name] for name in ("code", "message")},
            result=self._brief_result(owner, task_id, brief) if is_result else None,
        )

    def segment(self, owner: str, task_id: str, seq: int, fields: Mapping[bytes, bytes]) -> Any:
        """Return an emitted block from its entry in the stream, or raise `Unreadable`."""
        try:
            return self._records.open(owner, task_id, segment_field(seq), fields.get(b"block", b""))
        except Unreadable as problem:
            self.note(owner, task_id, problem)
            raise

    def _brief_result(self, owner: str, task_id: str, brief: Mapping[str, bytes | None]) -> dict[str, Any]:
        """Return the part of a result that a list shows: whether it is an error, and its message."""
        if not brief["failed"]:
            return {}
        try:
            why = None if brief["why"] is None else self._records.open(owner, task_id, "why", brief["why"])
        except Unreadable as problem:
            self.note(owner, task_id, problem)
            why = None
        return {"isError": True, "content": [{"type": "text", "text": why}] if isinstance(why, str) else []}

    def _view(
        self, owner: str, task_id: str, now_ms: int, fields: Mapping[str, bytes | None], *, in_brief: bool
    ) -> TaskView:
        plain = read_plain(fields)
        clear: dict[str, Any] = {
            "task_id": task_id,
            "tool": plain.about.tool,
            "form": plain.about.form,
            "phase": plain.phase,
            "created_ms": plain.created_ms,
            "updated_ms": plain.updated_ms,
            "ended_ms": plain.ended_ms,
            "expires_ms": plain.expires_ms,
            "ttl_ms": plain.expires_ms - plain.created_ms,
            "now_ms": now_ms,
            "generation": plain.generation,
            "kept_ms": plain.kept_ms,
            "withdrawn": fields["withdrawn"] is not None,
        }
        try:
            self._check(plain)
            questions = [] if in_brief else plain.open_keys
            return TaskView(**clear, **self._sealed_parts(owner, task_id, fields, plain.progress, questions))
        except Unreadable as problem:
            self.note(owner, task_id, problem)
            return TaskView(**clear, progress=plain.progress, opened=False)

    def _check(self, plain: PlainFields) -> None:
        if plain.problem is not None:
            raise self._records.unreadable(plain.problem)

    def _misshapen(self, field: str) -> Unreadable:
        return self._records.unreadable(Unreadable(RejectReason.MALFORMED, field))

    def _open_client(
        self, owner: str, task_id: str, fields: Mapping[str, bytes | None]
    ) -> tuple[dict[str, Any], list[str]]:
        """Return what the client that created the task declared, and the scopes its tool required then.

        If they do not open, or the task's unsealed facts are not those of its creation, this raises `Unreadable`.
        """
        about, sealed = fields["about"] or b"", fields.get("capabilities") or b""
        match self._records.open(owner, task_id, "capabilities", sealed, about):
            case [dict(capabilities), list(scopes)]:
                return capabilities, scopes
        raise self._misshapen("capabilities")

    def _sealed_parts(
        self,
        owner: str,
        task_id: str,
        fields: Mapping[str, bytes | None],
        progress: Progress | None,
        open_keys: Sequence[str],
    ) -> dict[str, Any]:
        opened = {
            name: self._records.open(owner, task_id, name, sealed)
            for name in _SEALED
            if (sealed := fields[name]) is not None
        }
        capabilities, scopes = self._open_client(owner, task_id, fields)
        result, error, message = opened.get("result"), opened.get("error"), opened.get("message")
        if not isinstance(result, dict | None):
            raise self._misshapen("result")
        match error:
            case None | {"code": int(), "message": str()}:
                pass
            case _:
                raise self._misshapen("error")
        return {
            "capabilities": capabilities,
            "scopes": frozenset(scopes),
            "result": result,
            "error": error,
            "progress": None if progress is None else progress._replace(message=message),
            "questions": self._questions(opened.get("questions", {}), open_keys),
        }

    def _questions(self, rows: Mapping[str, Any], open_keys: Sequence[str]) -> dict[str, WireQuestion]:
        try:
            passed_on = rows.get(PASSED_ON, ())
            return {name: _question(rows[name], forwarded=name in passed_on) for name in open_keys}
        except _MISSHAPEN:
            raise self._misshapen("questions") from None

    def claimed(self, place: TaskPlace, entry_id: str, now_ms: int, record: Mapping[str, bytes]) -> Claim:
        """Return the claim of a record, without what only `open_claim` opens.

        If a plain field cannot be read, or has changed since the task was created, this raises `Unreadable`.
        """
        owner, task_id = split_member(place.member)
        plain = read_plain(record)
        self._check(plain)
        capabilities, _ = self._open_client(owner, task_id, record)
        return Claim(
            owner=owner,
            task_id=task_id,
            tool=plain.about.tool,
            tool_version=plain.about.version,
            form=plain.about.form,
            capabilities=capabilities,
            arguments={},
            principal=None,
            context={},
            partition=place.partition,
            entry_id=entry_id,
            generation=plain.generation,
            token=record.get("token", b"").decode("latin-1"),
            attempt=plain.lost + 1,
            max_attempts=plain.about.attempts,
            created_ms=plain.created_ms,
            expires_ms=plain.expires_ms,
            now_ms=now_ms,
            journal={},
            segments=plain.segments,
            emitted=plain.emitted,
            asked=plain.asked,
        )

    def open_claim(self, claim: Claim, record: Mapping[str, bytes]) -> None:
        """Fill in the sealed parts of a claim, or raise `Unreadable`."""
        call = self._records.open(claim.owner, claim.task_id, "call", record.get("call", b""), record["about"])
        try:
            claim.arguments, claim.context = call["arguments"], call["context"]
            if call["principal"] is not None:
                scopes, claims = call.get("token") or ((), "{}")
                claim.principal = Principal(*call["principal"]).holding(scopes=scopes, claims=Claims(claims))
        except _MISSHAPEN:
            raise self._misshapen("call") from None
        self._read_journal(claim, record)

    def _read_journal(self, claim: Claim, record: Mapping[str, bytes]) -> None:
        owner, task_id = claim.owner, claim.task_id
        claim.written = {
            name: self._records.open_packed(owner, task_id, name, sealed)
            for name, sealed in record.items()
            if rest.is_journal(name)
        }
        journal = {name: self._records.unpack(name, packed) for name, packed in claim.written.items()}
        fresh = [name for name in record if name.startswith(rest.NEW_ANSWER)]
        if type(journal.get(rest.HEAD)) is not dict:
            raise self._misshapen(rest.HEAD)
        claim.journal = rest.join(journal)
        if fresh:
            self._add_answers(claim, record, fresh)

    def _add_answers(self, claim: Claim, record: Mapping[str, bytes], fresh: Sequence[str]) -> None:
        """Add the answers that arrived while the task waited to the journal of its claim."""
        owner, task_id = claim.owner, claim.task_id
        questions = self._records.open(owner, task_id, "questions", record.get("questions", b""))
        for name in fresh:
            answer = self._records.open(owner, task_id, name, record[name])
            try:
                key, digest = questions[name[len(rest.NEW_ANSWER) :]][:2]
                rest.record(claim.journal, key, digest, answer)
            except _MISSHAPEN:
                raise self._misshapen("questions") from None
            claim.written[name] = b""


def _question(row: Sequence[Any], *, forwarded: bool) -> WireQuestion:
    key, digest, method, params = row
    return WireQuestion(key, digest, method, params, forwarded)
