"""Pure: one leg of a relay, which passes on what another server asks, logs and reports.

A relay does not replay. It keeps one value in the journal, its slot, which holds its place; each leg continues from
there. The questions of a round are recorded under `<round>:<key>`, so the other server may ask under one key again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Literal, TypeAlias

from gateway.engine.journal import ROUND_END, journal_key
from gateway.engine.keys import check_key
from gateway.engine.leg import MAX_ROUNDS_BEFORE_SHED, MAX_SHEDS, Away, Leg
from gateway.engine.outcomes import Shed
from gateway.engine.questions import Answer, Question

LOG_LEVELS: Final = frozenset({"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"})
"""RFC 5424 section 6.2.1."""


class RelayLeg:
    """A leg as a relay sees it. Once the other server has asked, answers to questions that were not asked do not count.

    Attributes:
        early: the answers that came with the first request of a call, before anything was asked. Only the other server
            can say whether it wants them.
        away: the time that the relay has waited for the other server, and what it has put aside meanwhile.
    """

    def __init__(self, leg: Leg) -> None:
        self.journal: Final = leg.journal
        self._leg = leg
        leg.away = self.away = Away()
        unexpected = leg.unexpected()
        self.early: Final = unexpected if leg.journal.slot is None else {}

    @property
    def slot(self) -> dict[str, Any] | None:
        """The value that the relay kept last in this call, or None."""
        return self.journal.slot

    @property
    def in_task(self) -> bool:
        """Whether this is a leg of a task."""
        return self._leg.in_task

    @property
    def supports(self) -> Callable[[tuple[str, ...]], bool]:
        """Returns whether the client declared a capability path, e.g. `("elicitation", "form")`."""
        return self._leg.supports

    async def keep_slot(self, slot: dict[str, Any]) -> None:
        """Replace the slot. In a task, it is durable when this returns.

        `slot` is packable by `gateway.sealing.packing`; its `round` is the number of the newest round.
        """
        self._leg.check_running()
        self.journal.slot = slot
        if self._leg.keeper is not None:
            await self._leg.kept(self._leg.keeper.keep_slot(slot))
            self._leg.check_running()

    def forget_round(self, number: int) -> None:
        """Drop what a round asked and what was answered. Call it once the round's answers have been used."""
        start = f"{number}{ROUND_END}"
        for by_key in (self.journal.pending, self.journal.answers, self.journal.refused):
            for key in [key for key in by_key if key.startswith(start)]:
                del by_key[key]

    async def ask_forwarded(self, questions: Mapping[str, Question]) -> dict[str, Answer]:
        """Return the answer to each question of the newest round, or end the leg to ask those that have none.

        `questions` are by wire key; see `gateway.engine.forwarded`.

        Raises:
            AuthoringError: a key cannot be a wire key.
        """
        self._leg.check_running()
        for key in questions:
            check_key(key)
        return self._leg.answered(questions, journal_key(self.journal, ""))

    def shed_bare(self) -> Literal[False]:
        """End the leg without a question, so the client sends the call again, perhaps to another replica.

        Return False if the client cannot do that, or has done it too often in this call.
        """
        self._leg.check_running()
        journal = self.journal
        if self._leg.sheds is not None and journal.sheds < MAX_SHEDS and journal.input_rounds <= MAX_ROUNDS_BEFORE_SHED:
            journal.sheds += 1
            self._leg.stop(Shed())
        return False

    def relay_log(self, level: Any, data: Any, logger: Any = None) -> bool:
        """Pass on a log message, and return whether it was passed on. An unknown level becomes `info`.

        The other server does not repeat itself in the next leg, so every message is a new one.
        """
        notices = self._leg.notices
        if notices is None or self._leg.outcome is not None:
            return False
        self.journal.logs += 1
        known = level if isinstance(level, str) and level in LOG_LEVELS else "info"
        notices.log(known, data, logger if isinstance(logger, str) else None)
        return True

    def relay_progress(self, done: Any, total: Any = None, message: Any = None) -> bool:
        """Pass on progress, and return whether it was passed on: it must be a finite number above the last one."""
        journal, notices = self.journal, self._leg.notices
        if notices is None or self._leg.outcome is not None or not _is_finite(done):
            return False
        if journal.progress is not None and done <= journal.progress:
            return False
        journal.progress = done
        if not _is_finite(total):
            total = None
        elif journal.total is not None:
            total = max(total, journal.total)
        if total is not None:
            journal.total = total
        notices.progress(done, total, message if isinstance(message, str) else None)
        return True


RelayFunction: TypeAlias = Callable[[RelayLeg], Coroutine[Any, Any, dict[str, Any]]]
"""Runs one leg of a relay, and returns the result of the other server."""


def _is_finite(number: object) -> bool:
    return isinstance(number, (int, float)) and not isinstance(number, bool) and math.isfinite(number)
