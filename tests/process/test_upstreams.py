"""The upstreams of a process: from the operator's file to what the wires serve, and what a bad file changes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gateway.authoring.tools import Tool
from gateway.children.children import NoRoomForChild
from gateway.errors import ConfigurationError
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.process.preflight import find_upstream_problems
from gateway.process.replica import Services, build
from gateway.process.upstreams import Connecting, ServedUpstreams, children_shared_by_callers
from gateway.registry.registry import Registry
from gateway.settings.model import Settings
from gateway.settings.problems import Problems
from gateway.upstreams.config.reading import UpstreamReader
from gateway.upstreams.lists.caller_lists import ListsByCaller
from gateway.upstreams.ports import UpstreamCaller
from gateway.upstreams.watching import UpstreamWatcher
from loadtest.cluster import new_key
from tests.children.running import python
from tests.upstreams.client.test_sessions import ADA, BOB
from tests.upstreams.servers.plain_http import Exchange
from tests.upstreams.servers.recording import Recording
from tests.upstreams.servers.session import InSessions
from tests.waiting import until

SETTINGS = {"GATEWAY_AUDIENCE": "tests", "GATEWAY_AUTH": "none", "GATEWAY_SEAL_KEYS": new_key()}


def written(path: Path, **upstreams: Any) -> str:
    path.write_text(json.dumps({"mcpServers": upstreams}))
    return str(path)


def entry(url: str, **options: Any) -> dict[str, Any]:
    return {"url": url, "gateway": options}


def settings_of(file: str, more: Mapping[str, str] | None = None) -> Settings:
    return Settings.load({**SETTINGS, **(more or {})}, upstreams=file)


@contextlib.asynccontextmanager
async def serving(services: Services) -> AsyncIterator[ServedUpstreams]:
    assert services.upstreams is not None
    async with services.upstreams.running():
        yield services.upstreams
    services.audit_file.close()


def names(services: Services) -> list[str]:
    return list(services.wires.dispatcher.registry.tools)


@pytest.mark.setting("upstreams")
async def test_a_replica_serves_the_upstreams_of_its_file_in_that_order(tmp_path: Path) -> None:
    with Recording(["echo", "act"]) as one, Recording(["echo"]) as two:
        file = written(tmp_path / "upstreams.json", one=entry(one.url), two=entry(two.url))
        services = build(settings_of(file))
        async with serving(services):
            await until(lambda: names(services) == ["one__echo", "one__act", "two__echo"])
            assert services.telemetry.registry.get_sample_value("gateway_upstream_entries", {"upstream": "two"})


async def test_reloaded_tool_modules_keep_the_upstreams(tmp_path: Path) -> None:
    async def local() -> str:
        return ""

    with Recording(["echo"]) as one:
        services = build(settings_of(written(tmp_path / "upstreams.json", one=entry(one.url))))
        async with serving(services):
            await until(lambda: names(services) == ["one__echo"])
            services.wires.reload(Registry([Tool(local)]))
            assert names(services) == ["local", "one__echo"]


async def test_a_local_tool_hides_an_upstreams_and_the_operator_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tools = tmp_path / "hiding_tools.py"
    tools.write_text("from gateway import tool\n\n@tool(name='one__echo')\nasync def mine() -> str:\n    return ''\n")
    with Recording(["echo", "act"]) as one:
        file = written(tmp_path / "upstreams.json", one=entry(one.url))
        services = build(Settings.load(SETTINGS, upstreams=file, tools=(str(tools),)))
        async with serving(services) as upstreams:
            await until(lambda: names(services) == ["one__echo", "one__act"])
            assert not services.wires.dispatcher.registry.tools["one__echo"].upstream
            services.wires.arrange(upstreams.parts)
    told = [record for record in caplog.records if "another one has its name" in record.getMessage()]
    assert len(told) == 1


async def test_a_new_file_is_served_and_one_that_needs_missing_settings_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "upstreams.json"
    with Recording(["echo"]) as one:
        services = build(settings_of(written(path, one=entry(one.url))))
        async with serving(services) as upstreams:
            watcher = upstreams._watcher
            await until(lambda: names(services) == ["one__echo"])
            written(path, other=entry(one.url))
            await looked(watcher)
            await until(lambda: names(services) == ["other__echo"])
            written(path, third=entry(one.url, task="required"))
            await looked(watcher)
            assert [part.name for part in upstreams.parts] == ["other"]
    (rejected,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "GATEWAY_REDIS_URL" in vars(rejected)["reason"]


async def looked(watcher: UpstreamWatcher) -> None:
    for _ in range(2):  # a change counts when two looks agree
        await watcher.look()


@pytest.mark.setting("upstreams", "redis_url")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"task": "required"}, "GATEWAY_REDIS_URL"),
        ({"proxy": "http://[broken"}, "proxy"),
        ({"prefix": "No!"}, "prefix"),
    ],
)
def test_a_replica_does_not_start_with_upstreams_that_it_cannot_serve(
    tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    file = written(tmp_path / "upstreams.json", one=entry("http://127.0.0.1:9/mcp", **options))
    with pytest.raises(ConfigurationError, match=says):
        build(settings_of(file))


@pytest.mark.parametrize("announces", [True, False])
def test_no_process_starts_with_a_server_object_that_it_does_not_have(tmp_path: Path, announces: bool) -> None:
    settings = settings_of(written(tmp_path / "upstreams.json", one={"python": "no_such_module:mcp"}))
    with pytest.raises(ConfigurationError, match="json: one: python: 'no_such_module:mcp' cannot be imported by the"):
        ServedUpstreams(settings, CollectorRegistry(), (lambda _uri: None) if announces else None)


@pytest.mark.setting("upstreams")
@pytest.mark.parametrize("works", [True, False])
def test_it_is_among_the_problems_that_are_found_before_a_start(tmp_path: Path, works: bool) -> None:
    file, problems = written(tmp_path / "upstreams.json", one={"python": "no_such_module:mcp"}), Problems()
    find_upstream_problems(settings_of(file), problems, works=works)
    (line,) = problems.lines
    assert line.startswith(f"{file}: one: python: 'no_such_module:mcp' cannot be imported by the gateway: ")


async def test_a_file_that_names_no_such_object_keeps_the_upstreams_and_their_object(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = {"python": "tests.upstreams.servers.sdk2:server", "gateway": {"tools": {"allow": ["echo"]}}}
    path = tmp_path / "upstreams.json"
    services = build(settings_of(written(path, one=server)))
    async with serving(services) as upstreams:
        await until(lambda: names(services) == ["one__echo"])
        written(path, one=server, two={"python": "tests.upstreams.servers.sdk2:none"})
        await looked(upstreams._watcher)
        assert names(services) == ["one__echo"]
    (rejected,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "two: python: the module 'tests.upstreams.servers.sdk2' has no 'none'" in vars(rejected)["reason"]


@pytest.mark.setting("upstreams")
async def test_a_worker_needs_no_settings_of_replicas(tmp_path: Path) -> None:
    exchanging = entry("http://127.0.0.1:9/mcp", credentials={"kind": "token_exchange", "audience": "one"})
    settings = settings_of(written(tmp_path / "upstreams.json", one=exchanging))
    assert [part.name for part in ServedUpstreams(settings, CollectorRegistry()).parts] == ["one"]
    with pytest.raises(ConfigurationError):
        ServedUpstreams(settings, CollectorRegistry(), lambda _uri: None)


@pytest.mark.setting("upstreams")
def test_the_lists_that_all_upstreams_of_a_process_read_for_callers_count_together(tmp_path: Path) -> None:
    own = {name: entry("http://127.0.0.1:9/mcp", scope="caller") for name in ("one", "two")}
    served = ServedUpstreams(settings_of(written(tmp_path / "upstreams.json", **own)), CollectorRegistry())
    one, two = (part.lists for part in served.parts)
    assert isinstance(one, ListsByCaller)
    assert isinstance(two, ListsByCaller)
    assert one is not two
    assert one._readings is two._readings


async def test_a_replica_is_ready_whatever_its_upstreams_do(tmp_path: Path) -> None:
    services = build(settings_of(written(tmp_path / "upstreams.json", gone=entry("http://127.0.0.1:9/mcp"))))
    async with asyncio.timeout(5), serving(services) as upstreams:
        assert [part.name for part in upstreams.parts] == ["gone"]


async def test_who_waits_for_a_child_ends_no_session_of_another_kind(tmp_path: Path) -> None:
    class Noticing:
        """Has no child. It is asked while another caller waits for one."""

        asked = asyncio.Event()

        def make_room(self, *_: Any) -> bool:
            self.asked.set()
            return False

    children, lender = children_shared_by_callers(2), Noticing()
    children.lenders.add(lender)
    connecting = Connecting(UpstreamMetrics(CollectorRegistry()), "upstreams.json", children)
    with InSessions() as server:
        file = written(tmp_path / "upstreams.json", one=entry(server.url, era="session"))
        (definition,) = UpstreamReader(Path(file)).read().definitions
        connection = connecting.connect(definition)
        try:
            for owner in (BOB.principal, None):
                await children.start(python("import sys; sys.stdin.read()"), owner)
            waiting = asyncio.create_task(children.start(python(""), "mallory"))
            await lender.asked.wait()
            for number in (1, 2):
                params = {"name": "count", "arguments": {}}
                result = await connection.client.request(
                    "tools/call", params, requester=BOB, seconds=20.0, max_bytes=1 << 20
                )
                assert result["content"][0]["text"] == f"1: {number}"
                assert not waiting.done()
            with pytest.raises(NoRoomForChild):
                await waiting
        finally:
            await connection.aclose()
            await children.aclose()


async def test_cancelled_calls_take_no_connections_from_others_however_slowly_the_server_takes_that_in(
    tmp_path: Path,
) -> None:
    class Slow(InSessions):
        async def _post(self, exchange: Exchange, name: str) -> None:
            if b"notifications/cancelled" in exchange.body:
                await asyncio.Event().wait()
            await super()._post(exchange, name)

    connecting = Connecting(UpstreamMetrics(CollectorRegistry()), "upstreams.json", children_shared_by_callers(0))
    with Slow() as server:
        file = written(tmp_path / "upstreams.json", one=entry(server.url, era="session", max_connections=4))
        (definition,) = UpstreamReader(Path(file)).read().definitions
        connection = connecting.connect(definition)

        def call(tool: str, caller: UpstreamCaller) -> asyncio.Task[dict[str, Any]]:
            params = {"name": tool, "arguments": {}}
            asking = connection.client.request("tools/call", params, requester=caller, seconds=1.5, max_bytes=1 << 20)
            return asyncio.create_task(asking)

        try:
            for number in range(1, 5):
                slow = call("slow", ADA)
                await until(lambda: server.ran.count(("s-1", "slow")) == number)  # noqa: B023 - it is called at once
                slow.cancel()
                await asyncio.wait({slow})
            assert (await call("count", BOB))["content"][0]["text"] == "2: 1"
        finally:
            await connection.aclose()
