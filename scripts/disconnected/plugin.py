"""A pytest plugin that runs only the tests that are marked with a setting, and reports how each ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

MARK = "setting"


class Reported:
    """What became of each marked test."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tests: dict[str, dict[str, object]] = {}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out the other tests."""
        config.hook.pytest_deselected(items=[item for item in items if not any(item.iter_markers(MARK))])
        items[:] = [item for item in items if any(item.iter_markers(MARK))]
        for item in items:
            settings = sorted(set(_settings_of(item)))
            self._tests[item.nodeid] = {"test": item.nodeid, "settings": settings, "seconds": 0.0, "passed": True}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up the times of a test and its fixtures."""
        test = self._tests[report.nodeid]
        test["seconds"] = float(str(test["seconds"])) + report.duration
        test["passed"] = test["passed"] and report.passed

    def pytest_sessionfinish(self) -> None:
        """Write the report."""
        self._path.write_text(json.dumps(list(self._tests.values())))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the report."""
    parser.addoption("--marked-report", type=Path)


def pytest_configure(config: pytest.Config) -> None:
    """Begin a report."""
    config.pluginmanager.register(Reported(config.getoption("--marked-report")))


def _settings_of(item: pytest.Item) -> Iterator[str]:
    for mark in item.iter_markers(MARK):
        yield from mark.args
