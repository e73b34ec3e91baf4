"""Server objects of each package, in replicas whose environment has it: each result is that of a direct call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp_types import Completion, PromptReference

from gateway.auth.tokens import mint
from loadtest.cluster import REPOSITORY, free_port, wait_until
from tests.integration import raw
from tests.integration.client import connect
from tests.integration.clients.written import Written, read_from_both
from tests.integration.frameworks.known import PEERS
from tests.upstreams.site import Site
from tests.wires.draft.deployment import AUDIENCE, SECRET
from tests.wires.draft.messages import accept, call_params

TOKEN = mint(SECRET, "ada", AUDIENCE)
VERSION = "2025-11-25"
CALLS: Mapping[str, Mapping[str, Any]] = {
    "echo": {"text": "ü \u2028 \U0001f511"},
    "add": {"a": 1, "b": 2},
    "picture": {},
    "broken": {},
    "steps": {},
}
TOLD_OTHERWISE = {"ask", "slow", "grow", "lifespans"}
"""The tools that other tests call."""
GREETING = {"name": "greeting", "arguments": {"name": "Ada"}}


@dataclass(frozen=True)
class Package:
    """A package of server objects, and what has it installed. Its module is `object_<name>`."""

    name: str
    python: str
    era: str
    path: str = "/mcp"
    growing: str = "object"
    counted: Sequence[str] = ("object", "app")

    @property
    def module(self) -> str:
        return f"tests.integration.clients.object_{self.name}"

    def entries(self) -> dict[str, Any]:
        """Return the entries of the file of upstreams."""
        app = {"python": f"{self.module}:app", "gateway": {"path": self.path}}
        server = {"python": f"{self.module}:server", "gateway": {}}
        low = {"python": f"{self.module}:low", "gateway": {}}
        held = {**server, "gateway": {"era": "session"}}
        return {"object": server, "app": app, "held": held, **({"low": low} if "low" in self.counted else {})}


PACKAGES = (
    Package("python2", sys.executable, "stateless"),
    Package("python1", str(PEERS / "objects-mcp1/bin/python"), "session", "/of-its-own", counted=("object", "low")),
    # It announces changes in sessions only.
    Package("fastmcp", str(PEERS / "objects-fastmcp/bin/python"), "stateless", growing="held"),
)


class Direct:
    """The application of a package, served without the gateway; a context manager."""

    def __init__(self, package: Package, folder: Path) -> None:
        self._package = package
        self._folder = folder
        self._port = free_port()
        self._headers: dict[str, str] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Direct:
        command = [self._package.python, "-m", "uvicorn", f"{self._package.module}:app", "--port", str(self._port)]
        output = self._stack.enter_context((self._folder / "direct").open("wb"))
        environ = {**os.environ, "TEST_DIRECTORY": str(self._folder)}
        process = subprocess.Popen(command, cwd=REPOSITORY, env=environ, stdout=output, stderr=output)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        wait_until(self._answers, f"the server of {self._package.name}")
        if self._package.era == "session":
            client = {"name": "direct", "version": "1"}
            opening = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": client}
            session = self._post("initialize", opening).headers["mcp-session-id"]
            self._headers = {"mcp-session-id": session, "mcp-protocol-version": VERSION}
            self._send({"jsonrpc": "2.0", "method": "notifications/initialized"}, self._headers)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def ask(self, method: str, params: Mapping[str, Any]) -> Written:
        return Written.of(self._post(method, params))

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return self._send({}, {}).status_code >= 400
        return False

    def _post(self, method: str, params: Mapping[str, Any]) -> httpx.Response:
        message = raw.request(method, params)
        if self._package.era == "stateless":
            return self._send(message, raw.headers_of(message))
        del message["params"]["_meta"]
        return self._send(message, self._headers)

    def _send(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> httpx.Response:
        accept = {"accept": "application/json, text/event-stream"}
        url = f"http://127.0.0.1:{self._port}{self._package.path}"
        return httpx.post(url, json=message, headers={**headers, **accept}, timeout=20)


@pytest.fixture(scope="module", params=PACKAGES, ids=lambda package: package.name)
def package(request: pytest.FixtureRequest) -> Package:
    package: Package = request.param
    return package


@pytest.fixture(scope="module")
def direct(package: Package, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Direct]:
    with Direct(package, tmp_path_factory.mktemp("direct")) as direct:
        yield direct


@pytest.fixture(scope="module")
def site(package: Package, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("site"), package.entries())
    for replica in site.replicas:
        replica.python = package.python
    with site:
        site.wait_listed()
        yield site


def by_method(site: Site) -> set[str]:
    """Return the methods of all requests to the object whose era is learnt."""
    samples = [replica.samples("gateway_upstream_requests_total") for replica in site.replicas]
    return {labels["method"] for each in samples for labels, _ in each if labels["upstream"] == "object"}


async def test_every_tool_is_listed(site: Site, package: Package) -> None:
    async with site.user() as user:
        for _ in site.urls:
            names = set(await user.names())
            assert names >= {f"{each}__{tool}" for each in ("object", "app") for tool in (*CALLS, *TOLD_OTHERWISE)}
    assert ("initialize" in by_method(site)) == (package.era == "session")


@pytest.mark.parametrize("upstream", ["object", "app"])
@pytest.mark.parametrize("tool", CALLS)
async def test_a_result_is_that_of_a_direct_call(site: Site, direct: Direct, upstream: str, tool: str) -> None:
    arguments = CALLS[tool]
    expected = direct.ask("tools/call", {"name": tool, "arguments": arguments}).own()
    async with site.user() as user:
        for result in await read_from_both(site, user, "tools/call", call_params(f"{upstream}__{tool}", arguments)):
            assert result.own() == expected


async def test_prompts_resources_and_templates_are_those_of_a_direct_call(site: Site, direct: Direct) -> None:
    async with site.user() as user:
        prompt = direct.ask("prompts/get", GREETING).own()
        for served in await read_from_both(site, user, "prompts/get", {**GREETING, "name": "object__greeting"}):
            assert served.own() == prompt
        for uri in ("note://today", "item://7"):
            contents = direct.ask("resources/read", {"uri": uri}).with_prefix("object").own()
            for served in await read_from_both(site, user, "resources/read", {"uri": f"object+{uri}"}):
                assert served.own() == contents


async def test_a_real_client_calls_and_completes(site: Site) -> None:
    async with connect(site, {}, token=TOKEN) as connection:
        for _ in site.urls:
            assert await connection.call("object__echo", {"text": "hi"}) == ("hi", False)
            reference = PromptReference(type="ref/prompt", name="object__greeting")
            completed = await connection.client.complete(reference, {"name": "name", "value": "A"})
            assert completed.completion == Completion(values=["Ada"])
        assert len({served.replica for served in connection.balancer.served}) == 2


async def test_a_lifespan_is_entered_once_a_process(site: Site, package: Package) -> None:
    async with site.user() as user:
        calls = [user.call("object__echo", {"text": str(number)}) for number in range(20)]
        assert {(await call).status for call in calls} == {200}
        for name in package.counted:
            assert [(await user.call(f"{name}__lifespans")).text for _ in site.urls] == ["1", "1"]


async def test_a_question_needs_a_session(site: Site, package: Package) -> None:
    for url in site.urls:
        async with site.user("asked", urls=[url]) as user:
            reply = await user.call("object__ask", answers={"name": accept(name="Ada")})
            assert reply.text == "accept" if package.era == "session" else '"era"' in reply.text
            assert (await user.call("held__ask", answers={"name": accept(name="Ada")})).text == "accept"


async def test_progress_and_logs_arrive(site: Site) -> None:
    async with site.user(meta={f"{raw.META_VERSION.rpartition('/')[0]}/logLevel": "info"}) as user:
        for _ in site.urls:
            reply = await user.call("object__steps", _meta={"progressToken": "mine"})
            told = {notice["method"]: notice["params"] for notice in reply.notices}
            assert told["notifications/progress"] == {
                "progressToken": "mine",
                "progress": 1,
                "total": 2,
                "message": "half",
            }
            assert "half of it" in str(told["notifications/message"]["data"])


async def test_a_client_that_leaves_cancels_the_call(site: Site) -> None:
    async with site.user() as user:
        call = asyncio.create_task(user.send("tools/call", call_params("object__slow")))
        await asyncio.to_thread(site.wait_for_lines, "slow", 1)
        call.cancel()
        assert (await asyncio.to_thread(site.wait_for_lines, "slow", 2))[-1] == "cancelled"


async def test_a_tool_that_appears_is_announced_and_listed(site: Site, package: Package) -> None:
    grow, grown = f"{package.growing}__grow", f"{package.growing}__grown"
    async with site.user() as user:
        for url in site.urls:
            async with site.user(urls=[url]) as own, own.listening(url, toolsListChanged=True) as heard:
                assert grown not in await own.names()
                assert (await own.call(grow)).text == "grew"
                await heard.wait_for("notifications/tools/list_changed")
                assert grown in await own.names()
                assert (await own.call(grown)).text == "grown"
        assert grown in await user.names()


async def test_a_changed_entry_keeps_the_object(site: Site, package: Package) -> None:
    async with site.user() as user:
        entries = package.entries()
        entries["object"]["gateway"]["tools"] = {"deny": ["broken"]}
        site.configure(entries)
        await asyncio.to_thread(
            wait_until, lambda: all(_serves_less(site, url) for url in site.urls), "the changed file"
        )
        assert {(await user.call("object__echo", {"text": "hi"})).text for _ in site.urls} == {"hi"}
        assert [(await user.call("object__lifespans")).text for _ in site.urls] == ["1", "1"]


async def test_a_lifespan_ends_with_its_process(site: Site) -> None:
    before = len(site.lines("ended"))
    for replica in site.replicas:
        replica.terminate()
    assert len(site.lines("ended")) >= before + 2 * len(site.replicas)


def _serves_less(site: Site, url: str) -> bool:
    async def names() -> list[str]:
        async with site.user(urls=[url]) as user:
            return await user.names()

    return "object__broken" not in asyncio.run(names())
