"""The examples of `docs/build/protocol.md` are sent to a real replica, which must answer as the page shows."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.auth.tokens import mint
from gateway.errors import MethodNotFound
from gateway.protocol import method_table
from gateway.protocol.versions import BEFORE_TASKS, DRAFT, LEGACY, LEGACY_VERSIONS, RELEASED
from loadtest.cluster import Replica, wait_until
from tests.docs.markdown import Block, blocks_of, rows_of, section_of
from tests.integration.fleet import Fleet
from tests.storage.servers import Server

PAGE: Final = "docs/build/protocol.md"
SECRET: Final = "a secret that only this test knows, 32 bytes"
BLOCKS: Final = [block for block in blocks_of(PAGE) if block.language == "http"]
LEFT_OUT: Final = "…"
NAMED: Final = re.compile(r"<(\w+)>")
POLLED: Final = "tasks/get"


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    """A replica with the demo tools, a task store and a worker."""
    with tempfile.TemporaryDirectory(prefix="gw-") as short:
        store = Server("redis", Path(short))
        store.start()
        settings = {
            "GATEWAY_TOOLS": "gateway.demo",
            "GATEWAY_AUTH": "jwt",
            "GATEWAY_JWT_SECRET": SECRET,
            "GATEWAY_REDIS_URL": store.url,
        }
        with Fleet(tmp_path_factory.mktemp("protocol"), settings, names=["r1"]) as fleet:
            fleet.add_worker("w1")
            yield fleet["r1"]
        store.end()


@dataclass(frozen=True)
class Written:
    """A request or an answer as the page has it."""

    place: str
    start: str
    headers: Mapping[str, str]
    body: str

    @classmethod
    def read(cls, block: Block) -> Written:
        if block.text.startswith("data:"):
            return cls(block.place, "", {}, block.text)
        head, _, body = block.text.partition("\n\n")
        start, *lines = head.splitlines()
        return cls(block.place, start, dict(line.split(": ", 1) for line in lines), body)

    @property
    def status(self) -> int:
        return int(self.start.split()[1])

    @property
    def events(self) -> list[Any]:
        return [_event(text) for text in self.body.strip().split("\n\n")]


def _event(text: str) -> Any:
    return json.loads("\n".join(line.removeprefix("data:") for line in text.splitlines()))


class Reader:
    """Sends written requests and compares the answers; names in angle brackets keep their first value."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.names: dict[str, str] = {}
        self.stream: http.client.HTTPResponse | None = None
        self.connections = contextlib.ExitStack()
        self.token = mint(SECRET, "reader", "tests")

    def play(self, request: Written, answer: Written) -> None:
        """Send a request, and compare its answer; a task is polled until it has the status shown."""
        if f'"{POLLED}"' in request.body:
            wait_until(lambda: _status(self.send(request)) == _status(answer.body), f"{answer.place} to be true")
        self.compare(answer, self.send(request))

    def send(self, request: Written) -> http.client.HTTPResponse | str:
        """Return the body of an answer, or the response where it is a stream."""
        connection = http.client.HTTPConnection(*self.replica.address, timeout=20)
        headers = {name: self.filled(value) for name, value in request.headers.items()} | {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Authorization": f"Bearer {self.token}",
        }
        connection.request("POST", "/mcp", self.filled(request.body).encode(), headers)
        self.response = connection.getresponse()
        if self.response.getheader("content-type") == "text/event-stream":
            self.connections.callback(connection.close)
            return self.response
        with contextlib.closing(connection):
            return self.response.read().decode()

    def compare(self, answer: Written, body: http.client.HTTPResponse | str) -> None:
        assert self.response.status == answer.status, (answer.place, body)
        for name, value in answer.headers.items():
            self.match(value, self.response.getheader(name), answer.place)
        if isinstance(body, str):
            assert bool(body) == bool(answer.body), answer.place
            if body:
                self.match(json.loads(answer.body), json.loads(body), answer.place)
        else:
            self.stream = body
            self.compare_events(answer)

    def compare_events(self, answer: Written) -> None:
        """Compare the next events of the stream that was opened last."""
        assert self.stream is not None
        for event in answer.events:
            lines: list[str] = []
            while line := self.stream.readline().decode().strip():
                lines.append(line)
            self.match(event, _event("\n".join(lines)), answer.place)
        if "result" in answer.events[-1]:
            assert self.stream.read() == b""
            self.stream.close()
            self.stream = None

    def match(self, written: Any, real: Any, place: str) -> None:
        """Compare values; `_meta` counts where it is written."""
        if isinstance(written, dict):
            assert isinstance(real, dict), place
            assert written.keys() == real.keys() - ({"_meta"} - written.keys()), (place, real)
            for key, value in written.items():
                self.match(value, real[key], place)
        elif isinstance(written, list):
            assert len(written) == len(real), (place, real)
            for one, other in zip(written, real, strict=True):
                self.match(one, other, place)
        elif isinstance(written, str) and (name := NAMED.fullmatch(written)):
            assert isinstance(real, str), place
            if name[1] == "requestState" or self.names.setdefault(name[1], real) == real:
                self.names[name[1]] = real
                return
            pytest.fail(f"{place}: {written} is another one than before")
        elif written != LEFT_OUT:
            assert written == real, (place, real)

    def filled(self, text: str) -> str:
        return NAMED.sub(lambda name: self.names[name[1]], text)


