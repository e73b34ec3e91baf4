"""`gateway dev --tools FILE --reload`: an author saves a file, and the next call and the next task use it."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from loadtest.cluster import wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}
TOOLS = """
from gateway import tool
from words import WORD

@tool
async def say() -> str:
    "Say it."
    return "{said} " + WORD

@tool(task="required", start="task")
async def write() -> str:
    "Write it."
    return "{said} " + WORD
"""


class Author:
    """An author who edits `tools/bugs.py` and `tools/words.py`, and calls them on a running `gateway dev`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "output"
        (folder / "tools").mkdir()
        self._ids = itertools.count(1)
        self.process: subprocess.Popen[bytes] | None = None

    def save(self, name: str, text: str) -> None:
        """Save as editors do: all at once."""
        draft = self.folder / "draft"
        draft.write_text(text)
        draft.rename(self.folder / "tools" / name)

    def start(self) -> None:
        """Start `gateway dev` outside the folder of the tools, and wait until it serves."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
        options = ["--port", "0", "--tools", "tools/bugs.py", "--reload"]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gateway", "dev", *options],
                env={**inherited, "PYTHONPATH": str(ROOT), "GATEWAY_METRICS_PORT": "0"},
                cwd=self.folder,
                stdout=output,
                stderr=output,
            )
        wait_until(lambda: "ready on" in self.said(), "it to be ready")
        self.wait_until_all_say("watching tool modules", 3)
        self.url = re.findall(r"ready on (\S+)", self.said())[0]

    def said(self) -> str:
        return self.output.read_text()

    def wait_until_all_say(self, words: str, count: int) -> None:
        """Wait until two replicas and a worker have logged a message, `count` times in total."""
        wait_until(lambda: self.said().count(words) == count, f"all to say {words!r}")

    def request(self, method: str, about: str, **params: Any) -> httpx.Response:
        headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": VERSION}
        return httpx.post(
            self.url,
            json={"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**params, "_meta": META}},
            headers={**headers, "mcp-method": method, "mcp-name": about},
            timeout=30,
            verify=False,
        )

    def call(self) -> dict[str, str]:
        """Return what each replica says now."""
        answers = [self.request("tools/call", "say", name="say", arguments={}) for _ in range(2)]
        return {answer.headers["x-gateway-replica"]: text_of(answer.json()["result"]) for answer in answers}

    def task(self) -> str:
        """Return what a task says."""
        created = self.request("tools/call", "write", name="write", arguments={}).json()["result"]["taskId"]
        ended: dict[str, Any] = {}

        def is_over() -> bool:
            ended.update(self.request("tasks/get", created, taskId=created).json()["result"])
            return bool(ended["status"] == "completed")

        wait_until(is_over, "the task")
        return text_of(ended["result"])


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


@pytest.fixture
def author(tmp_path: Path) -> Iterator[Author]:
    author = Author(tmp_path)
    author.save("words.py", "WORD = 'world'\n")
    author.save("bugs.py", TOOLS.format(said="hello"))
    author.start()
    yield author
    if author.process is not None:
        author.process.terminate()
        author.process.wait()


def test_the_next_call_on_any_replica_and_the_next_task_run_what_was_saved(author: Author) -> None:
    assert "gateway.demo" not in author.said()
    assert author.call() == {"r1": "hello world", "r2": "hello world"}
    assert author.task() == "hello world"
    edits = [
        ("bugs.py", TOOLS.format(said="salve"), "salve world"),
        ("words.py", "WORD = 'mundus'\n", "salve mundus"),
    ]
    for count, (name, text, expected) in enumerate(edits, start=1):
        author.save(name, text)
        author.wait_until_all_say(" reloaded ", 3 * count)
        assert author.call() == {"r1": expected, "r2": expected}
        assert author.task() == expected
    refused = "reload failed; the previous tools stay in use"
    author.save("bugs.py", "import new\n" + TOOLS.format(said="again"))
    author.wait_until_all_say(refused, 3)
    assert author.call() == {"r1": "salve mundus", "r2": "salve mundus"}
    assert author.task() == "salve mundus"
    author.save("new.py", "")
    author.wait_until_all_say(" reloaded ", 9)
    assert author.task() == "again mundus"
