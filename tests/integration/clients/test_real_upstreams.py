"""Real servers behind two replicas in turn: each result is that of a direct call, to the byte."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from loadtest.cluster import REPOSITORY, free_port, wait_until
from tests.integration import raw
from tests.integration.clients.written import Written, read_from_both
from tests.integration.frameworks.known import NODE, PEERS
from tests.upstreams.site import CAPABILITIES, Site, entry
from tests.wires.draft.messages import accept, call_params

HERE = Path(__file__).parent
VERSION = "2025-11-25"
ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "echo": {"text": "ü \u2028 \U0001f511"},
    "add": {"a": 1, "b": 2},
    "picture": {},
    "broken": {},
}
GREETING = {"name": "greeting", "arguments": {"name": "Ada"}}
TYPESCRIPT1 = (NODE / "bin/node", HERE / "upstream_typescript1.mjs", NODE)
COMMANDS: Mapping[str, tuple[Path | str, ...]] = {
    "python1": (PEERS / "mcp1/bin/python", HERE / "upstream_python1.py"),
    "typescript1": TYPESCRIPT1,
    "typescript2": (NODE / "bin/node", HERE / "stateless_typescript2.mjs", NODE),
    "fastmcp": (PEERS / "fastmcp/bin/python", HERE / "sessionless_fastmcp.py"),
    "supergateway": (
        *(NODE / "bin/node", NODE / "node_modules/supergateway/dist/index.js", "--logLevel", "none"),
        *("--stdio", " ".join([*map(str, TYPESCRIPT1), "stdio"]), "--outputTransport", "streamableHttp", "--port"),
    ),
}
"""The command that starts each server, but for the port at its end."""
SERVERS = (
    *("python1-events", "python1-json", "typescript1-events", "typescript1-json", "fastmcp-events", "fastmcp-json"),
    *("typescript2", "supergateway", "python1-sessions", "typescript1-sessions"),
)


@dataclass(frozen=True)
class Upstream:
    """A server, and how it is spoken to: fastmcp 4 and the SDK 2 are stateless unless the operator says otherwise."""

    server: str
    stateless: bool = False
    options: Mapping[str, str] | None = None


SESSIONLESS = {"era": "sessionless"}
UPSTREAMS: Mapping[str, Upstream] = {
    **{server: Upstream(server) for server in SERVERS if server.startswith(("python1", "typescript1", "supergateway"))},
    **{f"fastmcp-{form}": Upstream(f"fastmcp-{form}", options=SESSIONLESS) for form in ("events", "json")},
    "fastmcp-stateless": Upstream("fastmcp-events", stateless=True),
    "typescript2": Upstream("typescript2", stateless=True),
    "typescript2-sessionless": Upstream("typescript2", options=SESSIONLESS),
}
SESSIONS = tuple(name for name in SERVERS if name.endswith("-sessions"))
SENDERS_AWAY = (*(name for name in UPSTREAMS if name.startswith(("python1", "typescript1"))), "typescript2-sessionless")
"""Those that can send the user to a URL by an error. On 2026-07-28 the SDKs cannot, and fastmcp fails otherwise."""
every_upstream = pytest.mark.parametrize("upstream", UPSTREAMS)
every_stream = pytest.mark.parametrize("upstream", [name for name in UPSTREAMS if "json" not in name])


class Running:
    """The servers, by name; each in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.ports = {name: free_port() for name in SERVERS}
        self.sessions: dict[str, str] = {}
        self.outputs = {name: folder / name for name in SERVERS}

    def start(self, stack: contextlib.ExitStack) -> None:
        for name, port in self.ports.items():
            kind, _, form = name.partition("-")
            output = stack.enter_context(self.outputs[name].open("wb"))
            process = subprocess.Popen(
                [*COMMANDS[kind], str(port), *([form] if form in ("json", "sessions") else [])],
                cwd=REPOSITORY,
                stdout=output,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        for name in SERVERS:
            wait_until(functools.partial(self._answers, name), f"the server {name}")

    def _answers(self, name: str) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return self._post(Upstream(name), "tools/list", {}).status_code == 200
        return False

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}/mcp"

    def _post(self, upstream: Upstream, method: str, params: Mapping[str, Any]) -> httpx.Response:
        message = raw.request(method, params)
        headers = raw.headers_of(message)
        if not upstream.stateless:
            del message["params"]["_meta"]
            headers = {"mcp-protocol-version": VERSION}
        headers["accept"] = "application/json, text/event-stream"
        if upstream.server in SESSIONS:
            headers["mcp-session-id"] = self._session(upstream.server, headers)
        return httpx.post(self.url(upstream.server), json=message, headers=headers, timeout=20)

    def _session(self, server: str, headers: Mapping[str, str]) -> str:
        """Return the id of a session of our own."""
        if server not in self.sessions:
            params = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "direct", "version": "1"}}
            message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            opened = httpx.post(self.url(server), json=message, headers=headers, timeout=20)
            own = {**headers, "mcp-session-id": opened.headers["mcp-session-id"]}
            ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            httpx.post(self.url(server), json=ready, headers=own, timeout=20)
            self.sessions[server] = own["mcp-session-id"]
        return self.sessions[server]

    def result(self, name: str, method: str, params: Mapping[str, Any]) -> Written:
        """Return what the server itself answers."""
        return Written.of(self._post(UPSTREAMS[name], method, params))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("servers"))
    with contextlib.ExitStack() as stack:
        running.start(stack)
        yield running


