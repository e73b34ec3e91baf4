"""The files and commands of `docs/run/upstreams.md` do what the page says, and its options and defaults are right."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.upstreams.config.definition import Definition
from gateway.upstreams.config.reading import OPTIONS, UpstreamReader
from loadtest.cluster import clean_environment
from tests.docs.markdown import TOP, Block, blocks_of, rows_of, section_of
from tests.upstreams.servers.recording import Recording
from tests.upstreams.site import User

pytestmark = pytest.mark.slow

PAGE = "docs/run/upstreams.md"
FILES = [block for block in blocks_of(PAGE) if block.language == "json"]
START = [block.text for block in blocks_of(PAGE) if block.section == "Start"]
SECRETS = {"BUGS_TOKEN": "s3cret"}
EXAMPLE_URL = "http://127.0.0.1:9000/mcp"
SECONDS = 60


def test_the_blocks_of_the_page_are_found() -> None:
    assert len(FILES) == 5
    assert len(START) == 3


@pytest.mark.parametrize("block", FILES, ids=lambda block: block.place)
def test_each_file_of_the_page_can_be_read(block: Block, tmp_path: Path) -> None:
    secret = tmp_path / "bugs"
    secret.write_text("s3cret\n")
    text = block.text.replace("/run/secrets/bugs", str(secret))
    if not text.startswith("{"):  # an option to add to an entry
        text = f'{{"mcpServers": {{"bugs": {{"url": "{EXAMPLE_URL}", "gateway": {{{text}}}}}}}}}'
    found = UpstreamReader(tmp_path / "upstreams.json", SECRETS).parse(text.encode())
    assert [definition.name for definition in found.definitions] in (["bugs"], ["time"])
    assert found.notes == ()


def test_the_table_of_what_to_set_names_options_that_exist() -> None:
    rows = rows_of(section_of(PAGE, "Options"), 2)
    values = {"refuse", "false", "required", "caller", "gateway upstreams", '{"after_seconds": 5}', "token_exchange"}
    named = {name.split(".")[0] for _, options in rows for name in re.findall(r"`([^`]+)`", options)} - values
    assert len(rows) == 9
    assert named <= set(OPTIONS)
    assert named


def test_the_table_has_every_option_with_its_default() -> None:
    (table,) = [block for block in section_of(PAGE, "Options").split("\n\n") if "| `prefix` |" in block]
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| (.*?) \| ", table, re.MULTILINE)
    names = [name for cell, _ in rows for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(names) == sorted(OPTIONS)
    definition = Definition(name="bugs", prefix="bugs", transport="http")
    numbers = {cell.strip("`"): default for cell, default in rows if default.isdigit()}
    assert numbers == {name: f"{getattr(definition, name):g}" for name in numbers} | {
        "max_result_bytes": str(definition.max_result_bytes)
    }
    assert len(numbers) == len(
        ("held_seconds", "timeout_seconds", "max_in_flight", "max_connections", "max_result_bytes", "idle_seconds")
    )


@pytest.fixture
def upstream() -> Iterator[Recording]:
    with Recording(tools=("echo",), prompts={}, resources={}, templates={}) as upstream:
        yield upstream


@pytest.fixture
def desk(tmp_path: Path, upstream: Recording) -> Path:
    """A folder with the file of the page, for the upstream of the test."""
    (tmp_path / "upstreams.json").write_text(START[0].replace(EXAMPLE_URL, upstream.url))
    return tmp_path


def environment() -> dict[str, str]:
    return clean_environment({"PYTHONPATH": str(TOP)})


def test_the_commands_print_what_is_shown(desk: Path, upstream: Recording) -> None:
    shown = START[2].replace(EXAMPLE_URL, upstream.url).splitlines()
    commands = "\n".join(line.removeprefix("$ ") for line in shown if line.startswith("$ "))
    told = subprocess.run(
        ["bash", "-euc", f'gateway() {{ "{sys.executable}" -m gateway "$@"; }}\n{commands}'],
        cwd=desk,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines() == [line for line in shown if not line.startswith("$ ")]


def test_the_gateway_serves_the_tools_of_the_file(desk: Path) -> None:
    words = START[1].removeprefix("$ gateway ").split()
    with subprocess.Popen(
        [sys.executable, "-m", "gateway", *words, "--port", "0", "--replicas", "1", "--workers", "0"],
        cwd=desk,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            said: list[str] = []
            ready = None
            for line in process.stdout:
                said.append(line)
                if ready := re.search(r"ready on (http\S+)", line):
                    break
            assert ready is not None, "".join(said)
            names = asyncio.run(tools_at(ready[1]))
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()
    assert names == ["bugs__echo"]


async def tools_at(url: str) -> list[str]:
    async with User([url], None) as user:
        tools: list[dict[str, Any]] = (await user.send("tools/list")).result["tools"]
    return [tool["name"] for tool in tools]
