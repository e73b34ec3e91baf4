"""How all tests run."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import importlib.util
import os
import pkgutil
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from loadtest.cluster.common import LoggedProcess
from tests import forkserver

if TYPE_CHECKING:
    from _typeshed import TraceFunction

TESTS = Path(__file__).parent

# A loaded machine is not a defect: examples have no deadline and may be slow to generate; `timeout` in pyproject.toml
# ends a hang. CI runs the same examples each time, so only a change turns it red; all other runs explore. `make test`
# runs a few examples of each property; `make ci` also runs many, on compiled code.
settings.register_profile("explore", max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeat", settings.get_profile("explore"), derandomize=True, database=None, print_blob=True)
settings.load_profile("repeat" if os.environ.get("CI") else "explore")
settings.register_profile("many", max_examples=100)

MEASURED = "COVERAGE_PROCESS_CONFIG"
"""The variable with which coverage also measures the processes of tests, which makes them 1.5 times as slow."""

UNMEASURED = (
    *("agents", "auth/test_confusion.py", "bench", "calls/authority", "chaos", "conformance", "demo", "deploy", "docs"),
    *("http/test_draining_server.py", "integration", "loadtest", "process/test_reload.py"),
    *("proposals", "protocol/test_sse.py", "protocol/upstream/test_event_stream.py", "proxies"),
    *("releases", "repository", "security", "soak"),
    *("storage/test_deleting.py", "storage/test_lifecycle.py", "storage/test_pages.py"),
    *("under_load", "wires/draft", "wires/legacy", "wires/released", "wires/test_catalogue.py", "workers"),
)
"""Tests that are not measured in pytest's process: other tests run the same code, or they run little but clients.

Measuring makes a test up to three times as slow.
"""

MEASURED_PROCESSES = (
    *("cli/test_dev.py", "process/test_reload.py", "wires/draft/test_persistent.py", "workers/test_leaving.py"),
)
"""Tests that are measured with the processes that they start. Of other tests, only pytest's process is measured.

A measured process costs half as much again, and a line needs no more than one test that is seen to run it. These are
enough for 93 % of all lines and branches.
"""

REAL_STARTS = (
    *(
        "bench",
        "chaos",
        "conformance",
        "deploy",
        "loadtest",
        "proxies",
        "releases",
        "security/test_secrets.py",
        "soak",
        "under_load",
    ),
)
"""Tests whose clusters start processes as users do; all others fork them."""

FIRST = "gw0"
"""The name of the first of several pytest processes."""


@dataclasses.dataclass
class Measuring:
    """Whether coverage measures, and with what.

    Attributes:
        tracers: coverage's, of this thread and of new ones; None where coverage does not measure at all.
        test: whether the current test is to be measured.
        processes: what makes the processes of a test be measured.
    """

    tracers: tuple[TraceFunction | None, TraceFunction | None] | None = None
    test: bool = True
    processes: dict[str, str] = dataclasses.field(default_factory=dict)


_measuring = Measuring()


def pytest_configure() -> None:
    """Reject lists of paths with one that does not exist, which would silently do nothing, and prepare the process."""
    for path in (*UNMEASURED, *MEASURED_PROCESSES, *REAL_STARTS):
        if not (TESTS / path).exists():
            raise pytest.UsageError(f"tests/conftest.py names tests/{path}, which does not exist")
    stop_measuring()
    if importlib.util.find_spec("sniffio") is None:
        sys.modules["sniffio"] = None  # type: ignore[assignment] # httpcore looks for it again and again, in each request


def pytest_unconfigure() -> None:
    """Stop the fork server of the tests."""
    forkserver.stop()


@pytest.hookimpl(trylast=True)
def pytest_sessionstart() -> None:
    """Stop coverage where it starts with the session, as it does in a process that runs tests for another one."""
    stop_measuring()


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Measure the imports of our modules in one process, but no other part of the collection of tests.

    Collecting makes many objects and little garbage, so the garbage collector would search long and find nothing.
    """
    if session.config.getoption("dist", "no") != "no":
        return  # other processes collect
    gc.disable()
    if os.environ.get("PYTEST_XDIST_WORKER", FIRST) == FIRST:
        with measured():
            for name in ("gateway", "gateway_workers"):
                for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
                    if not module.name.endswith("__main__"):
                        importlib.import_module(module.name)


def pytest_collection_finish() -> None:
    """Keep the ten thousand collected tests away from the garbage collector.

    Going through them holds a test up for a second, which is as long as a connection to the store may take.
    """
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Decide whether a test and its processes are measured, before its first fixture."""
    if is_in(MEASURED_PROCESSES, item.path):
        os.environ.update(_measuring.processes)
    elif MEASURED in os.environ:
        _measuring.processes[MEASURED] = os.environ.pop(MEASURED)
    _measuring.test = not is_in(UNMEASURED, item.path) and not is_generated(item)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup() -> Generator[None, object, object]:
    """Measure the setup of a fixture."""
    with measured():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """Measure the function of a test."""
    with measured():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """Measure the teardown of fixtures."""
    with measured():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Fork the processes of clusters where that makes no difference."""
    LoggedProcess.popen = subprocess.Popen if is_in(REAL_STARTS, item.path) else staticmethod(forkserver.start)
    return (yield)


@pytest.fixture(scope="module")
def only_new_objects() -> Iterator[None]:
    """Let searches among all objects, such as that for garbage, see only what the tests of a module make."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@functools.cache
def is_in(places: tuple[str, ...], path: Path) -> bool:
    """Return whether a test is in one of these folders or modules of `tests`."""
    return any(path.is_relative_to(TESTS / place) for place in places)


def is_generated(item: pytest.Item) -> bool:
    """Return whether hypothesis generates the examples of a test; the written examples run the same lines."""
    return getattr(getattr(item, "obj", None), "is_hypothesis_test", False)


def is_measured() -> bool:
    """Return whether coverage is measuring; a debugger does not count."""
    return type(sys.gettrace()).__module__.partition(".")[0] == "coverage"


def stop_measuring() -> None:
    """Stop coverage: from now on it measures only what `measured` wraps, and neither pytest nor its threads."""
    if is_measured():
        _measuring.tracers = (sys.gettrace(), threading.gettrace())
        trace(None, None)


def trace(here: TraceFunction | None, in_threads: TraceFunction | None) -> None:
    """Trace this thread, and those that it starts; None stops that."""
    sys.settrace(here)
    threading.settrace(in_threads)


@contextlib.contextmanager
def measured() -> Iterator[None]:
    """Let coverage measure if this test is to be measured: measuring costs as much as running, or three times that."""
    if _measuring.tracers is None or not _measuring.test or sys.gettrace() is not None:
        yield
        return
    trace(*_measuring.tracers)
    try:
        yield
    finally:
        trace(None, None)
