"""Pure: results at once and results in segments (SEP-1905 "Task Result Streaming and Immediate Result Acceptance")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from gateway.errors import InvalidParams
from gateway.protocol import task_format as task_words
from gateway.protocol.handshake.tasks import GONE, has_ended, related, status
from gateway.tasks.model import Phase, TaskView

Mode: TypeAlias = Literal["immediate", "streaming", "task"]

MODES: Final[tuple[Mode, ...]] = ("immediate", "streaming", "task")
"""The response modes that are served, the preferred one first (section "Capability Negotiation")."""

_FALLBACK_MODE: Final = "io.modelcontextprotocol/fallback-mode"
"""The name in `_meta` of the mode in which a request is answered that did not list it."""

FALLBACK_META: Final = {_FALLBACK_MODE: "task"}
KEPT_NOWHERE_META: Final = {_FALLBACK_MODE: "immediate"}
"""What an ended call carries in `_meta` that should be a task but for which the store has no place."""

MORE: Final = "dev.sealedgateway/more"
"""The name in `_meta` of what a complete answer in segments does not have, and where it is."""

_TOLD_IN_SEGMENTS: Final = frozenset({"content", "isError"})
"""What of a result its segments, and the responses that have them, tell."""

_MAX_SEQ_NR: Final = 2**53 - 1
"""No task has as many segments; JSON tells greater numbers only roughly."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How a request that becomes a task is answered.

    Attributes:
        mode: the way to begin with.
        may_stream: whether segments may be sent where there is no result at once.
        fallback: whether the request lists modes, and a task is none of them.
    """

    mode: Mode
    may_stream: bool
    fallback: bool


@dataclass(frozen=True, slots=True)
class Segments:
    """What there is of a result.

    Attributes:
        blocks: content blocks in order.
        complete: whether no more will come.
        is_error: whether the last one says what went wrong.
        after: the number of the segment before the first of these; segments are numbered from 1.
        emitted: whether there is more than what the task ended with.
        more: the names of the fields of the result that no segment has.
    """

    blocks: Sequence[Mapping[str, Any]]
    complete: bool
    is_error: bool
    after: int
    emitted: bool
    more: Sequence[str] = ()


def choose_mode(asked: Any, client_modes: frozenset[str] | None) -> Choice:
    """Choose how to answer a request that becomes a task (section "Capability Negotiation").

    Every client takes a task, whether it says so or not.

    Args:
        asked: `params.task.responseModes` as sent, None if absent. Names that are not known count for nothing.
        client_modes: what the client declared when its session began, None without a session.

    Raises:
        InvalidParams: what was asked is no array of strings.
    """
    names = _read_modes(asked)
    usable = [mode for mode in MODES if mode in names and (client_modes is None or mode in {*client_modes, "task"})]
    return Choice(
        mode=usable[0] if usable else "task",
        may_stream="streaming" in usable,
        fallback=bool(names) and "task" not in names,
    )


def read_last_seq_nr(params: Mapping[str, Any]) -> int | None:
    """Read the `lastSeqNr` of `tasks/result`, None if the whole result is asked for (section "Resuming Streaming").

    Raises:
        InvalidParams: it is no integer from 1 on.
    """
    if "lastSeqNr" not in params:
        return None
    number = params["lastSeqNr"]
    if type(number) is not int or number < 1:
        raise InvalidParams("params.lastSeqNr must be a positive integer")
    return min(number, _MAX_SEQ_NR)


def segments_of(view: TaskView, stored: Sequence[Mapping[str, Any]], after: int = 0) -> Segments:
    """Return what there is of a task's result in segments (section "Streaming Behavior").

    Once the task is done that is its whole content, so the last segments are there as soon as the task has ended, and
    not before. An error of the protocol is told as one more segment.

    Args:
        view: the task.
        stored: what it has emitted after a segment, read after the view was.
        after: the number of that segment; 0, for all, once the task `has_ended`.

    Raises:
        ValueError: some of a task that has ended are missing.
    """
    if has_ended(view) and after:
        raise ValueError("a task that has ended needs all of its segments")
    emitted = bool(stored) or after > 0
    if not has_ended(view) or view.phase is Phase.CANCELLED:
        return Segments(stored, complete=has_ended(view), is_error=False, after=after, emitted=emitted)
    is_error = status(view) == "failed"
    if view.result is None:
        why = {"type": "text", "text": task_words.error_of(view)["message"]}
        return Segments([*stored, why], complete=True, is_error=is_error, after=after, emitted=emitted)
    more = sorted(view.result.keys() - _TOLD_IN_SEGMENTS)
    blocks = _whole(stored, view.result["content"])
    return Segments(blocks, complete=True, is_error=is_error, after=after, emitted=emitted, more=more)


def gone(sent: int) -> Segments:
    """Return what is told of a task that is no longer there while its segments are sent.

    Args:
        sent: how many were.
    """
    why = {"type": "text", "text": GONE}
    return Segments([why], complete=True, is_error=True, after=sent, emitted=sent > 0)


def response(segments: Segments, after: int, task_id: str) -> dict[str, Any]:
    """Return one more response with what there is after a segment (section "Streaming Behavior").

    A task that failed before it had emitted anything is told in the form of a result.

    Args:
        segments: what there is.
        after: the number of the last segment that the client has, 0 for none.
        task_id: of the task.
    """
    if after == 0 and segments.is_error and not segments.emitted:
        return {"content": segments.blocks, "isError": True, "isComplete": True, **related(task_id)}
    return partial(segments, after, task_id)


def partial(segments: Segments, after: int, task_id: str) -> dict[str, Any]:
    """Return a response with `partial-content` (section "Case 3: Responding with Streaming Results").

    Args:
        segments: what there is.
        after: the number of the last segment that the client has.
        task_id: of the task.
    """
    numbered = [
        {**block, "seqNr": number} for number, block in enumerate(segments.blocks, segments.after + 1) if number > after
    ]
    told = {"partial-content": numbered, "isError": segments.is_error, "isComplete": segments.complete}
    joining = related(task_id)
    if segments.more:
        joining["_meta"][MORE] = {"method": "tasks/result", "fields": list(segments.more)}
    return {**told, **joining}


def _read_modes(asked: Any) -> list[str]:
    if asked is None:
        return []
    if type(asked) is not list or not all(type(mode) is str for mode in asked):
        raise InvalidParams("params.task.responseModes must be an array of strings")
    return asked


def _whole(stored: Sequence[Mapping[str, Any]], last: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Join what was emitted and what the task ended with, which mostly begins with the former."""
    return last if [*last[: len(stored)]] == [*stored] else [*stored, *last]
