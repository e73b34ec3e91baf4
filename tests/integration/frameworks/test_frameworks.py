"""Agent frameworks, and the MCP Inspector's page in a browser, finish everything against two replicas in turn."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.auth.tokens import mint
from loadtest.cluster import REPOSITORY
from loadtest.cluster.common import HOST, LoggedProcess, find_program
from tests.integration.fleet import Fleet, front_of
from tests.integration.frameworks.known import FRAMEWORKS, INSPECTOR, NODE, SESSION, STATELESS

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

CLIENT_SECONDS = 240
AUDIENCE, SECRET = "tests", "a secret of more than thirty-two bytes"
INSPECTOR_TOKEN = "the page's own"

RESOLVED = {"workItemId": 7, "fields": {"System.State": "Resolved"}}
DUPLICATE, ORIGINAL = {"resolution": "Duplicate"}, {"duplicateOfId": 42}
CALLS: Mapping[str, tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]] = {
    "plain": ({"workItemId": 7, "fields": {"System.Title": "Broken"}}, []),
    "asked": (RESOLVED, [DUPLICATE, ORIGINAL]),
    "declined": (RESOLVED, [DUPLICATE]),
    "mistaken": ({"workItemId": 7, "fields": {"System.State": 5}}, []),
}
"""Purpose of a call → its arguments, and the user's answers. Further questions are declined."""

SAID = {
    "plain": "Work item #7 updated: System.Title.",
    "asked": "Bug #7 resolved as Duplicate of Bug #42. State set to Resolved and duplicate link created.",
    "declined": "The user declined to answer 'duplicate_of'.",
    "mistaken": "Invalid arguments for update_work_item: fields.System.State: Input should be a valid string",
}
QUESTIONS = [
    "Resolving Bug #7 requires a resolution. How was this bug resolved?",
    "Since this is a duplicate, which work item is the original?",
] * 2
INCAPABLE = "This needs a client that supports elicitation.form, which this one does not declare."


class Inspector(LoggedProcess):
    """The Inspector, in which one server has an entry for each protocol version."""

    def __init__(self, directory: Path, servers: Mapping[str, Mapping[str, Any]]) -> None:
        self._config = directory / "config.json"
        self._config.write_text(json.dumps({"mcpServers": servers}))
        environ = {
            "HOME": str(directory),
            "MCP_AUTO_OPEN_ENABLED": "false",
            "MCP_INSPECTOR_API_TOKEN": INSPECTOR_TOKEN,
            "MCP_SANDBOX_PORT": "0",
            "MCP_APP_ORIGIN_PORT": "0",
        }
        super().__init__("inspector", environ, directory / "inspector.log")
        self.port = self._keep_port()
        self.environ["CLIENT_PORT"] = str(self.port)

    def _command(self) -> Sequence[str]:
        launcher = NODE / "node_modules" / INSPECTOR.package / "clients" / "launcher" / "build" / "index.js"
        return [str(NODE / "bin" / "node"), str(launcher), "--web", "--config", str(self._config)]

    def wait_ready(self) -> None:
        """Wait until its page is served."""
        self._wait_started(lambda: "is up and running" in self.log_text())

    @property
    def page(self) -> str:
        return f"http://{HOST}:{self.port}/?MCP_INSPECTOR_API_TOKEN={INSPECTOR_TOKEN}"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    environ = {
        "GATEWAY_TOOLS": "gateway.demo.work_items",
        "GATEWAY_CONNECTION_CLOSE": "on",
        "GATEWAY_AUTH": "jwt",
        "GATEWAY_JWT_SECRET": SECRET,
        "GATEWAY_AUDIENCE": AUDIENCE,
    }
    with Fleet(tmp_path_factory.mktemp("fleet"), environ) as fleet:
        yield fleet


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(fleet: Fleet) -> AsyncIterator[str]:
    async with front_of(fleet) as url:
        yield url


@pytest.fixture(scope="module")
def inspector(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inspector]:
    def server(protocol: str, era: str) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {token_of(protocol)}"}
        return {"type": "streamable-http", "url": url, "headers": headers, "protocolEra": era}

    servers = {SESSION: server(SESSION, "legacy"), STATELESS: server(STATELESS, "modern")}
    process = Inspector(tmp_path_factory.mktemp("inspector"), servers)
    try:
        process.start()
        process.wait_ready()
        yield process
    finally:
        process.end()


