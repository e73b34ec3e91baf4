"""The recipes of `docs/start/connect.md` that need other programs; `tests/docs/test_connect.py` has the rest.

The packages that `npx` and `npm install` would download are installed already, in the versions on the page.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import mcp_types
import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client

from loadtest.cluster import wait_until
from loadtest.cluster.common import find_program, port_of, reserve_port
from tests.docs.markdown import TOP, Block, section_of
from tests.docs.recipes import (
    PAGE,
    SECONDS,
    Server,
    assert_shown,
    guarded_server,
    of_section,
    open_server,
    path_with,
    run,
    shown_after,
)
from tests.integration.clients.sdk_client import text_of

pytestmark = pytest.mark.timeout(5 * SECONDS)

HERE: Final = Path(__file__).parent
NODE: Final = TOP / ".venvs/node"
PROGRAMS: Final = NODE / "node_modules/.bin"
PYDANTIC_AI: Final = TOP / ".venvs/pydantic-ai/bin/python"
NPX: Final = """\
npx() {
    [ "$1" = -y ]
    package=${2%@*}
    shift 2
    "${package##*/}" "$@"
}
"""
BRIDGED: Final = [block for block in of_section("Claude", "json") if '"command"' in block.text]
INSPECTED: Final = of_section("Inspector", "bash")


@pytest.fixture(scope="module")
def anybody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with open_server(tmp_path_factory.mktemp("open")) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with guarded_server(tmp_path_factory.mktemp("guarded")) as server:
        yield server


@pytest.fixture
def server(request: pytest.FixtureRequest, block: Block) -> Server:
    """The server that a recipe is for: the one that requires a token, if the recipe has one."""
    with_token = "MCP_TOKEN" in block.text or "<token>" in block.text
    found: Server = request.getfixturevalue("guarded" if with_token else "anybody")
    return found


def environ_of(server: Server, **more: str) -> dict[str, str]:
    return server.environ(
        PATH=path_with(NODE / "bin", PROGRAMS),
        MCP_REMOTE_CONFIG_DIR=str(server.directory / "mcp-remote"),
        MCP_AUTO_OPEN_ENABLED="false",
        MCP_INSPECTOR_SECRET_STORE="memory",
        MCP_SANDBOX_PORT="0",
        MCP_APP_ORIGIN_PORT="0",
        CHROMIUM=find_program("chromium", package="chromium"),
        **more,
    )


@contextlib.contextmanager
def running(block: Block, server: Server, says: str, **more: str) -> Iterator[re.Match[str]]:
    """Run a block until Ctrl-C, and yield its output once it is up."""
    log = server.directory / "said.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", "-euc", NPX + server.filled(block.text)],
            cwd=server.directory,
            env=environ_of(server, **more),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    assert process.stdin is not None
    try:
        wait_until(
            lambda: process.poll() is not None or re.search(says, log.read_text()) is not None, "it to be up", SECONDS
        )
        found = re.search(says, log.read_text())
        assert found, log.read_text()
        yield found
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        process.wait(SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdin.close()


@pytest.mark.parametrize("block", of_section("mcp-remote", "bash"), ids=lambda block: block.place)
def test_mcp_remote_says_that_it_is_connected(block: Block, server: Server) -> None:
    (shown,) = of_section("mcp-remote", "text")
    with running(block, server, re.escape(shown.text.strip("…\n"))):
        pass


@pytest.mark.parametrize("block", BRIDGED, ids=lambda block: block.place)
async def test_the_program_of_a_configuration_connects_calls_and_is_asked(block: Block, server: Server) -> None:
    text = server.filled(block.text).replace("<token>", server.token)
    (entry,) = json.loads(text)["mcpServers"].values()
    assert entry["command"] == "npx"
    flag, package, *options = entry["args"]
    assert flag == "-y"
    program = PROGRAMS / package.rpartition("@")[0]

    async def answer(context: Any, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        return mcp_types.ElicitResult(action="accept", content={"name": "octocat"})

    environ = environ_of(server) | entry.get("env", {})
    command = StdioServerParameters(command=str(program), args=options, env=environ)
    async with Client(stdio_client(command), elicitation_callback=answer, mode="legacy") as client:
        assert "get_weather" in [tool.name for tool in (await client.list_tools()).tools]
        said = text_of(await client.call_tool("get_weather", {"location": "Oslo"}))
    assert "looked up for octocat" in said


@pytest.mark.parametrize(
    "block", [block for block in INSPECTED if "--cli" not in block.text], ids=lambda block: block.place
)
def test_the_inspector_does_what_its_steps_say(block: Block, server: Server) -> None:
    steps = re.findall(r"^\d\. .*", section_of(PAGE, "Inspector"), re.MULTILINE)
    names = re.findall(r"`([^`]+)`", " ".join(steps))
    says = r"http://127\.0\.0\.1:\d+/?\?MCP_INSPECTOR_API_TOKEN=\w+"
    with reserve_port() as port, running(block, server, says, CLIENT_PORT=str(port_of(port))) as address:
        command = [NODE / "bin/node", HERE / "inspector_steps.mjs", NODE, address[0], json.dumps(names)]
        said = run(list(map(str, command)), server, environ_of(server))
    assert "looked up for octocat" in said


@pytest.mark.parametrize(
    "block", [block for block in INSPECTED if "--cli" in block.text], ids=lambda block: block.place
)
def test_the_inspector_prints_what_is_shown(block: Block, server: Server) -> None:
    shown = shown_after(block)
    assert shown
    assert_shown(shown, run(["bash", "-euc", NPX + server.filled(block.text)], server, environ_of(server)))


@pytest.mark.parametrize("block", of_section("pydantic-ai", "python"), ids=lambda block: block.place)
def test_pydantic_ai_prints_what_is_shown(block: Block, server: Server) -> None:
    shown = shown_after(block)
    assert shown
    assert_shown(shown, run([str(PYDANTIC_AI), "-c", server.filled(block.text)], server))


@pytest.mark.parametrize("block", of_section("@ai-sdk/mcp", "javascript"), ids=lambda block: block.place)
def test_the_ai_sdk_prints_what_is_shown(block: Block, server: Server) -> None:
    modules = server.directory / "node_modules"
    modules.unlink(missing_ok=True)
    modules.symlink_to(NODE / "node_modules")
    program = server.directory / "ask.mjs"
    program.write_text(server.filled(block.text))
    shown = shown_after(block)
    assert shown
    assert_shown(shown, run([str(NODE / "bin/node"), str(program)], server))
