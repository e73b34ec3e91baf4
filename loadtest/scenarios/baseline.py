"""Nothing happens: the baseline for all other scenarios."""

from __future__ import annotations

from loadtest.scenario import SOUND, Scenario
from loadtest.verdict import Bound

SCENARIO = Scenario(
    name="baseline",
    summary="Every call finishes with the right answer, whichever replicas its legs reach.",
    users={"ephemeral": 8, "compute": 1, "streaming": 2, "hostile": 1},
    cluster_bounds=(
        Bound("Replicas that answered", "replicas_that_answered", at_least=2),
        Bound("Legs answered by another replica than the previous leg", "hops", at_least=1),
    ),
    bounds=(*SOUND, Bound("Requests refused for load", "legs_refused", at_most=0)),
)
