"""Real servers of 2025 without sessions, through two replicas: their results are those of a direct call."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from loadtest.cluster import REPOSITORY, free_port, wait_until
from tests.integration.frameworks.known import NODE, PEERS
from tests.upstreams.site import Site, entry
from tests.wires.draft.messages import call_params

HERE = Path(__file__).parent
VERSION = "2025-11-25"
ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "echo": {"text": "ü \u2028 \U0001f511"},
    "add": {"a": 1, "b": 2},
    "picture": {},
    "broken": {},
}
COMMANDS: Mapping[str, tuple[Path | str, ...]] = {
    "python1": (PEERS / "mcp1/bin/python", HERE / "sessionless_python1.py"),
    "typescript1": (NODE / "bin/node", HERE / "sessionless_typescript1.mjs", NODE),
    "fastmcp": (PEERS / "fastmcp/bin/python", HERE / "sessionless_fastmcp.py"),
}
FORMS = ("events", "json")
UPSTREAMS = [f"{name}-{form}" for name, form in itertools.product(COMMANDS, FORMS)]
ids = itertools.count(1)


class Running:
    """The servers, by name; each in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.ports = {name: free_port() for name in UPSTREAMS}
        self.outputs = {name: folder / name for name in UPSTREAMS}

    def start(self, stack: contextlib.ExitStack) -> None:
        for name, port in self.ports.items():
            kind, _, form = name.partition("-")
            output = stack.enter_context(self.outputs[name].open("wb"))
            process = subprocess.Popen(
                [*COMMANDS[kind], str(port), *([form] if form == "json" else [])], cwd=REPOSITORY, stdout=output
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        for name in UPSTREAMS:
            wait_until(functools.partial(self._answers, name), f"the server {name}")

    def _answers(self, name: str) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return self.post(name, "tools/list", {}).status_code == 200
        return False

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.ports[name]}/mcp"

    def post(self, name: str, method: str, params: Mapping[str, Any]) -> httpx.Response:
        message = {"jsonrpc": "2.0", "id": next(ids), "method": method, "params": params}
        headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": VERSION}
        return httpx.post(self.url(name), json=message, headers=headers, timeout=10)

    def result(self, name: str, method: str, params: Mapping[str, Any]) -> Any:
        """Return what the server itself answers."""
        response = self.post(name, method, params)
        text = response.text
        if response.headers["content-type"].startswith("text/event-stream"):
            text = next(line for line in re.split("\r?\n", text) if line.startswith("data: {")).removeprefix("data: ")
        return json.loads(text)["result"]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("servers"))
    with contextlib.ExitStack() as stack:
        running.start(stack)
        yield running


@pytest.fixture(scope="module")
def site(servers: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    # fastmcp 4 is stateless unless the operator says otherwise.
    eras = {name: {"era": "sessionless"} if name.startswith("fastmcp") else {} for name in UPSTREAMS}
    entries = {name: entry(servers.url(name), **eras[name]) for name in UPSTREAMS}
    entries["auto"] = entry(servers.url("fastmcp-events"))
    with Site(tmp_path_factory.mktemp("sessionless"), entries) as site:
        site.wait_listed()
        yield site


@pytest.mark.parametrize("tool", ARGUMENTS)
@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_a_result_is_that_of_a_direct_call(servers: Running, site: Site, upstream: str, tool: str) -> None:
    expected = servers.result(upstream, "tools/call", {"name": tool, "arguments": ARGUMENTS[tool]})
    async with site.user() as user:
        for _ in range(2):
            result = (await user.call(f"{upstream}__{tool}", ARGUMENTS[tool])).result
            assert {name: value for name, value in result.items() if name not in {"resultType", "_meta"}} == {
                name: value for name, value in expected.items() if name != "_meta"
            }
            assert result["_meta"].items() >= expected.get("_meta", {}).items()


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_prompts_resources_and_templates_are_those_of_a_direct_call(
    servers: Running, site: Site, upstream: str
) -> None:
    prompt = {"name": "greeting", "arguments": {"name": "Ada"}}
    async with site.user() as user:
        served = await user.complete("prompts/get", {**prompt, "name": f"{upstream}__greeting"})
        assert served.result["messages"] == servers.result(upstream, "prompts/get", prompt)["messages"]
        for uri in ("note://today", "item://7"):
            read = await user.complete("resources/read", {"uri": f"{upstream}+{uri}"})
            (contents,) = servers.result(upstream, "resources/read", {"uri": uri})["contents"]
            (served_contents,) = read.result["contents"]
            assert served_contents == {**contents, "uri": f"{upstream}+{uri}"}


@pytest.mark.parametrize("upstream", [name for name in UPSTREAMS if "events" in name])
async def test_a_question_ends_the_call_at_once_and_names_the_option(site: Site, upstream: str) -> None:
    async with site.user(f"asked-{upstream}") as user:
        began = time.monotonic()
        reply = await user.call(f"{upstream}__ask")
        assert reply.result["isError"]
        assert '"era"' in reply.text
        assert "session" in reply.text
        assert time.monotonic() - began < 5, "the server waits without an end"


@pytest.mark.parametrize("upstream", [name for name in UPSTREAMS if "events" in name])
async def test_progress_arrives(site: Site, upstream: str) -> None:
    async with site.user() as user:
        reply = await user.call(f"{upstream}__steps", _meta={"progressToken": "mine"})
    (told,) = [notice["params"] for notice in reply.notices]
    assert told == {"progressToken": "mine", "progress": 1, "total": 2, "message": "half"}


async def test_a_server_of_both_eras_is_called_stateless(site: Site) -> None:
    async with site.user() as user:
        assert (await user.call("auto__echo", {"text": "hi"})).text == "hi"
    assert "initialize" not in [
        labels["method"]
        for replica in site.replicas
        for labels, _ in replica.samples("gateway_upstream_requests_total")
        if labels["upstream"] == "auto"
    ]


async def test_a_client_that_leaves_cancels_the_call_in_the_sdk(servers: Running, site: Site) -> None:
    output = servers.outputs["python1-events"]
    async with site.user() as user:
        call = asyncio.create_task(user.send("tools/call", call_params("python1-events__slow")))
        await asyncio.to_thread(wait_until, lambda: "begun" in output.read_text(), "the call")
        call.cancel()
        await asyncio.wait([call])
    await asyncio.to_thread(wait_until, lambda: "cancelled" in output.read_text(), "its end")
