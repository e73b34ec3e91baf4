"""Server objects in this process: real ones of the `mcp` SDK 2, ASGI applications, and what may be wrong with them."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import mcp_types
import pytest
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from prometheus_client import CollectorRegistry

from gateway.children.children import Children
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.process.upstreams import Connecting, UpstreamConnection
from gateway.upstreams.client import in_process
from gateway.upstreams.config.checks import object_problems
from gateway.upstreams.config.definition import Definition, UpstreamFile
from gateway.upstreams.failures import Reason, UpstreamFailure
from gateway.upstreams.ports import NOBODY
from tests.waiting import until

NAME = "bugs_server"
SECONDS = 20.0
WHO = contextvars.ContextVar("who", default="nobody")


class Lifespans:
    """Counts how often a server is started and stopped."""

    def __init__(self) -> None:
        self.started = self.stopped = 0

    @contextlib.asynccontextmanager
    async def __call__(self, _server: object) -> AsyncIterator[dict[str, int]]:
        self.started += 1
        yield {"started": self.started}
        self.stopped += 1


def sdk_server(lifespan: Any = None) -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("bugs", lifespan=lifespan, log_level="ERROR")

    @server.tool()
    async def who() -> str:
        return WHO.get()

    return server


def low_level_server(lifespan: Any = None) -> Server[Any]:
    async def list_tools(_context: Any, _params: Any) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(tools=[mcp_types.Tool(name="who", input_schema={"type": "object"})])

    async def call_tool(_context: Any, _params: Any) -> mcp_types.CallToolResult:
        return mcp_types.CallToolResult(content=[mcp_types.TextContent(type="text", text=WHO.get())])

    given = {} if lifespan is None else {"lifespan": lifespan}
    return Server("bugs", on_list_tools=list_tools, on_call_tool=call_tool, **given)


class Objects:
    """A module of this process, and the gateway's clients of what is in it."""

    def __init__(self) -> None:
        self.module = ModuleType(NAME)
        self.connecting = Connecting(UpstreamMetrics(CollectorRegistry()), "upstreams.json", Children(0))

    def put(self, name: str, found: object) -> None:
        setattr(self.module, name, found)

    def connect(self, name: str, found: object = None, **options: Any) -> UpstreamConnection:
        """Return a client of an object of the module, which may be put there."""
        if found is not None:
            self.put(name, found)
        return self.connecting.connect(Definition("bugs", "bugs", "python", python=f"{NAME}:{name}", **options))

    async def aclose(self) -> None:
        await self.connecting.objects.aclose()


@pytest.fixture
async def objects(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Objects]:
    objects = Objects()
    monkeypatch.setitem(sys.modules, NAME, objects.module)
    yield objects
    await objects.aclose()


async def call(connection: UpstreamConnection, seconds: float = SECONDS) -> str:
    params = {"name": "who", "arguments": {}}
    result = await connection.client.request(
        "tools/call", params, requester=NOBODY, seconds=seconds, max_bytes=1_000_000
    )
    return str(result["content"][0]["text"])


async def failure(connection: UpstreamConnection, seconds: float = SECONDS) -> UpstreamFailure:
    with pytest.raises(UpstreamFailure) as failed:
        await call(connection, seconds)
    return failed.value


