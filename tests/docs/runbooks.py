"""The runbooks, as tests read them: what each incident looks like, why it happens, and what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.docs.markdown import anchor_of, text_of

PAGE: Final = "docs/run/runbooks.md"
PARTS: Final = ("You see", "Cause", "Action")


class Runbook(NamedTuple):
    """One incident: the heading of the third level, the alerts that lead to it, and its parts by name."""

    heading: str
    alerts: frozenset[str]
    parts: Mapping[str, str]

    @property
    def anchor(self) -> str:
        """Where a link to it leads."""
        return anchor_of(self.heading)


def runbooks() -> list[Runbook]:
    sections = re.findall(r"^### ([^\n]+)\n(.*?)(?=^##|\Z)", text_of(PAGE), re.MULTILINE | re.DOTALL)
    return [_runbook(heading, text) for heading, text in sections]


def _runbook(heading: str, text: str) -> Runbook:
    parts = {
        name: " ".join(said.split())
        for name, said in re.findall(r"^- \*\*([\w ]+)\*\*: (.*?)(?=^- |\Z)", text, re.MULTILINE | re.DOTALL)
    }
    alerts = frozenset(re.findall(r"`(\w+)`", parts.pop("Alerts", "")))
    return Runbook(heading, alerts, parts)
