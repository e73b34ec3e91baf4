"""Real servers that ask their user while a call runs: how they are started, and what they note."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx

from loadtest.cluster import REPOSITORY, free_port, wait_until
from tests.integration.frameworks.known import NODE, PEERS
from tests.upstreams.site import Site

HERE: Final = Path(__file__).parent
MODULE: Final = "tests.integration.clients.asking_python"
NODE_SERVER: Final = (str(NODE / "bin/node"), str(HERE / "asking_typescript.mjs"), str(NODE))
COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    "python1": (str(PEERS / "mcp1/bin/python"), "-m", MODULE),
    "python2": (sys.executable, "-m", MODULE),
    "fastmcp": (str(PEERS / "fastmcp/bin/python"), "-m", MODULE),
    "typescript1": (*NODE_SERVER, "1"),
    "typescript2": (*NODE_SERVER, "2"),
}
"""The command that starts each server, but for the port at its end."""
REPLICAS: Final = tuple(f"r{number}" for number in range(1, 1 + int(os.environ.get("ASKING_REPLICAS", "1"))))
"""The replicas that clients turn to."""


class AskingServers:
    """The servers, over HTTP each in a process of its own. All note in one folder what came of their questions."""

    def __init__(self, folder: Path, names: Sequence[str] = tuple(COMMANDS)) -> None:
        self.folder = folder
        self._ports = {name: free_port() for name in names}

    def start(self, stack: contextlib.ExitStack) -> None:
        for name, port in self._ports.items():
            output = stack.enter_context((self.folder / f"{name}.log").open("wb"))
            process = subprocess.Popen(
                [*COMMANDS[name], str(port)],
                cwd=REPOSITORY,
                env={**os.environ, "TEST_DIRECTORY": str(self.folder)},
                stdout=output,
                stderr=output,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        for name, port in self._ports.items():
            wait_until(functools.partial(_answers, port), f"the server {name}")

    def http(self, name: str, **options: Any) -> dict[str, Any]:
        """Return the entry of a server over HTTP. Some would not be called in sessions without the option."""
        return {"url": f"http://127.0.0.1:{self._ports[name]}/mcp", "gateway": {"era": "session", **options}}

    def stdio(self, name: str, **options: Any) -> dict[str, Any]:
        """Return the entry of a server on its standard streams."""
        command, *arguments = COMMANDS[name]
        return {
            "command": command,
            "args": [*arguments, "stdio"],
            "cwd": str(REPOSITORY),
            "env": {"TEST_DIRECTORY": str(self.folder), "PYTHONPATH": str(REPOSITORY)},
            "gateway": {"scope": "caller", **options},
        }

    def noted(self, who: str) -> list[dict[str, Any]]:
        """Return what came of the questions of one call, in order."""
        return noted(self.folder, who)


def noted(folder: Path, who: str) -> list[dict[str, Any]]:
    """Return what came of the questions of one call, in order, from what the servers have noted in a folder."""
    path = folder / "asked"
    lines = path.read_text().splitlines() if path.exists() else []
    notes = [note for note in map(json.loads, lines) if note["who"] == who]
    for note in notes:
        del note["who"]
    return notes


def deleting(who: str, *files: int) -> list[dict[str, Any]]:
    """Return what is noted when each question gets an answer that repeats its text."""
    questions = [f"Delete {number} files of {who}?" for number in files or (3, 300)]
    return [{"question": question, "action": "accept", "sure": question} for question in questions]


def has_tools(site: Site, caller: str, tools: Sequence[str]) -> bool:
    """Return whether a caller can call these tools. A call does not wait as long as programs may take to start."""

    async def names() -> set[str]:
        async with site.user(caller) as user:
            return set(await user.names())

    return asyncio.run(names()).issuperset(tools)


def _answers(port: int) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"http://127.0.0.1:{port}/mcp", timeout=20).status_code >= 400
    return False
