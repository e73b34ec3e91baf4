"""The recipes of `docs/start/connect.md`, and servers to try them with.

A recipe runs unchanged, except for the address of the server and the packages that `npx` would download.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from loadtest.cluster import clean_environment, wait_until
from tests.docs.markdown import Block, blocks_of

PAGE: Final = "docs/start/connect.md"
BLOCKS: Final = tuple(blocks_of(PAGE))
ADDRESS: Final = "http://127.0.0.1:8080"
LEFT_OUT: Final = "…"
SECONDS: Final = 90
GATEWAY: Final = f"""\
#!/bin/sh
command=$1
shift
[ "$command" != dev ] || set -- --port 0 --workers 0 "$@"
exec {shlex.quote(sys.executable)} -m gateway "$command" "$@"
"""
"""Replaces the command of the package: any free port, and no worker, which no recipe needs."""


@dataclass(frozen=True)
class Server:
    """A running `gateway dev`. Its token is "" if it serves everyone."""

    origin: str
    token: str
    directory: Path

    def filled(self, text: str) -> str:
        """Return a recipe for this server."""
        return text.replace(ADDRESS, self.origin)

    def environ(self, **more: str) -> dict[str, str]:
        """Return the environment of somebody who tries a recipe."""
        return clean_environment({"MCP_TOKEN": self.token, "HOME": str(self.directory), **more})


def of_section(heading: str, *languages: str) -> list[Block]:
    """Return the blocks of a section, those of the named languages only if any are named."""
    found = [block for block in BLOCKS if block.section == heading and (not languages or block.language in languages)]
    assert found, f"{PAGE} has nothing of {languages} under {heading!r}"
    return found


def shown_after(block: Block) -> str | None:
    """Return the output that the page shows after a block."""
    following = BLOCKS[BLOCKS.index(block) + 1 :]
    if following and following[0].section == block.section and following[0].language in ("json", "text"):
        return following[0].text
    return None


def assert_shown(shown: str, printed: str) -> None:
    """Compare the output that a page shows with the real one; `…` stands for anything."""
    if shown.startswith("{"):
        match(json.loads(shown), json.loads(printed))
    else:
        pattern = ".*".join(re.escape(part) for part in shown.rstrip("\n").split(LEFT_OUT))
        assert re.fullmatch(pattern, printed.rstrip("\n"), re.DOTALL), printed


def match(shown: Any, real: Any) -> None:
    """Compare JSON values. The key `…` of an object, and the last element `…` of an array, stand for further ones."""
    if isinstance(shown, dict):
        assert isinstance(real, dict), real
        named = shown.keys() - {LEFT_OUT}
        assert named <= real.keys() if LEFT_OUT in shown else named == real.keys(), real
        for key in named:
            match(shown[key], real[key])
    elif isinstance(shown, list):
        assert isinstance(real, list), real
        named_items = shown[:-1] if shown and shown[-1] == LEFT_OUT else shown
        assert len(named_items) <= len(real) if named_items is not shown else len(shown) == len(real), real
        for one, other in zip(named_items, real, strict=False):
            match(one, other)
    elif isinstance(shown, str):
        assert isinstance(real, str), real
        assert re.fullmatch(".*".join(map(re.escape, shown.split(LEFT_OUT))), real, re.DOTALL), real
    else:
        assert shown == real


def run(command: Sequence[str], server: Server, environ: Mapping[str, str] | None = None) -> str:
    """Run a command where its reader would, and return what it prints."""
    done = subprocess.run(
        command,
        cwd=server.directory,
        env=server.environ() if environ is None else environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def serving(directory: Path, script: str) -> Iterator[Server]:
    """Run the commands of a page, of which the last one serves until the context ends."""
    program = directory / ".venv/bin/gateway"
    program.parent.mkdir(parents=True)
    program.write_text(GATEWAY)
    program.chmod(0o755)
    *before, last = script.splitlines()
    log = directory / "dev.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", "-euc", "\n".join([*before, f"exec env {last}"])],
            cwd=directory,
            env=clean_environment({"GATEWAY_METRICS_PORT": "off", "HOME": str(directory)}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        wait_until(lambda: process.poll() is not None or "ready on " in log.read_text(), "gateway dev to serve")
        found = re.search(r"ready on (http://[\d.:]+)/mcp", log.read_text())
        assert found, log.read_text()
        yield Server(found[1], "", directory)
    finally:
        process.terminate()
        process.wait(SECONDS)


@contextlib.contextmanager
def open_server(directory: Path) -> Iterator[Server]:
    """Serve everybody."""
    with serving(directory, ".venv/bin/gateway dev") as server:
        yield server


@contextlib.contextmanager
def guarded_server(directory: Path) -> Iterator[Server]:
    """Serve callers with a token, as on the page."""
    serve, take, _ = of_section("With a token", "bash")
    with serving(directory, serve.text) as server:
        token = run(["bash", "-euc", f'{take.text}printf %s "$MCP_TOKEN"'], server)
        yield Server(server.origin, token, directory)


def path_with(*folders: Path) -> str:
    """Return a `PATH` that begins with these."""
    return os.pathsep.join([*map(str, folders), os.environ["PATH"]])
