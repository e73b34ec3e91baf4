"""How all tests run."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A loaded machine is no defect: examples have no deadline and may be slow to make; `timeout` in pyproject.toml ends a
# hang. CI runs the same examples each time, so that only a change turns it red; everybody else explores.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeat", settings.get_profile("explore"), derandomize=True, database=None, print_blob=True)
settings.load_profile("repeat" if os.environ.get("CI") else "explore")
