"""Published servers on standard streams, behind two replicas: each result is that of a direct call, to the byte."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from gateway.auth.tokens import mint
from gateway.children.environment import environment
from tests.children.running import alive
from tests.integration.client import connect
from tests.integration.clients.written import Written, read_from_both
from tests.integration.frameworks.known import PEERS
from tests.upstreams.servers.plain_http import HOST, Exchange, PlainServer
from tests.upstreams.site import Site
from tests.waiting import until
from tests.wires.draft.deployment import AUDIENCE, SECRET
from tests.wires.draft.messages import call_params

TOKEN = mint(SECRET, "ada", AUDIENCE)
PYTHON, NODE = PEERS / "stdio-servers/bin", PEERS / "published"
NOON = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Kathmandu"}
TIMES = re.compile(rb"\d{4}-\d\d-\d\d[T ][0-9:.+-]+Z?")
THOUGHT = {"thought": "One.", "thoughtNumber": 1, "totalThoughts": 2, "nextThoughtNeeded": True}
NOT_IN_GIT = "it changes the repository"
NOT_IN_MEMORY = "both replicas write one file, so the second one finds what the first one wrote"


@dataclass(frozen=True)
class Published:
    """A server, and a call of each of its tools that changes nothing outside of the folder of the test.

    `FOLDER` and `PAGE` in the arguments stand for that folder, and for a page on this machine. `left_out` are the tools
    that are not called, each with the reason.
    """

    command: Sequence[str]
    calls: Mapping[str, Mapping[str, Any]]
    left_out: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


def of_node(package: str, *args: str) -> Sequence[str]:
    return [str(NODE / "bin/node"), str(NODE / f"node_modules/@modelcontextprotocol/{package}/dist/index.js"), *args]


PROGRAMS: Mapping[str, Published] = {
    "time": Published(
        [str(PYTHON / "mcp-server-time"), "--local-timezone=Asia/Kathmandu"],
        {"convert_time": NOON, "get_current_time": {"timezone": "Asia/Kathmandu"}},
    ),
    "git": Published(
        [str(PYTHON / "mcp-server-git"), "--repository", "FOLDER/repository"],
        {
            "git_status": {"repo_path": "FOLDER/repository"},
            "git_diff_unstaged": {"repo_path": "FOLDER/repository"},
            "git_diff_staged": {"repo_path": "FOLDER/repository"},
            "git_diff": {"repo_path": "FOLDER/repository", "target": "HEAD"},
            "git_log": {"repo_path": "FOLDER/repository"},
            "git_show": {"repo_path": "FOLDER/repository", "revision": "HEAD"},
            "git_branch": {"repo_path": "FOLDER/repository", "branch_type": "local"},
        },
        dict.fromkeys(("git_commit", "git_add", "git_reset", "git_create_branch", "git_checkout"), NOT_IN_GIT),
    ),
    "fetch": Published([str(PYTHON / "mcp-server-fetch"), "--ignore-robots-txt"], {"fetch": {"url": "PAGE"}}),
    "files": Published(
        of_node("server-filesystem", "FOLDER/files"),
        {
            "read_file": {"path": "FOLDER/files/a.txt"},
            "read_text_file": {"path": "FOLDER/files/a.txt"},
            "read_media_file": {"path": "FOLDER/files/dot.png"},
            "read_multiple_files": {"paths": ["FOLDER/files/a.txt", "FOLDER/files/none.txt"]},
            "write_file": {"path": "FOLDER/files/written.txt", "content": "ü"},
            "edit_file": {
                "path": "FOLDER/files/a.txt",
                "edits": [{"oldText": "hello", "newText": "bye"}],
                "dryRun": True,
            },
            "create_directory": {"path": "FOLDER/files/inner"},
            "list_directory": {"path": "FOLDER/files"},
            "list_directory_with_sizes": {"path": "FOLDER/files"},
            "directory_tree": {"path": "FOLDER/files"},
            "search_files": {"path": "FOLDER/files", "pattern": "*.txt"},
            "get_file_info": {"path": "FOLDER/files/a.txt"},
            "list_allowed_directories": {},
        },
        {"move_file": "it could be called only once"},
    ),
    "memory": Published(
        of_node("server-memory"),
        {"read_graph": {}, "search_nodes": {"query": "x"}, "open_nodes": {"names": ["x"]}},
        dict.fromkeys(
            (
                *("create_entities", "create_relations", "add_observations"),
                *("delete_entities", "delete_observations", "delete_relations"),
            ),
            NOT_IN_MEMORY,
        ),
        {"MEMORY_FILE_PATH": "FOLDER/memory.jsonl"},
    ),
    "thinking": Published(of_node("server-sequential-thinking"), {"sequentialthinking": THOUGHT}),
    "everything": Published(
        of_node("server-everything"),
        {
            "echo": {"message": "ü \u2028 \U0001f511"},
            "get-annotated-message": {"messageType": "error", "includeImage": True},
            "get-resource-links": {"count": 3},
            "get-resource-reference": {"resourceType": "Text", "resourceId": 1},
            "get-structured-content": {"location": "Chicago"},
            "get-sum": {"a": 1, "b": 2},
            "get-tiny-image": {},
            "trigger-long-running-operation": {"duration": 0.2, "steps": 2},
        },
        {
            "get-env": "its variables differ in one, the mark of a child",
            "gzip-file-as-resource": "it loads from the network",
            "toggle-simulated-logging": "it goes on sending",
            "toggle-subscriber-updates": "it goes on sending",
            "simulate-research-query": "it is a task",
        },
    ),
}
CALLS = [(name, tool) for name, program in PROGRAMS.items() for tool in program.calls]


class Places:
    """The folder and the page of the tests."""

    def __init__(self, folder: Path, page: str) -> None:
        self._places = {"FOLDER": str(folder), "PAGE": page}
        self.folder = folder

    def put(self, value: Any) -> Any:
        """Return a value with both in their places."""
        text = json.dumps(value)
        for name, place in self._places.items():
            text = text.replace(name, place)
        return json.loads(text)

    def entry(self, program: Published) -> dict[str, Any]:
        command, *args = self.put(list(program.command))
        return {"command": command, "args": args, "env": self.put(dict(program.env)), "gateway": {}}


class Direct:
    """A program that is called without the gateway; a context manager."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self._process = subprocess.Popen(
            [entry["command"], *entry["args"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(os.environ, entry["env"]),
        )
        self._number = 0

    def __enter__(self) -> Self:
        client = {"name": "sealed-gateway", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        self._send({"method": "notifications/initialized"})
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, method: str, params: Mapping[str, Any]) -> Written:
        """Return the result of a request."""
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"{") and json.loads(line).get("id") == self._number:
                return Written.of_message(line)
        raise AssertionError(f"no answer to {method}")

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()


