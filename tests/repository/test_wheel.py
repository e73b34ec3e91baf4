"""The installed package works in any project, whatever the names of the project's own modules."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkout import copy_sources

TOOL = "from gateway import tool\n\n\n@tool\ndef greet(name: str) -> str:\n    return name\n"
READY_SECONDS = 120
STOP_SECONDS = 60

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # the first test builds the wheel


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment with the wheel and this one's libraries, but nothing of the checkout."""
    source = tmp_path_factory.mktemp("source")
    copy_sources(source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--wheel-dir", str(source / "wheels"), str(source)], check=True)
    (wheel,) = (source / "wheels").glob("*.whl")
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True)
    (packages,) = environment.glob("lib/*/site-packages")
    (packages / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return python.parent


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with its own modules, in a place where a careless import would find them instead of ours."""
    for name in ("gateway.py", "workers/__init__.py", "workers/gateway_workers.py", "redis.py", "tests/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"raise RuntimeError('{name} of the project was imported')\n")
    (tmp_path / "greetings.py").write_text(TOOL)
    return tmp_path


def environ(**settings: str) -> dict[str, str]:
    """Return the environment without settings, and without paths to the checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GATEWAY_", "PYTHON", "COV"))}
    return {**kept, **settings}


def run(commands: Path, project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(commands / "gateway"), *arguments]
    return subprocess.run(command, cwd=project, env=environ(), capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def dev(commands: Path, project: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [str(commands / "gateway"), "dev", "--port", "0", "--replicas", "1"],
        cwd=project,
        env=environ(GATEWAY_TOOLS="greetings", GATEWAY_METRICS_PORT="off"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    killer = threading.Timer(READY_SECONDS, process.kill)
    killer.start()
    yield process
    killer.cancel()
    process.kill()
    process.communicate()


def test_a_project_with_modules_of_our_names_runs_replicas_and_workers(dev: subprocess.Popen[str]) -> None:
    assert dev.stdout is not None
    said = ""
    for line in dev.stdout:
        said += line
        if re.search(r"ready on http", line):
            break
    assert re.search(r"r1 is ready: pid \d+", said), said
    assert re.search(r"w1 is (running|ready): pid \d+", said), said
    assert "of the project was imported" not in said
    dev.send_signal(signal.SIGTERM)
    assert dev.wait(STOP_SECONDS) == 0


def test_it_lists_its_tools_and_the_demo_tools(commands: Path, project: Path) -> None:
    listed = run(commands, project, "tools", "--tools", "greetings", "gateway.demo")
    assert listed.returncode == 0, listed.stderr
    assert "greet" in listed.stdout
    assert "get_weather" in listed.stdout


def test_a_worker_starts_by_its_command(commands: Path, project: Path) -> None:
    told = run(commands, project, "worker")
    assert told.returncode == 2
    assert "of the project was imported" not in told.stderr
    assert "GATEWAY_" in told.stderr


@pytest.mark.parametrize("name", ["gateway", "redis"])
def test_a_tool_module_with_the_name_of_something_installed_costs_one_line_that_has_both_files(
    commands: Path, project: Path, name: str
) -> None:
    told = run(commands, project, "tools", "--tools", name)
    assert told.returncode == 2
    (line,) = told.stderr.splitlines()
    assert str(project / f"{name}.py") in line
    assert f"{name}/__init__.py" in line
    assert "rename the first one" in line


def test_the_wheel_takes_no_name_but_ours(commands: Path) -> None:
    (packages,) = commands.parent.glob("lib/*/site-packages")
    (info,) = packages.glob("sealed_gateway-*.dist-info")
    tops = {line.split("/")[0].split(",")[0] for line in (info / "RECORD").read_text().splitlines()}
    assert tops - {info.name, ".."} == {"gateway", "gateway_pytest", "gateway_workers"}


def test_the_wheel_declares_its_pytest_plugin(commands: Path) -> None:
    (points,) = commands.parent.glob("lib/*/site-packages/sealed_gateway-*.dist-info/entry_points.txt")
    assert "[pytest11]\ngateway_pytest = gateway_pytest\n" in points.read_text()


@pytest.mark.parametrize(
    ("option", "source"),
    [
        pytest.param(
            "-P",
            f"{TOOL}\n\ndef test_call(call):\n    assert call(greet, {{'name': 'Ada'}}).value == 'Ada'\n",
            id="uses",
        ),
        pytest.param("-B", "def test_nothing():\n    pass\n", id="does not use it"),
    ],
)
def test_pytest_finds_the_plugin_and_starts_in_a_project_with_modules_of_our_names(
    commands: Path, project: Path, option: str, source: str
) -> None:
    (project / "test_it.py").write_text(source)
    python = [str(commands / "python"), option, "-m", "pytest", "--import-mode=importlib", "test_it.py"]
    told = subprocess.run(python, cwd=project, env=environ(), capture_output=True, text=True, check=False).stdout
    assert "1 passed" in told
