"""Shows the logs of replicas when a test fails."""

from __future__ import annotations

from tests.integration.conftest import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]