async def page(exchange: Exchange) -> None:
    body = b"<html><head><title>A page</title></head><body><h1>Title</h1><p>Some text.</p></body></html>"
    exchange.reply(200, body, [("content-type", "text/html")])


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    folder = tmp_path_factory.mktemp("published")
    (folder / "files").mkdir()
    (folder / "files/a.txt").write_text("hello, hello\n")
    (folder / "files/dot.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (folder / "repository").mkdir()
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    for command in (["init", "--quiet"], [*who, "commit", "--quiet", "--allow-empty", "--message", "first"]):
        subprocess.run(["git", *command], cwd=folder / "repository", check=True)
    with PlainServer(page) as server:
        yield Places(folder, f"http://{HOST}:{server.port}/page")


@pytest.fixture(scope="module")
def direct(places: Places) -> Iterator[Mapping[str, Direct]]:
    servers = {name: Direct(places.entry(program)) for name, program in PROGRAMS.items()}
    try:
        for server in servers.values():
            server.__enter__()
        yield servers
    finally:
        for server in servers.values():
            server.__exit__()


@pytest.fixture(scope="module")
def site(places: Places, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    upstreams = {name: places.entry(program) for name, program in PROGRAMS.items()}
    with Site(tmp_path_factory.mktemp("site"), upstreams) as site:
        site.wait_listed()
        yield site


@pytest.mark.parametrize("name", PROGRAMS)
async def test_every_tool_is_listed_and_is_called_here_or_says_why_not(
    site: Site, direct: Mapping[str, Direct], name: str
) -> None:
    tools = {tool["name"] for tool in json.loads(direct[name].ask("tools/list", {})["tools"])}
    program = PROGRAMS[name]
    assert tools == program.calls.keys() | program.left_out.keys()
    async with site.user() as user:
        for _ in site.urls:
            assert {f"{name}__{tool}" for tool in tools} <= set(await user.names())


@pytest.mark.parametrize(("name", "tool"), CALLS)
async def test_a_result_is_that_of_a_direct_call(
    site: Site, direct: Mapping[str, Direct], places: Places, name: str, tool: str
) -> None:
    arguments = places.put(PROGRAMS[name].calls[tool])
    expected = masked(direct[name].ask("tools/call", {"name": tool, "arguments": arguments}).with_prefix(name))
    assert "content" in dict(expected)
    async with site.user() as user:
        params = call_params(f"{name}__{tool}", arguments)
        for result in await read_from_both(site, user, "tools/call", params):
            assert masked(result) == expected


def masked(result: Written) -> list[tuple[str, bytes]]:
    """Return what the server wrote, without times."""
    return [(name, TIMES.sub(b"TIME", member)) for name, member in result.own()]


async def test_the_directories_of_a_caller_reach_no_server(site: Site, places: Places) -> None:
    async with connect(site, {}, token=TOKEN, roots=["file:///etc"]) as connection:
        for _ in site.urls:
            text, _ = await connection.call("files__list_allowed_directories", {})
            assert text == f"Allowed directories:\n{places.folder / 'files'}"
            text, is_error = await connection.call("files__read_text_file", {"path": "/etc/hostname"})
            assert is_error
            assert "Access denied" in text


async def test_they_end_with_their_replica(site: Site, places: Places, direct: Mapping[str, Direct]) -> None:
    mark = str(places.folder / "files")
    assert direct.keys() == PROGRAMS.keys()
    assert len(alive(mark)) == 3, "one of them is called without the gateway"
    for replica in site.replicas:
        replica.kill()
    async with asyncio.timeout(5):
        await until(lambda: len(alive(mark)) == 1)
