"""Users that compute: many units of work, which a busy replica may hand on halfway."""

from __future__ import annotations

import re
from typing import Final

from locust import tag, task

from loadtest.errand import Errand
from loadtest.users.base import McpUser
from loadtest.wire import Answer

_RESULT: Final = re.compile(r"Computed (\d+) units: (.+)\.")
_SHARE: Final = re.compile(r"(\d+) on \S+")


class ComputeUser(McpUser):
    """Has units computed; each must run exactly once, on any replica."""

    kind = "compute"
    weight = 1

    @task
    @tag("crunch")
    def crunch(self) -> None:
        """Compute some units."""
        units = self.option("crunch_units")
        arguments = {"units": units, "unitMs": self.option("crunch_unit_ms")}
        self.mcp.call(Errand("crunch", arguments, lambda answer: wrong_units(answer, units)))


def wrong_units(answer: Answer, units: int) -> str | None:
    """Return what is wrong with the result of `crunch`, which says how many units ran on each replica, or None."""
    text = " ".join(answer.texts)
    found = _RESULT.fullmatch(text)
    if found is None:
        return f"got {text!r:.200}, not a number of computed units"
    shares = [int(count) for count in _SHARE.findall(found[2])]
    return None if int(found[1]) == sum(shares) == units else f"asked for {units} units, got {text!r:.200}"
