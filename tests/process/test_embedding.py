"""A gateway in another FastAPI application, under plain uvicorn."""

from __future__ import annotations

import re
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import mcp_types
import msgspec
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from loadtest.cluster import Replica, new_key
from loadtest.cluster.common import LoggedProcess
from tests.identity import ISSUER
from tests.integration.clients.sdk_client import text_of
from tests.integration.raw import headers_of, post, request, tool_call
from tests.integration.streams import Stream, asking

pytestmark = pytest.mark.slow

SETTINGS: Final = {"GATEWAY_SEAL_KEYS": new_key(), "GATEWAY_AUDIENCE": "tests", "GATEWAY_AUTH": "none"}
LISTEN: Final = asking("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
SECONDS: Final = 10.0
JSON: Final = "content-type: application/json"
ECHO: Final = tool_call("echo", {"text": "hello"})
CALL: Final = "\r\n".join(f"{name}: {value}" for name, value in headers_of(ECHO).items())
ASKED: Final = [
    (f"POST /mcp HTTP/1.1\r\n{CALL}", msgspec.json.encode(ECHO)),
    (f"POST /mcp HTTP/1.1\r\n{CALL}\r\norigin: http://localhost", msgspec.json.encode(ECHO)),
    (f"POST /mcp HTTP/1.1\r\n{CALL}\r\norigin: https://evil.example.com", msgspec.json.encode(ECHO)),
    (f"POST /mcp HTTP/1.1\r\n{JSON}", b"{"),
    (f"POST /mcp HTTP/1.1\r\n{JSON}", b" " * 5000),
    *(
        (f"POST {path} HTTP/1.1\r\n{CALL}", msgspec.json.encode(ECHO))
        for path in ("/mcp/", "/MCP", "/%6dcp", "/mcp%0A")
    ),
    *((f"{method} /mcp HTTP/1.1", b"") for method in ("GET", "HEAD", "DELETE", "OPTIONS")),
    ("OPTIONS /mcp HTTP/1.1\r\norigin: http://localhost", b""),
    ("POST /_gateway/hop HTTP/1.1", b"nobody"),
    ("GET /healthz HTTP/1.1", b""),
    ("GET /nothing HTTP/1.1", b""),
]
"""Heads of requests, without the empty line, and bodies."""


class Host(LoggedProcess):
    """`uvicorn` with an application and options."""

    def __init__(self, directory: Path, *options: str, app: str = "tests.process.host:app", **environ: str) -> None:
        super().__init__("host", {**SETTINGS, "TEST_HOST_SERVES": "1", **environ}, directory / "host.log")
        self.origin = f"http://127.0.0.1:{self._keep_port()}"
        self._options = (app, *options)

    @property
    def url(self) -> str:
        """The MCP endpoint."""
        return f"{self.origin}/tools/mcp"

    def _command(self) -> Sequence[str]:
        port = self.origin.rpartition(":")[2]
        return [sys.executable, "-m", "uvicorn", "--port", port, *self._options]

    def wait_ready(self) -> None:
        """Wait until it answers."""
        self._wait_started(lambda: "Uvicorn running on" in self._text_since_start())

    def get(self, path: str) -> httpx.Response:
        """Send a GET request."""
        return httpx.get(f"{self.origin}{path}", timeout=SECONDS, trust_env=False)

    def __enter__(self) -> Host:
        """Start it."""
        self.start()
        self.wait_ready()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.end()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with Host(tmp_path_factory.mktemp("host")) as host:
        yield host


def test_a_body_that_stops_does_not_keep_its_connection(tmp_path: Path) -> None:
    with Host(tmp_path, GATEWAY_BODY_SECONDS="1") as host:
        origin = "http://localhost:3000"
        lines = ("POST /tools/mcp HTTP/1.1", "host: 127.0.0.1", f"origin: {origin}", CALL, "content-length: 100")
        head = "\r\n".join([*lines, "", ""])
        port = int(host.origin.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
            connection.sendall(head.encode() + b"{")
            response = HTTPResponse(connection)
            response.begin()
            assert (response.status, response.headers["connection"]) == (408, "close")
            assert response.headers["access-control-allow-origin"] == origin
            assert "took too long" in msgspec.json.decode(response.read())["error"]["message"]
            assert connection.recv(1) == b""
        assert "ASGI callable" not in host._text_since_start()


async def test_the_official_client_finishes_a_call_of_two_rounds(host: Host) -> None:
    questions: list[str] = []

    async def answer(context: Any, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        questions.append(params.message)
        assert isinstance(params, mcp_types.ElicitRequestFormParams)
        (name,) = params.requested_schema["properties"]
        return mcp_types.ElicitResult(action="accept", content={name: {"name": "Ada", "mood": "well"}[name]})

    async with Client(streamable_http_client(host.url), elicitation_callback=answer) as client:
        assert text_of(await client.call_tool("greet")) == "Hello Ada, who is well"
        assert text_of(await client.call_tool("blocking")) == "done"
    assert questions == ["Who are you?", "How are you?"]


def test_the_routes_of_the_host_are_served_as_before(host: Host) -> None:
    assert host.get("/").json() == "Good morning"
    assert host.get("/tools/readyz").json() == {"status": "ready", "clock": {}}
    assert list(host.get("/openapi.json").json()["paths"]) == ["/"]


def test_a_stream_that_is_held_ends_at_sigterm_and_the_host_exits_cleanly(tmp_path: Path) -> None:
    with Host(tmp_path, TEST_HOST_DRAINS="1") as host, Stream(host, LISTEN) as stream:
        assert stream.next()["method"] == "notifications/subscriptions/acknowledged"
        began = time.monotonic()
        host.signal(signal.SIGTERM)
        (last,) = stream.rest()
        assert last["result"]["resultType"] == "complete"
        # After everything is closed, uvicorn raises the signal again and ends by it.
        assert host.wait(SECONDS) == -signal.SIGTERM
        assert time.monotonic() - began < SECONDS
        log = host.log_text()
        assert log.count("host closed") == 1
        assert "Application shutdown complete" in log
        assert "Finished server process" in log
        assert "Traceback" not in log
        assert "ERROR" not in log


def test_a_limit_of_uvicorn_ends_a_held_stream_where_the_host_has_no_hook(tmp_path: Path) -> None:
    with Host(tmp_path, "--timeout-graceful-shutdown", "1") as host, Stream(host, LISTEN) as stream:
        assert stream.next()["method"] == "notifications/subscriptions/acknowledged"
        host.signal(signal.SIGTERM)
        assert host.wait(SECONDS) == -signal.SIGTERM
        assert "host closed" in host.log_text()
        assert "Application shutdown complete" in host.log_text()


def test_behind_a_proxy_that_strips_a_path_metadata_and_challenges_name_the_whole_url(tmp_path: Path) -> None:
    identity = {
        "GATEWAY_AUTH": "jwt",
        "GATEWAY_JWT_SECRET": "0123456789abcdef0123456789abcdef",
        "GATEWAY_JWT_ISSUER": ISSUER,
        "GATEWAY_PUBLIC_URL": "https://example.com/api/tools",
    }
    with Host(tmp_path, "--root-path", "/api", **identity) as host:
        refused = post(host, tool_call("greet"))
        assert refused.status == 401
        url = "https://example.com/.well-known/oauth-protected-resource/api/tools/mcp"
        assert f'resource_metadata="{url}"' in refused.headers["www-authenticate"]
        for path in ("/tools/mcp", "/api/tools/mcp"):
            found = host.get(f"/.well-known/oauth-protected-resource{path}")
            assert found.json()["resource"] == "https://example.com/api/tools/mcp"
        assert host.get("/tools/healthz").json() == {"status": "alive"}


def test_a_host_whose_lifespan_is_off_says_so_at_the_first_request(tmp_path: Path) -> None:
    with Host(tmp_path, "--lifespan", "off") as host:
        refused = post(host, request("tools/list"))
        assert refused.error == (500, -32603)
        assert (
            "the lifespan of the application that it is mounted in has not run" in refused.message["error"]["message"]
        )
        assert "give `gateway.mount` the application that the server runs" in host.log_text()


def test_a_start_that_fails_names_what_to_change(tmp_path: Path) -> None:
    host = Host(tmp_path, GATEWAY_SEAL_KEYS="short")
    try:
        host.start()
        assert host.wait(SECONDS) != 0
        assert "GATEWAY_SEAL_KEYS" in host.log_text()
    finally:
        host.end()


def test_gateway_serve_and_the_application_under_plain_uvicorn_answer_alike(tmp_path: Path) -> None:
    """All headers except those of the server itself: the date, and whether the connection stays open."""
    settings = {**SETTINGS, "GATEWAY_TOOLS": "tests.integration.tools", "GATEWAY_REPLICA_ID": "r1"}
    settings["GATEWAY_MAX_BODY_BYTES"] = "4096"
    replica = Replica("r1", settings, tmp_path / "replica.log")
    alone = Host(tmp_path, "--factory", "--no-server-header", app="gateway.process.app:create_app", **settings)
    try:
        for process in (replica, alone):
            process.start()
            process.wait_ready()
        for head, body in ASKED:
            served, hosted = (answer_of(origin_of(process.url), head, body) for process in (replica, alone))
            assert served == hosted, head
    finally:
        replica.end()
        alone.end()


def origin_of(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def answer_of(address: tuple[str, int], head: str, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
    """Send a request on a new connection, and return the raw response."""
    with socket.create_connection(address, timeout=SECONDS) as connection:
        connection.sendall(f"{head}\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        response = HTTPResponse(connection, method=head.partition(" ")[0])
        response.begin()
        headers = [(name.lower(), value) for name, value in response.getheaders()]
        told = [field for field in headers if field[0] not in {"date", "connection"}]
        return response.status, told, response.read()


def test_a_mounted_gateway_leaves_signals_to_its_host(host: Host) -> None:
    caught = re.search(r"SigCgt:\s+(\w+)", Path(f"/proc/{host.pid}/status").read_text())
    assert caught is not None
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        assert not int(caught[1], 16) & 1 << (number - 1)
