"""How all tests run."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A loaded machine is no defect: examples have no deadline and may be slow to make; `timeout` in pyproject.toml ends a
# hang. CI runs the same examples each time, so that only a change turns it red; everybody else explores.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeat", settings.get_profile("explore"), derandomize=True, database=None, print_blob=True)
settings.load_profile("repeat" if os.environ.get("CI") else "explore")

MEASURED = "COVERAGE_PROCESS_CONFIG"
"""Where coverage tells the processes of tests to be measured too, which makes them half as slow again."""

UNMEASURED = frozenset(
    {"bench", "deploy", "docs", "draft", "legacy", "loadtest", "proxies", "security", "tasks_released"}
)
"""Folders whose processes are not measured: they run what others, and tests without processes, run as well."""

_measuring: dict[str, str] = {}


def pytest_collection_finish() -> None:
    """Spare the garbage collector the ten thousand collected tests.

    Going through them holds a test up for a second, which is as long as a connection to the store may take.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tell processes to be measured or not, before any fixture starts one."""
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    if folder in UNMEASURED:
        if MEASURED in os.environ:
            _measuring[MEASURED] = os.environ.pop(MEASURED)
    else:
        os.environ.update(_measuring)
