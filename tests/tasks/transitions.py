"""The transitions of a stored task, as the tests of stores and wires expect them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from gateway.tasks.model import Phase


class Move(StrEnum):
    """A transition of a stored task."""

    CLAIM = "claim"
    RECLAIM = "reclaim"
    RELEASE = "release"
    WAIT = "wait"
    ANSWER = "answer"
    FINISH = "finish"
    CANCEL = "cancel"


TRANSITIONS: Mapping[Move, Mapping[Phase, Phase]] = {
    Move.CLAIM: {Phase.QUEUED: Phase.RUNNING},
    Move.RECLAIM: {Phase.RUNNING: Phase.RUNNING},
    Move.RELEASE: {Phase.RUNNING: Phase.QUEUED},
    Move.WAIT: {Phase.RUNNING: Phase.WAITING},
    Move.ANSWER: {Phase.WAITING: Phase.QUEUED},
    Move.FINISH: {Phase.RUNNING: Phase.DONE},
    Move.CANCEL: {Phase.QUEUED: Phase.CANCELLED, Phase.RUNNING: Phase.CANCELLED, Phase.WAITING: Phase.CANCELLED},
}
"""Move → phase it may start from → phase it leads to. For an answer, only the last open question leads there."""
