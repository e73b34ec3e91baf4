"""The pytest plugin: a fixture that costs nothing until a test uses it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway import tool
from gateway.testing import RunError
from gateway.testing.fixture import ReportingCaller

pytestmark = pytest.mark.slow

TOP = Path(__file__).parents[2]

TESTS = '''\
from gateway import Context, tool
from gateway.testing import AsyncCall, Call


def test_without_the_fixture() -> None:
    pass


@tool
async def greet(ctx: Context) -> str:
    """Greet."""
    return str(await ctx.step("greet", lambda: "hi"))


def test_plain(call: Call) -> None:
    assert call(greet).value == "hi"


async def test_async(call: AsyncCall) -> None:
    assert (await call(greet)).steps == {"greet": 1}


def test_shows_its_calls(call: Call) -> None:
    assert call(greet).value == "ho"
'''


NEEDED_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_asyncio.plugin"}
"""Variables that load no plugin besides that for async tests: loading all takes longer than the tests."""


def run_pytest(folder: Path, *arguments: str, **variables: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{TOP}", **variables}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "gateway_pytest", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_the_fixture_calls_tools_in_tests_with_and_without_async(tmp_path: Path) -> None:
    (tmp_path / "test_greet.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )
    told = run_pytest(tmp_path, **NEEDED_PLUGINS)
    assert "1 failed, 3 passed" in told
    shown = told.partition("Captured tool calls call")[2]
    assert "the tool 'greet': <Run: 1 leg; ran greet; returned 'hi'>" in shown


FAILING = '''\
import pytest

from gateway import Context, tool
from gateway.testing import record, run, run_async


def helper() -> None:
    raise LookupError("mine")


@tool
async def broken(ctx: Context) -> None:
    """Raise."""
    await ctx.step("s", helper)


def test_run():
    run(broken)


def test_call(call):
    call(broken)


def test_record():
    record(broken)


async def test_run_async():
    await run_async(broken)


async def test_await_call(call):
    await call(broken)


def test_option(call):
    call(broken, limit_seconds="1")


def test_answer():
    @tool
    async def silent() -> None:
        """Ask nothing."""

    run(silent, answers={"age": 1})


async def test_await_option(call):
    await call(broken, limit_seconds="1")
'''


def test_a_failed_test_shows_only_its_own_lines_and_those_of_the_tool(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text(FAILING)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )
    told = run_pytest(tmp_path, "--tb=short", **NEEDED_PLUGINS)
    places = re.findall(r"^(\S+\.py):\d+: in (\w+)$", told, re.MULTILINE)
    tests = re.findall(r"^(?:async )?def (test_\w+)", FAILING, re.MULTILINE)
    raising = tests[:5]
    assert places == [
        ("test_broken.py", name)
        for test in tests
        for name in ([test, "broken", "helper"] if test in raising else [test])
    ]
    line = next(number for number, text in enumerate(FAILING.splitlines(), 1) if "raise LookupError" in text)
    lines = run_pytest(tmp_path, "--tb=line", **NEEDED_PLUGINS)
    assert len(re.findall(rf"test_broken\.py:{line}: LookupError: mine$", lines, re.MULTILINE)) == len(raising)
    assert len(re.findall(r"test_broken\.py:\d+: gateway\.testing\.mistakes\.RunError: ", lines)) == 3


def test_pytest_starts_without_the_gateway_even_beside_a_module_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "gateway.py").write_text("raise RuntimeError('imported')\n")
    (tmp_path / "test_nothing.py").write_text(
        "import sys\n\n\ndef test_nothing():\n    assert not {'gateway', 'pydantic'} & set(sys.modules)\n"
    )
    assert "1 passed" in run_pytest(tmp_path)


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def caller(lines: list[str]) -> Callable[..., object]:
    return ReportingCaller(lines.append)


def test_a_call_that_raises_is_reported_too(caller: ReportingCaller, lines: list[str]) -> None:
    @tool
    async def broken() -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError):
        caller(broken)
    with pytest.raises(RunError, match=r"call\(\) has no option 'answer'"):
        caller(broken, answer={})  # type: ignore[call-arg]
    assert lines[0] == "the tool 'broken' raised LookupError: mine"


async def test_in_a_running_loop_it_is_awaited(caller: ReportingCaller, lines: list[str]) -> None:
    @tool
    async def works() -> int:
        return 1

    assert (await caller(works)).value == 1
    assert lines == ["the tool 'works': <Run: 1 leg; returned 1>"]
