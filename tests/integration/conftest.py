"""Fleets that many tests share, and their logs when a test fails."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.integration.fleet import Fleet

_SHOWN_CHARACTERS = 3000


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the replicas logged to the report of a failed test."""
    report = yield
    if report.failed:
        for fleet in Fleet.live:
            report.sections += [(f"log of {name}", text[-_SHOWN_CHARACTERS:]) for name, text in fleet.logs()]
    return report