def token_of(name: str) -> str:
    return mint(SECRET, name, AUDIENCE)


async def drive(*command: Path | str, home: Path, **script: Any) -> dict[str, Any]:
    """Run a driver in a separate process and return what it saw."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "GOOGLE_API_USE_CLIENT_CERTIFICATE": "false"}
    with (home / "driver.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command,
            json.dumps({"calls": CALLS, **script}),
            str(NODE),
            cwd=REPOSITORY,
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), CLIENT_SECONDS)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0, (home / "driver.log").read_text(errors="replace")
    saw: dict[str, Any] = json.loads(output)
    return saw


def passed_on(fleet: Fleet) -> float:
    """Return how many answers replicas have forwarded to the one where the call waits."""
    return sum(replica.metric("gateway_hop_messages_sent_total", result="answered") for replica in fleet.replicas)


def replicas_of(fleet: Fleet, subject: str) -> list[list[str]]:
    """Return the replicas that served the legs of each call of a caller."""
    legs = [leg for replica in fleet.replicas for leg in replica.logged(audit="leg", subject=subject)]
    calls: dict[str, list[str]] = {}
    for leg in sorted(legs, key=lambda leg: int(leg["leg"])):
        calls.setdefault(leg["flow"], []).append(leg["replica"])
    return list(calls.values())


def assert_alternated(fleet: Fleet, subject: str, protocol: str, passed_on_before: float) -> None:
    """Fail unless both replicas served a part of a call of this caller."""
    calls = replicas_of(fleet, subject)
    if protocol == SESSION:
        assert passed_on(fleet) > passed_on_before, calls
    else:
        assert sorted(len(replicas) for replicas in calls)[-2:] == [3, 3], calls
        assert any(one != other for replicas in calls for one, other in pairwise(replicas)), calls


@pytest.mark.parametrize("name", [name for name, framework in FRAMEWORKS.items() if framework.asks])
async def test_a_framework_lists_calls_is_asked_declines_and_is_refused_in_words_across_replicas(
    name: str, fleet: Fleet, url: str, tmp_path: Path
) -> None:
    framework = FRAMEWORKS[name]
    before = passed_on(fleet)
    saw = await drive(*framework.command, home=tmp_path, url=url, token=token_of(name), refused_token="nobody's")
    assert framework.refused in saw["said"].pop("refused")
    assert saw["said"] == SAID
    assert saw["listed"] == ["update_work_item"]
    assert saw["questions"] == QUESTIONS
    assert saw["protocol"] == framework.protocol
    assert [warning.partition(":")[0] for warning in saw.get("warnings", [])] == list(framework.warnings)
    assert_alternated(fleet, name, framework.protocol, before)


async def test_openai_agents_cannot_ask_and_says_so_to_the_caller_but_not_to_the_model(
    url: str, tmp_path: Path
) -> None:
    name = "openai-agents"
    command = FRAMEWORKS[name].command
    saw = await drive(*command, home=tmp_path, url=url, token=token_of(name), refused_token="nobody's")
    assert saw["listed"] == ["update_work_item"]
    assert saw["protocol"] == FRAMEWORKS[name].protocol
    masked = "An error occurred while running the tool. Please try again."
    assert saw["said"] == {
        **SAID,
        "asked": INCAPABLE,
        "declined": INCAPABLE,
        "plain in an agent": SAID["plain"],
        "asked in an agent": masked,
        "declined in an agent": masked,
        "mistaken in an agent": SAID["mistaken"],
        "refused": FRAMEWORKS[name].refused,
    }


@pytest.mark.parametrize("protocol", [SESSION, STATELESS])
async def test_the_inspectors_page_lists_calls_and_asks_in_its_dialogs_across_replicas(
    protocol: str, fleet: Fleet, inspector: Inspector, tmp_path: Path
) -> None:
    before = passed_on(fleet)
    chromium = find_program("chromium", package="chromium")
    saw = await drive(*INSPECTOR.command, home=tmp_path, page=inspector.page, server=protocol, chromium=chromium)
    shown = {name: text.removeprefix("Tool Error\n") for name, text in saw["said"].items()}
    assert {name for name, text in saw["said"].items() if text != shown[name]} == {"declined", "mistaken"}
    assert shown == SAID
    assert saw["listed"] == ["update_work_item"]
    assert saw["questions"] == QUESTIONS
    assert saw["protocol"] == protocol
    assert_alternated(fleet, protocol, protocol, before)