def _status(body: http.client.HTTPResponse | str) -> Any:
    assert isinstance(body, str)
    return json.loads(body)["result"]["status"]


def test_each_request_is_answered_as_the_page_says(replica: Replica) -> None:
    reader = Reader(replica)
    pending: Written | None = None
    with reader.connections:
        for written in map(Written.read, BLOCKS):
            if written.start.startswith("POST "):
                assert pending is None, f"{written.place}: the request before it has no answer"
                pending = written
            elif not written.start:
                reader.compare_events(written)
            else:
                assert pending is not None, f"{written.place}: what is it the answer to?"
                reader.play(pending, written)
                pending = None
    assert pending is None
    assert reader.stream is None
    assert {"requestState", "session", "question", "taskId"} == reader.names.keys()


METHODS: Final = rows_of(section_of(PAGE, "Methods"), 5)
COLUMNS: Final = (RELEASED, LEGACY, BEFORE_TASKS, DRAFT)
VERSIONS: Final = (RELEASED, *LEGACY_VERSIONS, DRAFT)


def answers(replica: Replica, method: str, version: str, sessions: dict[str, str]) -> bool:
    """Return whether a method exists in a version, even if the request is wrong in other ways."""
    connection = http.client.HTTPConnection(*replica.address, timeout=20)
    params: dict[str, Any] = {}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {mint(SECRET, 'reader', 'tests')}"}
    if method == "initialize":
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    if version == RELEASED:
        names = {"protocolVersion": version, "clientCapabilities": {}}
        params |= {"_meta": {f"io.modelcontextprotocol/{name}": value for name, value in names.items()}}
        headers |= {"MCP-Protocol-Version": version, "Mcp-Method": method}
    elif version in sessions:
        headers["Mcp-Session-Id"] = sessions[version]
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    connection.request("POST", "/mcp", body, headers)
    response = connection.getresponse()
    with contextlib.closing(connection):
        told = json.loads(response.read())
    sessions.setdefault(version, response.getheader("mcp-session-id") or "")
    return "error" not in told or told["error"]["code"] != MethodNotFound.CODE


ROWS: Final = {method: cells for names, *cells in METHODS for method in re.findall(r"`([\w/]+)`", names)}


def test_the_page_has_each_method_of_the_table_and_says_which_versions_have_it() -> None:
    table = {
        method.name: [
            "no" if version not in method.versions else "with identity" if version in method.needs_identity else "yes"
            for version in COLUMNS
        ]
        for method in method_table.METHODS.values()
    }
    assert table == ROWS


def test_the_page_says_which_parameter_a_name_header_repeats() -> None:
    (rule,) = (rule for header, rule in rows_of(section_of(PAGE, "HTTP"), 2) if header == "`Mcp-Name`")
    told = {
        name: parameter
        for parameter, methods in re.findall(r"`params\.(\w+)` \((.*?)\)", rule)
        for pattern in re.findall(r"`(.+?)`", methods)
        for name in method_table.METHODS
        if fnmatch(name, pattern)
    }
    assert told == method_table.TARGETS


def test_the_table_of_methods_says_where_each_exists(replica: Replica) -> None:
    sessions: dict[str, str] = {}
    for version in VERSIONS[1:]:
        assert answers(replica, "initialize", version, sessions)
    # The demo has nothing that can be completed, so its replica has no such method.
    told = {
        (method, version): cells[COLUMNS.index(version if version in COLUMNS else BEFORE_TASKS)] != "no"
        for method, cells in ROWS.items()
        if not method_table.METHODS[method].is_notification and method != "completion/complete"
        for version in VERSIONS
    }
    assert {(method, version): answers(replica, method, version, sessions) for method, version in told} == told
