"""The files and commands of `docs/build/embedding.md` work as described."""

from __future__ import annotations

import contextlib
import inspect
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import pytest

import gateway
from loadtest.cluster import clean_environment, free_port, wait_until
from tests.docs.markdown import TOP, blocks_of, text_of
from tests.integration.raw import post, request
from tests.integration.streams import Stream, asking

pytestmark = pytest.mark.slow

PAGE: Final = "docs/build/embedding.md"
PYTHON: Final = {block.section: block.text for block in blocks_of(PAGE) if block.language == "python"}
(CONSOLE,) = [block.text for block in blocks_of(PAGE) if block.language == "console"]
(BUGS,) = [block.text for block in blocks_of("README.md") if "def resolve_bug(" in block.text]
PROGRAMS: Final = "\n".join(
    f'{name}() {{ {shlex.quote(sys.executable)} -m {name} "$@"; }}' for name in ("gateway", "uvicorn")
)
SECONDS: Final = 30.0


class Running(NamedTuple):
    """An application that is served, with the URL of its MCP endpoint."""

    origin: str
    url: str
    process: subprocess.Popen[bytes]


def save(directory: Path, application: str) -> Mapping[str, str]:
    """Save the files of the page, and return the environment for its commands."""
    (directory / "bugs.py").write_text(BUGS)
    (directory / "app.py").write_text(application)
    return clean_environment({"PYTHONPATH": str(TOP)})


@contextlib.contextmanager
def serving(directory: Path, application: str) -> Iterator[Running]:
    """Run the commands of the page, on a free port."""
    port = free_port()
    setting, serve = (line.removeprefix("$ ") for line in CONSOLE.splitlines())
    assert "--port 8000" in serve
    serve = serve.replace("--port 8000", f"--port {port}").replace(
        "uvicorn", f"exec {shlex.quote(sys.executable)} -m uvicorn", 1
    )
    environ = save(directory, application)
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", "-euc", f"{PROGRAMS}\n{setting}\n{serve}"],
            cwd=directory,
            env=environ,
            stdout=output,
            stderr=output,
        )
    try:
        wait_until(lambda: "Uvicorn running on" in log.read_text() or process.poll() is not None, "the application")
        assert process.poll() is None, log.read_text()
        yield Running(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port}/tools/mcp", process)
    finally:
        process.kill()
        process.wait()


def test_what_is_mounted_is_served_beside_the_page_of_the_application(tmp_path: Path) -> None:
    with serving(tmp_path, PYTHON["Mount it"]) as running:
        (tool,) = post(running, request("tools/list")).result["tools"]
        assert tool["name"] == "resolve_bug"
        assert httpx.get(running.origin, trust_env=False).json() == "my own page"


def test_the_hook_ends_a_stream_that_is_held(tmp_path: Path) -> None:
    listen = asking("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    with serving(tmp_path, PYTHON["Stop it"]) as running, Stream(running, listen) as stream:
        stream.next()
        running.process.send_signal(signal.SIGTERM)
        (last,) = stream.rest()
        assert last["result"]["resultType"] == "complete"
        assert 128 - running.process.wait(SECONDS) == 143
        assert "143" in text_of(PAGE)


@pytest.mark.parametrize("section", ["Mount it", "Stop it"])
def test_the_test_passes(tmp_path: Path, section: str) -> None:
    environ = save(tmp_path, PYTHON[section])
    (tmp_path / "test.py").write_text(PYTHON["Test it"])
    setting = CONSOLE.splitlines()[0].removeprefix("$ ")
    script = f"{PROGRAMS}\n{setting}\n{shlex.quote(sys.executable)} test.py"
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_table_names_every_argument_and_its_default() -> None:
    parameters = inspect.signature(gateway.mount).parameters.values()
    named = [
        parameter.name if parameter.default is parameter.empty else f"{parameter.name}={parameter.default}"
        for parameter in parameters
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    assert re.findall(r"^\| `([a-z]+(?:=\w+)?)` \|", text_of(PAGE), re.MULTILINE) == named


@pytest.fixture(scope="module")
def options_of_uvicorn() -> str:
    command = [sys.executable, "-m", "uvicorn", "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("option", sorted(set(re.findall(r"`(?:uvicorn )?(--[a-z0-9-]+)", text_of(PAGE)))))
def test_an_option_of_uvicorn_exists(options_of_uvicorn: str, option: str) -> None:
    assert re.search(rf"{option}\b", options_of_uvicorn)
