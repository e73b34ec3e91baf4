"""Pure: immediate and segmented results (SEP-1905 "Task Result Streaming and Immediate Result Acceptance")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from gateway.errors import InvalidParams
from gateway.protocol import task_format as task_words
from gateway.protocol.handshake.tasks import GONE, has_ended, related, status
from gateway.tasks.model import Phase, TaskView, blocks_of

Mode: TypeAlias = Literal["immediate", "streaming", "task"]

MODES: Final[tuple[Mode, ...]] = ("immediate", "streaming", "task")
"""The response modes that are served, in order of preference (section "Capability Negotiation")."""

_FALLBACK_MODE: Final = "io.modelcontextprotocol/fallback-mode"
"""The name in `_meta` of the response mode, if the request did not list that mode."""

FALLBACK_META: Final = {_FALLBACK_MODE: "task"}
KEPT_NOWHERE_META: Final = {_FALLBACK_MODE: "immediate"}
"""The `_meta` of the result of a call that should have become a task, but for which the store has no room."""

MORE: Final = "dev.sealedgateway/more"
"""The name in `_meta` that says which fields of the result have no segment, and where to get them."""

STATUS: Final = "dev.sealedgateway/status"
"""The name in `_meta` of the status of a task whose last response would otherwise look like that of a completed one."""

_TOLD_IN_SEGMENTS: Final = frozenset({"content", "isError"})
"""The fields of a result that segments and their responses contain."""

_MAX_SEQ_NR: Final = 2**53 - 1
"""No task has so many segments, and JSON is not exact for greater numbers."""


@dataclass(frozen=True, slots=True)
class AnswerMode:
    """How to answer a request that becomes a task.

    Attributes:
        may_stream: whether segments may be sent if there is no immediate result.
        fallback: whether the request lists modes without `task`.
    """

    mode: Mode
    may_stream: bool
    fallback: bool


@dataclass(frozen=True, slots=True)
class Segments:
    """The part of a result that is available.

    Attributes:
        is_error: whether the last block describes an error.
        after: the number of the segment before the first block; segments are numbered from 1.
        emitted: whether the task has emitted segments, besides its final result.
        more: the names of the result's fields that no segment contains.
        cancelled: whether these are all segments because the task was cancelled, and not because it is completed.
    """

    blocks: Sequence[Mapping[str, Any]]
    complete: bool
    is_error: bool
    after: int
    emitted: bool
    more: Sequence[str] = ()
    cancelled: bool = False


def choose_mode(asked: Any, client_modes: frozenset[str] | None) -> AnswerMode:
    """Choose how to answer a request that becomes a task (section "Capability Negotiation").

    Every client accepts a task, even if it does not list that mode. `asked` is `params.task.responseModes` as sent;
    unknown names are ignored. `client_modes` are those that the client declared when its session started; None without
    a session.

    Raises:
        InvalidParams: `asked` is not an array of strings.
    """
    names = _read_modes(asked)
    usable = [mode for mode in MODES if mode in names and (client_modes is None or mode in {*client_modes, "task"})]
    return AnswerMode(
        mode=usable[0] if usable else "task",
        may_stream="streaming" in usable,
        fallback=bool(names) and "task" not in names,
    )


def read_last_seq_nr(params: Mapping[str, Any]) -> int | None:
    """Read the `lastSeqNr` of `tasks/result`; None requests the whole result (section "Resuming Streaming").

    Anything but a positive integer is `InvalidParams`.
    """
    number = params.get("lastSeqNr")
    if number is None:
        return None
    if type(number) is not int or number < 1:
        raise InvalidParams("params.lastSeqNr must be a positive integer")
    return min(number, _MAX_SEQ_NR)


def segments_of(view: TaskView, stored: Sequence[Mapping[str, Any]], after: int = 0) -> Segments:
    """Return the segments of a task's result that are available (section "Streaming Behavior").

    When the task ends, the segments are its whole content, so the last ones appear only then. A protocol error becomes
    an additional segment.

    `stored` are the blocks emitted after segment `after`, read after the view was read. If the task `has_ended`,
    `after` must be 0, for all segments; otherwise this raises `ValueError`.
    """
    if has_ended(view) and after:
        raise ValueError("a task that has ended needs all of its segments")
    emitted = bool(stored) or after > 0
    if not has_ended(view):
        return Segments(stored, complete=False, is_error=False, after=after, emitted=emitted)
    if view.phase is Phase.CANCELLED:
        return Segments(stored, complete=True, is_error=False, after=after, emitted=emitted, cancelled=True)
    is_error = status(view) == "failed"
    if view.result is None:
        why = {"type": "text", "text": task_words.error_of(view)["message"]}
        return Segments([*stored, why], complete=True, is_error=is_error, after=after, emitted=emitted)
    more = sorted(view.result.keys() - _TOLD_IN_SEGMENTS)
    blocks = _whole(stored, blocks_of(view.result))
    return Segments(blocks, complete=True, is_error=is_error, after=after, emitted=emitted, more=more)


def gone(task_id: str) -> dict[str, Any]:
    """Return the last response about a task that disappears.

    It has no segment: the tool may have emitted one with the next number, which another client has read.
    """
    why = {"type": "text", "text": GONE}
    return {"content": [why], "isError": True, "isComplete": True, **related(task_id)}


def response(segments: Segments, after: int, task_id: str) -> dict[str, Any]:
    """Return a response with the segments that the client does not have (section "Streaming Behavior").

    If the task failed before it emitted anything, the response has the form of a result. `after` is the number of the
    last segment that the client has, or 0.
    """
    if after == 0 and segments.is_error and not segments.emitted:
        return {"content": segments.blocks, "isError": True, "isComplete": True, **related(task_id)}
    return partial(segments, after, task_id)


def partial(segments: Segments, after: int, task_id: str) -> dict[str, Any]:
    """Return a response with `partial-content` (section "Case 3: Responding with Streaming Results")."""
    numbered = [
        {**block, "seqNr": number} for number, block in enumerate(segments.blocks, segments.after + 1) if number > after
    ]
    told = {"partial-content": numbered, "isError": segments.is_error, "isComplete": segments.complete}
    joining = related(task_id)
    if segments.more:
        joining["_meta"][MORE] = {"method": "tasks/result", "fields": list(segments.more)}
    if segments.cancelled:
        joining["_meta"][STATUS] = "cancelled"
    return {**told, **joining}


def _read_modes(asked: Any) -> list[str]:
    if asked is None:
        return []
    if type(asked) is not list or not all(type(mode) is str for mode in asked):
        raise InvalidParams("params.task.responseModes must be an array of strings")
    return asked


def _whole(stored: Sequence[Mapping[str, Any]], last: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Join the emitted blocks and the final result, which usually begins with the same blocks."""
    return last if [*last[: len(stored)]] == [*stored] else [*stored, *last]
