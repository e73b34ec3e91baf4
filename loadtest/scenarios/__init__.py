"""The scenarios, one per module: users, changes to the deployment, and bounds."""

from __future__ import annotations

from collections.abc import Mapping

from loadtest.scenario import Scenario
from loadtest.scenarios import (
    baseline,
    key_rotation,
    load_shedding,
    redis_outage,
    replica_kill,
    rolling_upgrade,
    scale_out,
    soak,
    worker_kill,
)

SCENARIOS: Mapping[str, Scenario] = {
    module.SCENARIO.name: module.SCENARIO
    for module in (
        baseline,
        load_shedding,
        rolling_upgrade,
        key_rotation,
        replica_kill,
        worker_kill,
        redis_outage,
        scale_out,
        soak,
    )
}
"""All scenarios, by name."""
