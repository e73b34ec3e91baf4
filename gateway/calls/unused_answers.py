"""Names answers that no question used: the mistake of a key that differs in each leg, which never stops to ask."""

from __future__ import annotations

import logging

from gateway.authoring.served import Served
from gateway.engine.asking import SAME_KEYS
from gateway.engine.leg import Leg
from gateway.engine.outcomes import NeedsInput

log = logging.getLogger(__name__)


def warn_of_unused_answers(served: Served, leg: Leg, outcome: NeedsInput) -> None:
    """Warn the operator if a leg asks, but has not come to questions that were answered before."""
    if leg.journal.answers and (unused := leg.unused()):
        log.warning(
            "answer not used",
            extra={"tool": served.name, "keys": unused[:3], "asked": list(outcome.questions)[:3], "advice": SAME_KEYS},
        )