@pytest.fixture(scope="module")
def site(servers: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    entries = {name: entry(servers.url(each.server), **(each.options or {})) for name, each in UPSTREAMS.items()}
    with Site(tmp_path_factory.mktemp("sessionless"), entries) as site:
        site.wait_listed()
        yield site


@every_upstream
async def test_what_is_listed_is_what_the_server_lists(servers: Running, site: Site, upstream: str) -> None:
    direct = msgspec.json.decode(servers.result(upstream, "tools/list", {})["tools"], type=list[dict[str, Any]])
    async with site.user() as user:
        for _ in site.urls:
            listed = {tool["name"]: tool for tool in await user.list()}
            for tool in direct:
                served = listed[f"{upstream}__{tool['name']}"]
                left_out = {"name", "execution", "_meta", "inputSchema"}
                assert {name: served[name] for name in served if name not in left_out} == {
                    name: tool[name] for name in tool if name not in left_out
                }
                assert served["inputSchema"]["properties"] == tool["inputSchema"].get("properties")


@pytest.mark.parametrize("tool", ARGUMENTS)
@every_upstream
async def test_a_result_is_that_of_a_direct_call(servers: Running, site: Site, upstream: str, tool: str) -> None:
    expected = servers.result(upstream, "tools/call", {"name": tool, "arguments": ARGUMENTS[tool]})
    async with site.user() as user:
        for result in await read_from_both(
            site, user, "tools/call", call_params(f"{upstream}__{tool}", ARGUMENTS[tool])
        ):
            assert result.own() == expected.own()
            server = f"{raw.META_VERSION.rpartition('/')[0]}/serverInfo"
            kept = {name: value for name, value in expected.meta().items() if name != server}
            assert result.meta().items() >= kept.items()


@every_upstream
async def test_prompts_resources_and_templates_are_those_of_a_direct_call(
    servers: Running, site: Site, upstream: str
) -> None:
    async with site.user() as user:
        prompt = servers.result(upstream, "prompts/get", GREETING)
        for served in await read_from_both(site, user, "prompts/get", {**GREETING, "name": f"{upstream}__greeting"}):
            assert served.own() == prompt.own()
        for uri in ("note://today", "item://7"):
            contents = servers.result(upstream, "resources/read", {"uri": uri}).with_prefix(upstream)
            for served in await read_from_both(site, user, "resources/read", {"uri": f"{upstream}+{uri}"}):
                assert served.own() == contents.own()


def in_session(upstream: str) -> str:
    """Return what the answer to a question contains."""
    # The SDK 2 looks at the capabilities first, and the gateway declares none.
    if upstream in SESSIONS:
        return "This gateway passes no question" if upstream.startswith("python") else "no question of the server"
    return "does not support form elicitation" if upstream == "typescript2-sessionless" else '"era"'


@every_stream
async def test_a_question_ends_the_call_within_a_second(site: Site, upstream: str) -> None:
    in_sessions = upstream in SESSIONS
    async with site.user(f"asked-{upstream}", capabilities={} if in_sessions else CAPABILITIES) as user:
        for _ in site.urls if in_sessions else site.urls[:1]:  # further calls may go into a session
            began = time.monotonic()
            await user.call(f"{upstream}__echo", {"text": "hi"})
            usual = time.monotonic() - began
            began = time.monotonic()
            reply = await user.call(f"{upstream}__ask")
            assert time.monotonic() - began < usual + 1, "the server itself may wait without an end"
            assert reply.result["isError"]
            assert in_session(upstream) in reply.text


@pytest.mark.parametrize("upstream", SENDERS_AWAY)
async def test_a_tool_that_raises_the_sdks_error_sends_its_user_to_the_url_and_runs(site: Site, upstream: str) -> None:
    async with site.user("visits") as user:
        for number in range(len(site.urls)):
            who = f"{upstream}-{number}"
            asked = await user.send("tools/call", call_params(f"{upstream}__sign_in", {"user": who}))
            (question,) = asked.result["inputRequests"].values()
            url = f"https://example.com/in?user={who}"
            assert question["params"] == {"mode": "url", "message": "Please sign in", "url": url}
            params = call_params(f"{upstream}__sign_in", {"user": who})
            more = await user.retry(asked, {"elicitation/create": {"action": "accept"}})
            assert (await user.send("tools/call", {**params, **more})).text == f"signed in: {who}"


@pytest.mark.parametrize("upstream", ["typescript1-sessions", "typescript1-events", "typescript1-json"])
async def test_a_tool_that_the_sdk_runs_only_as_a_task_is_a_tool(site: Site, upstream: str) -> None:
    async with site.user("studies") as user:
        for _ in site.urls:
            assert (await user.call(f"{upstream}__study", {"of": "bees"})).text == "studied bees"


async def test_a_question_on_the_stream_of_the_session_ends_the_call_too(site: Site) -> None:
    async with site.user("aside", capabilities={}) as user:
        for _ in site.urls:
            reply = await user.call("typescript1-sessions__ask_aside")
            assert reply.result["isError"]


@pytest.mark.parametrize("upstream", SESSIONS)
async def test_a_caller_has_one_session_in_each_replica(site: Site, upstream: str) -> None:
    for name in ("ada-counts", "bob-counts"):
        async with site.user(name) as user:
            counted = [(await user.call(f"{upstream}__count")).text for _ in range(6)]
        assert counted == ["1", "1", "2", "2", "3", "3"]


async def test_a_question_that_is_a_result_reaches_the_client_of_either_replica(site: Site) -> None:
    async with site.user() as user:
        for _ in site.urls:
            reply = await user.call("typescript2__returned", answers={"who": accept(name="Ada")})
            assert reply.text == "Hello, Ada!"
    assert len({reply.url for reply in user.replies}) == 2


@every_stream
async def test_progress_arrives(site: Site, upstream: str) -> None:
    async with site.user() as user:
        reply = await user.call(f"{upstream}__steps", _meta={"progressToken": "mine"})
    (told,) = [notice["params"] for notice in reply.notices]
    assert told == {"progressToken": "mine", "progress": 1, "total": 2, "message": "half"}


async def test_a_server_of_both_eras_is_called_stateless(site: Site) -> None:
    async with site.user() as user:
        assert (await user.call("fastmcp-stateless__echo", {"text": "hi"})).text == "hi"
    assert "initialize" not in [
        labels["method"]
        for replica in site.replicas
        for labels, _ in replica.samples("gateway_upstream_requests_total")
        if labels["upstream"] in {"fastmcp-stateless", "typescript2"}
    ]


async def test_a_client_that_leaves_cancels_the_call_in_the_sdk(servers: Running, site: Site) -> None:
    output = servers.outputs["python1-events"]
    async with site.user() as user:
        call = asyncio.create_task(user.send("tools/call", call_params("python1-events__slow")))
        await asyncio.to_thread(wait_until, lambda: "begun" in output.read_text(), "the call")
        call.cancel()
        await asyncio.wait([call])
    await asyncio.to_thread(wait_until, lambda: "cancelled" in output.read_text(), "its end")
