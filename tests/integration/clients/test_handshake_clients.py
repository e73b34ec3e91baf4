"""Third-party clients with sessions finish everything against two replicas that answer in turn."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from loadtest.cluster import REPOSITORY, wait_until
from tests.integration.fleet import Fleet, front_of
from tests.storage.servers import Server, own_redis

HERE = Path(__file__).parent
PEERS = REPOSITORY / ".venvs"
NODE = PEERS / "node"
CLIENT_SECONDS = 60

TOOLS = (
    "tests.conformance.fixtures",
    "tests.conformance.handshake_fixtures",
    "tests.conformance.task_fixtures",
    "tests.integration.clients.served",
)

EXPECTED = {
    "protocol": "2025-11-25",
    "text": "This is a simple text response for testing.",
    "structured": {"total": 42, "terms": 3},
    "unknown_prompt": -32602,
    "unknown_resource": -32002,
    "slow": "Tool with progress executed successfully",
    "progress": [[0, 100], [50, 100], [100, 100]],
    "logged": "Tool with logging executed successfully",
    "logs": ["Tool execution started", "Tool processing data", "Tool execution completed"],
    "asked": "Hello Ada, you like green",
    "asked_at_once": "Hello, Ada, of 1 roots",
    "after_restart": "This is a simple text response for testing.",
    "asked_after_restart": "Hello, Ada!",
    "cancelled": True,
}
QUESTIONS = ["Step 1: What is your name?", "Step 2: What is your favorite color?", "What is your name?"]
TASK = {"task": ["working", "input_required", "completed", "notes.txt deleted"]}
TASK_QUESTIONS = ["Delete notes.txt?"]
LAST_QUESTIONS = ["What is your name?"]

STATUSES = {
    "GET": 405,
    "DELETE": 405,
    "answer": 202,
    "notifications/initialized": 202,
    "notifications/cancelled": 202,
}
"""The messages to a client that do not answer its requests."""


@pytest.fixture(scope="module")
def redis() -> Iterator[Server]:
    with own_redis() as server:
        yield server


@pytest.fixture(scope="module")
def fleet(redis: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    directory = tmp_path_factory.mktemp("fleet")
    environ = {
        "GATEWAY_TOOLS": ",".join(TOOLS),
        "GATEWAY_CONNECTION_CLOSE": "on",
        "GATEWAY_REDIS_URL": redis.url,
        "TEST_DIRECTORY": str(directory),
    }
    with Fleet(directory, environ) as fleet:
        fleet.add_worker("w1")
        yield fleet


@pytest.fixture
async def url(fleet: Fleet) -> AsyncIterator[str]:
    async with front_of(fleet) as url:
        yield url


async def drive(restart: Callable[[], None], *command: Path | str) -> dict[str, Any]:
    """Run a driver, restart the replicas when it asks, and return what it saw."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=REPOSITORY,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(CLIENT_SECONDS):
            if await process.stdout.readline() == b"restart\n":
                await asyncio.to_thread(restart)
            output, errors = await process.communicate(b"\n")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors.decode(errors="replace")
    saw: dict[str, Any] = json.loads(output)
    return saw


def answers_of(requests: list[tuple[str, int, str]]) -> list[tuple[str, list[str]]]:
    """Return the replicas of requests that asked the user, and the replicas that accepted the answers."""
    answers: list[tuple[str, list[str]]] = []
    for (before, _, asker), (what, _, taker) in pairwise(requests):
        if what == "answer" and before != "answer":
            answers.append((asker, []))
        if what == "answer":
            answers[-1][1].append(taker)
    return answers


DRIVER = "tests.integration.clients.handshake_python"


@pytest.mark.parametrize(
    ("command", "has_tasks"),
    [
        pytest.param((PEERS / "mcp1/bin/python", "-m", f"{DRIVER}1"), True, id="mcp-1"),
        pytest.param((sys.executable, "-m", f"{DRIVER}2"), False, id="mcp-2"),
        pytest.param((NODE / "bin/node", HERE / "handshake_typescript.mjs", NODE), True, id="typescript-1"),
    ],
)
async def test_a_client_calls_is_asked_and_cancels_across_replicas_in_a_session_that_outlives_them(
    command: tuple[Path | str, ...], has_tasks: bool, fleet: Fleet, url: str
) -> None:
    cancelled = fleet.directory / "cancelled"
    cancelled.unlink(missing_ok=True)
    saw = await drive(fleet.restart, *command, url, fleet.replicas[0].url)
    expected = EXPECTED | (TASK if has_tasks else {})
    assert {name: saw.get(name) for name in expected} == expected
    assert saw["questions"] == QUESTIONS + (TASK_QUESTIONS if has_tasks else []) + LAST_QUESTIONS
    requests = [tuple(request) for request in saw["requests"]]
    for what, status, _replica in requests:
        assert status == STATUSES.get(what, 200), what
    assert {"GET", "DELETE", "answer", "notifications/initialized"} <= {what for what, *_ in requests}
    answers = answers_of(requests)
    assert [len(takers) for _asker, takers in answers] == ([2, 3, 1, 1] if has_tasks else [2, 3, 1])
    for asker, takers in answers:
        assert set(takers) - {asker}, takers
    wait_until(cancelled.exists, "the tool is cancelled")