KINDS: Mapping[str, Callable[[Any], object]] = {
    "a server of the SDK": sdk_server,
    "a low-level server": low_level_server,
    "an ASGI application": lambda lifespan: sdk_server(lifespan).streamable_http_app(),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_an_object_is_called_and_its_lifespan_is_entered_once(objects: Objects, kind: str) -> None:
    lifespans = Lifespans()
    connections = [objects.connect("mcp", KINDS[kind](lifespans)), objects.connect("mcp")]
    assert lifespans.started == 0
    calls = [call(connection) for connection in connections for _ in range(10)]
    assert await asyncio.gather(*calls) == ["nobody"] * 20
    assert connections[0].client.era == "stateless"
    for connection in connections:
        await connection.aclose()
    assert (lifespans.started, lifespans.stopped) == (1, 0), "it does not end with a connection"
    await objects.aclose()
    assert (lifespans.started, lifespans.stopped) == (1, 1)


async def test_an_object_may_be_inside_another_one(objects: Objects) -> None:
    objects.put("box", SimpleNamespace(mcp=sdk_server()))
    assert await call(objects.connect("box.mcp")) == "nobody"


async def test_an_application_may_serve_at_another_path_and_have_no_lifespan(objects: Objects) -> None:
    served = sdk_server().streamable_http_app(streamable_http_path="/elsewhere")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        await served(scope, receive, send)

    async with served.router.lifespan_context(served):
        assert await call(objects.connect("app", app, path="/elsewhere")) == "nobody"
        assert (await failure(objects.connect("app"))).reason is Reason.NOT_FOUND


async def test_what_a_lifespan_keeps_is_there_for_each_request(objects: Objects) -> None:
    served = sdk_server().streamable_http_app()
    kept: list[object] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            scope["state"]["pool"] = "a pool"
        else:
            kept.append(scope["state"].get("pool"))
        await served(scope, receive, send)

    await call(objects.connect("app", app))
    assert set(kept) == {"a pool"}


async def test_no_request_runs_in_the_context_of_another_one(objects: Objects) -> None:
    connection = objects.connect("mcp", sdk_server())
    WHO.set("the first caller")
    assert await call(connection) == "nobody"


class Nothing:
    """It is not a server."""


@pytest.mark.parametrize(
    ("found", "kind"), [(3, "int"), (Nothing(), "Nothing"), (MCPServer, "type"), (lambda: None, "function")]
)
async def test_an_object_that_is_not_a_server_is_named(objects: Objects, found: object, kind: str) -> None:
    failed = await failure(objects.connect("mcp", found))
    assert failed.reason is Reason.UNREACHABLE
    assert not failed.sent
    assert failed.detail.startswith(f"an object of type {kind} is not an MCP server; name a server of")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise ValueError('no\\ndatabase')", "ValueError: no database"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
async def test_a_module_that_fails_is_a_failure_of_its_upstream(
    objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    (tmp_path / "failing_server.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    definition = Definition("bugs", "bugs", "python", python="failing_server:mcp")
    failed = await failure(objects.connecting.connect(definition))
    assert failed.detail == f"its module 'failing_server' fails when it is imported: {said}"
    assert list(object_problems(UpstreamFile((definition,)), "upstreams.json")) == []


def test_what_cannot_be_imported_is_one_line_that_names_the_way_out(
    objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needing_server.py").write_text("import no_such_package")
    monkeypatch.syspath_prepend(tmp_path)
    references = ("no_such_server:mcp", "needing_server:mcp", f"{NAME}:none", f"{NAME}:__name__.none")
    found = UpstreamFile(tuple(Definition("bugs", "bugs", "python", python=each) for each in references))
    start, out = (
        "upstreams.json: bugs: python: ",
        "install it in the gateway's environment, or run the server as a program",
    )
    assert list(object_problems(found, "upstreams.json")) == [
        f"{start}'no_such_server:mcp' cannot be imported by the gateway: ModuleNotFoundError: No module named "
        f'\'no_such_server\'; {out}: {{"command": "python", "args": ["-m", "no_such_server"]}}',
        f"{start}'needing_server:mcp' cannot be imported by the gateway: ModuleNotFoundError: No module named "
        f'\'no_such_package\'; {out}: {{"command": "python", "args": ["-m", "needing_server"]}}',
        f"{start}the module '{NAME}' has no 'none'; name a server object in it",
        f"{start}the module '{NAME}' has no '__name__.none'; name a server object in it",
    ]


async def test_a_lifespan_that_fails_is_tried_again(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "PAUSE_SECONDS", 0)
    lifespans, failures = Lifespans(), [RuntimeError("no database"), SystemExit(1)]

    @contextlib.asynccontextmanager
    async def lifespan(server: object) -> AsyncIterator[dict[str, int]]:
        if failures:
            raise failures.pop(0)
        async with lifespans(server) as state:
            yield state

    connection = objects.connect("mcp", sdk_server(lifespan))
    failed = await failure(connection)
    assert failures == []
    assert (failed.reason, failed.sent) == (Reason.UNREACHABLE, False)
    assert failed.detail in {"its lifespan fails: RuntimeError: no database", "its lifespan fails: SystemExit: 1"}
    assert await call(connection) == "nobody"


async def test_a_lifespan_that_fails_is_left_alone_for_a_moment(objects: Objects) -> None:
    starts = 0

    @contextlib.asynccontextmanager
    async def lifespan(_server: object) -> AsyncIterator[None]:
        nonlocal starts
        starts += 1
        if starts:
            raise RuntimeError("no database")
        yield

    connection = objects.connect("mcp", sdk_server(lifespan))
    await asyncio.gather(*(failure(connection) for _ in range(10)))
    assert starts == 1


async def test_a_lifespan_that_hangs_is_ended_and_calls_do_not_wait_for_it(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.Event()

    @contextlib.asynccontextmanager
    async def lifespan(_server: object) -> AsyncIterator[None]:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        yield

    connection = objects.connect("mcp", sdk_server(lifespan))
    assert (await failure(connection, 0.2)).detail == "its lifespan has not started yet"
    assert not ended.is_set()
    async with asyncio.timeout(2):
        await objects.aclose()
    assert ended.is_set()
    monkeypatch.setattr(in_process, "START_SECONDS", 0.1)
    assert (
        await failure(objects.connect("other", sdk_server(lifespan)))
    ).detail == "its lifespan does not start within 0 seconds"


async def test_an_object_that_ends_by_itself_is_logged_and_started_again(
    objects: Objects, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(in_process, "STOP_SECONDS", 0.1)
    breaks, lifespans = asyncio.Event(), Lifespans()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            return await served(scope, receive, send)
        await receive()
        await send({"type": "lifespan.startup.complete"})
        async with lifespans(app):
            await breaks.wait()
            breaks.clear()
            raise RuntimeError("lost its database")

    served = sdk_server().streamable_http_app()
    connection = objects.connect("app", app)
    async with served.router.lifespan_context(served):
        assert await call(connection) == "nobody"
        breaks.set()
        await until(lambda: any(record.message == "server object ended" for record in caplog.records))
        assert (await failure(connection)).detail == "its lifespan fails: RuntimeError: lost its database"
        await asyncio.sleep(in_process.PAUSE_SECONDS)
        assert await call(connection) == "nobody"
    assert lifespans.started == 2
    (record,) = [record for record in caplog.records if record.message == "server object ended"]
    assert (record.levelno, vars(record)["object"]) == (logging.WARNING, f"{NAME}:app")
    assert vars(record)["reason"] == "its lifespan fails: RuntimeError: lost its database"


async def test_an_object_that_does_not_end_is_left_behind(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "STOP_SECONDS", 0.1)

    @contextlib.asynccontextmanager
    async def lifespan(_server: object) -> AsyncIterator[None]:
        yield
        await asyncio.Event().wait()

    assert await call(objects.connect("mcp", sdk_server(lifespan))) == "nobody"
    async with asyncio.timeout(2):
        await objects.aclose()
