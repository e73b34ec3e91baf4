"""The recipes of `docs/start/connect.md` do what the page shows: those that need only curl and the official SDK.

Where the client cannot be installed here, the SDK uses its configuration.
`tests/integration/clients/test_recipes.py` has those that need other programs, and `tests/agents` those of agents.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from typing import Any, Final, Literal

import httpx2
import mcp_types
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.agents.programs import AGENTS
from tests.docs.markdown import TOP, Block, text_of
from tests.docs.recipes import (
    BLOCKS,
    PAGE,
    SECONDS,
    Server,
    assert_shown,
    guarded_server,
    of_section,
    open_server,
    run,
    shown_after,
)
from tests.integration.clients.sdk_client import text_of as said_by

pytestmark = [pytest.mark.slow, pytest.mark.timeout(5 * SECONDS)]

HERE: Final = {"The first call", "curl", "With a token", "Python", "Claude", "VS Code"}
CURL: Final = of_section("curl", "bash")
PYTHON: Final = of_section("Python", "python")
MARK: Final = "---- next ----"
Configured = tuple[str, dict[str, str]]
"""The URL of a server, and headers to send."""


@pytest.fixture(scope="module")
def anybody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with open_server(tmp_path_factory.mktemp("open")) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with guarded_server(tmp_path_factory.mktemp("guarded")) as server:
        yield server


def assert_all_shown(blocks: list[Block], server: Server) -> None:
    """Run blocks in one shell, and compare what each prints with what is shown after it."""
    script = f"\nprintf '\\n{MARK}\\n'\n".join(server.filled(block.text) for block in blocks)
    printed = run(["bash", "-euc", script], server).split(MARK)
    for block, output in zip(blocks, printed, strict=True):
        assert_shown(shown_after(block) or "", output.strip("\n"))


def test_the_first_call_prints_what_is_shown(anybody: Server) -> None:
    assert_all_shown(of_section("The first call", "bash"), anybody)


def test_curl_lists_calls_is_asked_and_answers(anybody: Server) -> None:
    assert len(CURL) == 4
    assert_all_shown(CURL, anybody)


def test_curl_does_the_same_with_a_token(guarded: Server) -> None:
    headers, *requests = CURL
    _, take, add = of_section("With a token", "bash")
    run(["bash", "-euc", "\n".join([headers.text, take.text, add.text])], guarded)
    assert_all_shown(requests, guarded)


def test_without_a_token_the_server_says_what_is_shown(guarded: Server) -> None:
    headers, listing, *_ = CURL
    printed = run(["bash", "-euc", headers.text + guarded.filled(listing.text)], guarded)
    (shown,) = of_section("With a token", "json")
    assert_shown(shown.text, printed)


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.place)
def test_a_program_prints_what_is_shown(block: Block, anybody: Server, guarded: Server) -> None:
    server = guarded if "MCP_TOKEN" in block.text else anybody
    shown = shown_after(block)
    assert shown
    assert_shown(shown, run([sys.executable, "-c", server.filled(block.text)], server))


def configured(text: str, server: Server) -> Configured | None:
    """Read the URL and the headers of a configuration or of a command that writes one; None if it starts a program."""
    text = re.sub(r"\$\{(?:MCP_TOKEN|input:mcp-token)\}|\$MCP_TOKEN", server.token, server.filled(text))
    if text.startswith("claude"):
        program = shlex.split(text)
        assert program[:6] == ["claude", "mcp", "add", "--transport", "http", "gateway"]
        name, _, value = program[program.index("--header") + 1].partition(": ")
        return program[6], {name: value}
    (entry,) = (json.loads(text).get("mcpServers") or json.loads(text)["servers"]).values()
    if "command" in entry:
        return None
    assert entry["type"] == "http"
    return entry["url"], entry.get("headers", {})


CONFIGURATIONS: Final = [*of_section("Claude", "json", "bash"), *of_section("VS Code", "json")]
BY_URL: Final = [block for block in CONFIGURATIONS if '"command"' not in block.text]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("block", BY_URL, ids=lambda block: block.place)
async def test_what_a_configuration_says_connects_calls_and_is_asked(
    block: Block, mode: Literal["auto", "legacy"], anybody: Server, guarded: Server
) -> None:
    needs_token = "Authorization" in block.text
    found = configured(block.text, guarded if needs_token else anybody)
    assert found
    url, headers = found

    async def answer(context: Any, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        return mcp_types.ElicitResult(action="accept", content={"name": "octocat"})

    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http_client,
        Client(streamable_http_client(url, http_client=http_client), elicitation_callback=answer, mode=mode) as client,
    ):
        assert "get_weather" in [tool.name for tool in (await client.list_tools()).tools]
        said = said_by(await client.call_tool("get_weather", {"location": "Oslo"}))
    assert "looked up for octocat" in said


def test_every_recipe_is_run_here_or_with_the_other_clients() -> None:
    elsewhere = (TOP / "tests/integration/clients/test_recipes.py").read_text()
    agents = {agent.section for agent in AGENTS.values()}
    sections = {block.section for block in BLOCKS} - HERE - agents
    assert {section for section in sections if f'of_section("{section}", ' not in elsewhere} == set()


def test_a_variable_that_a_configuration_asks_for_is_declared() -> None:
    for block in of_section("VS Code", "json"):
        asked = set(re.findall(r"\$\{input:([\w-]+)\}", block.text))
        assert asked == {entry["id"] for entry in json.loads(block.text).get("inputs", [])}


def test_what_npx_would_start_is_what_the_tests_start() -> None:
    """The version of each package on the page is the pinned one."""
    pinned = json.loads((TOP / "tests/peers/node/package.json").read_text())["dependencies"]
    named = set(re.findall(r"(?:npx -y |\"-y\", \"|npm install )(@?[\w/-]+)@([\w.-]+)", text_of(PAGE)))
    assert {name for name, _ in named} >= {"mcp-remote"}
    assert named == {(name, pinned[name]) for name, _ in named}


def test_the_sdk_that_is_named_is_the_one_of_these_tests() -> None:
    (named,) = re.findall(r'pip install "(mcp\S+)"', text_of(PAGE))
    assert f'"{named}"' in (TOP / "pyproject.toml").read_text()
