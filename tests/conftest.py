"""How all tests run."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import pkgutil
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from loadtest.cluster.common import LoggedProcess
from tests import forkserver

TESTS = Path(__file__).parent

# A loaded machine is no defect: examples have no deadline and may be slow to make; `timeout` in pyproject.toml ends a
# hang. CI runs the same examples each time, so that only a change turns it red; everybody else explores.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeat", settings.get_profile("explore"), derandomize=True, database=None, print_blob=True)
settings.load_profile("repeat" if os.environ.get("CI") else "explore")

MEASURED = "COVERAGE_PROCESS_CONFIG"
"""Where coverage tells the processes of tests to be measured too, which makes them half as slow again."""

UNMEASURED = (
    *("auth/test_confusion.py", "bench", "calls/authority", "chaos", "cli/test_dev_reload.py"),
    *("cli/test_dev_stopping.py", "conformance", "demo", "deploy", "docs", "fuzz", "http/test_draining_server.py"),
    *("integration", "loadtest", "observability/tracing", "process/test_embedding.py", "process/test_loading.py"),
    *("process/test_reload.py", "process/test_same_bytes.py", "proposals", "protocol/test_sse.py", "proxies"),
    *("repository", "security", "sizing/test_outlook.py", "sizing/test_simulation.py", "soak"),
    *("storage/test_deleting.py", "storage/test_lifecycle.py", "storage/test_pages.py"),
    *("storage/test_random_histories.py", "storage/test_totals.py", "under_load", "wires/draft", "wires/legacy"),
    *("wires/released", "wires/test_catalogue.py", "workers"),
)
"""Tests that are not measured in pytest's process: they run there what others run too, or little but clients.

Being measured makes a test up to three times as slow.
"""

OTHER_SERVERS = ("redis-6.2", "valkey")
"""Task stores on which tests of `storage` repeat what they do on Redis; they are not measured there."""

MEASURED_PROCESSES = (
    *("cli/test_dev.py", "observability/tracing", "process/test_reload.py", "wires/draft/test_first_form.py"),
    *("wires/draft/test_persistent.py", "workers/test_leaving.py"),
)
"""Tests that are measured with the processes that they start. Of all others, only what runs in pytest's process is.

A measured process costs half as much again, and a line needs no more than one test that is seen to run it. These are
enough for 94 % of all lines and branches.
"""

REAL_STARTS = (
    *(
        "bench",
        "chaos",
        "conformance",
        "deploy",
        "loadtest",
        "proxies",
        "security/test_secrets.py",
        "soak",
        "under_load",
    ),
)
"""Tests whose clusters are of processes that are started as users start them; in all others they are forked."""

_measuring: dict[str, str] = {}


def pytest_configure() -> None:
    """Refuse lists of paths that name one which is not there: it would do nothing, and nobody would see that."""
    for path in (*UNMEASURED, *MEASURED_PROCESSES, *REAL_STARTS):
        if not (TESTS / path).exists():
            raise pytest.UsageError(f"tests/conftest.py names tests/{path}, which does not exist")


def pytest_unconfigure() -> None:
    """End what has forked processes for tests."""
    forkserver.stop()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Measure how our modules are imported, and nothing else of what it takes to collect tests."""
    if is_measured() and session.config.getoption("dist", "no") == "no":  # here, and not by others
        for name in ("gateway", "gateway_workers"):
            for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
                if not module.name.endswith("__main__"):
                    importlib.import_module(module.name)
    with unmeasured():
        return (yield)


def pytest_collection_finish() -> None:
    """Spare the garbage collector the ten thousand collected tests.

    Going through them holds a test up for a second, which is as long as a connection to the store may take.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure what a test runs and starts, or not, from before its first fixture until after its last."""
    measured = not is_in(UNMEASURED, item.path)
    if is_in(MEASURED_PROCESSES, item.path):
        os.environ.update(_measuring)
    elif MEASURED in os.environ:
        _measuring[MEASURED] = os.environ.pop(MEASURED)
    if measured and not is_generated(item) and not is_on_another_server(item):
        return (yield)
    with unmeasured():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Let the processes of clusters be forked, where that is as good."""
    LoggedProcess.popen = subprocess.Popen if is_in(REAL_STARTS, item.path) else staticmethod(forkserver.start)
    return (yield)


@functools.cache
def is_in(places: tuple[str, ...], path: Path) -> bool:
    """Tell whether a test lies in one of these folders or modules of `tests`."""
    return any(path.is_relative_to(TESTS / place) for place in places)


def is_generated(item: pytest.Item) -> bool:
    """Tell whether hypothesis makes up the examples of a test; those that are written down run the same lines."""
    return getattr(getattr(item, "obj", None), "is_hypothesis_test", False)


def is_on_another_server(item: pytest.Item) -> bool:
    """Tell whether a test repeats on another task store what it does on Redis."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and callspec.params.get("server") in OTHER_SERVERS


def is_measured() -> bool:
    """Tell whether coverage looks on; a debugger is nobody's business."""
    return type(sys.gettrace()).__module__.partition(".")[0] == "coverage"


@contextlib.contextmanager
def unmeasured() -> Iterator[None]:
    """Take coverage's eyes off this process: its looking costs as much as what it looks at."""
    if not is_measured():
        yield
        return
    seeing, in_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        sys.settrace(seeing)
        threading.settrace(in_threads)
