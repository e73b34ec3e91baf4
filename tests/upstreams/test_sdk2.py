"""The real client of the `mcp` SDK 2 uses a real server of the same SDK through two replicas."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager

import mcp_types
import pytest

from gateway.auth.tokens import mint
from tests.integration.client import Connection, RoundRobin, connect
from tests.upstreams.servers.sdk2 import Sdk2
from tests.upstreams.site import Site, entry
from tests.wires.draft.deployment import AUDIENCE, SECRET

pytestmark = pytest.mark.slow

ANSWERS = {"name": {"name": "Ada"}, "colour": {"colour": "red"}}
TOKEN = mint(SECRET, "ada", AUDIENCE)


@pytest.fixture(scope="module")
def sdk_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Sdk2() as server:
        upstreams = {"sdk": entry(server.url), "stateless": entry(server.url, era="stateless")}
        with Site(tmp_path_factory.mktemp("sdk2"), upstreams) as site:
            site.wait_listed()
            yield site


def connecting(site: Site) -> AbstractAsyncContextManager[Connection[RoundRobin]]:
    return connect(site, ANSWERS, token=TOKEN)


async def test_tools_of_the_sdk_are_listed_and_called(sdk_site: Site) -> None:
    async with connecting(sdk_site) as connection:
        listed = await connection.client.list_tools()
        assert {"sdk__echo", "sdk__resolved", "stateless__echo"} <= {tool.name for tool in listed.tools}
        assert await connection.call("sdk__echo", {"text": "hello"}) == ("hello", False)
        added = await connection.client.call_tool("sdk__add", {"a": 1, "b": 2})
        assert isinstance(added, mcp_types.CallToolResult)
        assert added.structured_content == {"result": 3}
        assert await connection.call("sdk__broken", {}) == ("Error executing tool broken", True)


@pytest.mark.parametrize("upstream", ["sdk", "stateless"])
@pytest.mark.parametrize(
    ("tool", "text", "legs"),
    [
        ("resolved", "Hello, Ada!", 2),
        ("resolved_twice", "Ada likes red", 3),
        ("returned", "Hello, Ada, asked!", 2),
    ],
)
async def test_tools_that_ask_stateless_ask_through_both_replicas(
    sdk_site: Site, upstream: str, tool: str, text: str, legs: int
) -> None:
    async with connecting(sdk_site) as connection:
        name = f"{upstream}__{tool}"
        assert await connection.call(name, {}) == (text, False)
        replicas = connection.balancer.legs(name)
        assert len(replicas) == legs
        assert set(replicas) == {"r1", "r2"}


async def test_a_tool_that_can_ask_in_a_session_only_is_called_there_once_that_is_known(sdk_site: Site) -> None:
    async with connecting(sdk_site) as connection:
        results = [await connection.call("sdk__awaited", {}) for _ in range(6)]
        failed = [text for text, is_error in results if is_error]
        assert len(failed) <= 2, "once in each replica"
        assert all('"era"' in text and "needs a session" in text for text in failed)
        assert results[-1] == ("Hello, Ada!", False)
        asked = sdk_site.metric("gateway_upstream_requests_total", upstream="sdk", method="tools/call", outcome="error")
        assert asked <= 2, "each replica remembers it after its first call"


async def test_prompts_and_resources_of_the_sdk_are_read(sdk_site: Site) -> None:
    async with connecting(sdk_site) as connection:
        prompt = await connection.client.get_prompt("sdk__greeting", {"name": "Ada"})
        assert isinstance(prompt, mcp_types.GetPromptResult)
        content = prompt.messages[0].content
        assert isinstance(content, mcp_types.TextContent)
        assert content.text == "Hello, Ada!"
        for uri, text in {"sdk+note://today": "a note of the SDK", "sdk+item://7": "item 7"}.items():
            read = await connection.client.read_resource(uri)
            assert isinstance(read, mcp_types.ReadResourceResult)
            (contents,) = read.contents
            assert isinstance(contents, mcp_types.TextResourceContents)
            assert (contents.uri, contents.text) == (uri, text)
