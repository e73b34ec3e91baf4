"""Published servers, in the files that people have, and the same programs called without the gateway."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from gateway.children.environment import environment
from loadtest.cluster import free_port, wait_until
from tests.integration.clients.written import Written
from tests.integration.frameworks.known import PEERS
from tests.upstreams.servers.plain_http import HOST, Exchange, PlainServer

HERE = Path(__file__).parent
CLIENTS = HERE.parent / "integration/clients"
FILES = ("reference", "office", "sdks")
TOOLS: Mapping[str, Sequence[str]] = {
    "stdio-servers": ("mcp-server-time", "mcp-server-git", "mcp-server-fetch"),
    "office-servers": ("excel-mcp-server", "mcp-server-motherduck", "markitdown-mcp", "office-word-mcp-server"),
}
"""The packages in each environment, as `uv tool install` would have them."""
NODE = PEERS / "published"
EVERYTHING = (
    str(NODE / "bin/node"),
    str(NODE / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"),
)
"""The command of server-everything, but for its transport."""
DOT = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c494441"
    "5478da63f8cfc0000003010100f70341430000000049454e44ae426082"
)


@dataclass(frozen=True)
class Calls:
    """The calls of one server.

    Attributes:
        calls: by tool; each one only once. `FOLDER` and `PAGE` in them stand for a folder, and a page on this machine.
        prepare: calls that make what the others need.
        left_out: the tools that are not called, each with the reason.
    """

    calls: Mapping[str, Mapping[str, Any]]
    prepare: Sequence[tuple[str, Mapping[str, Any]]] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)


CALLS = {name: Calls(**each) for name, each in json.loads((HERE / "calls.json").read_text()).items()}


def calls_of(server: str) -> Calls:
    """Return the calls of a server, which may have two transports."""
    return CALLS[server.removesuffix("-http")]


def entries_of(file: str) -> dict[str, dict[str, Any]]:
    """Return the entries of a file, as people have them."""
    entries: dict[str, dict[str, Any]] = json.loads((HERE / f"{file}.json").read_text())["mcpServers"]
    return entries


async def page(exchange: Exchange) -> None:
    body = b"<html><head><title>A page</title></head><body><h1>Title</h1><p>Some text.</p></body></html>"
    exchange.reply(200, body, [("content-type", "text/html")])


class Places:
    """The folder that the servers work in, and what stands for it in their entries and calls."""

    def __init__(self, folder: Path, page: str, everything: str) -> None:
        self.folder = folder / "now"
        self._kept = folder / "kept"
        self._tools = folder / "tools"
        self._texts = {
            "FOLDER": str(self.folder),
            "PAGE": page,
            "PEERS": str(PEERS),
            "CLIENTS": str(CLIENTS),
            "EVERYTHING": everything,
        }
        self.folder.mkdir(parents=True)
        _fill(self.folder)
        self._tools.mkdir()
        (self._tools / "npx").symlink_to(
            next(NODE.glob("lib/python*/site-packages/*/lib/node_modules/npm/bin/npx-cli.js"))
        )
        for environment_name, names in TOOLS.items():
            for name in names:
                _install(self._tools / name, name, PEERS / environment_name)

    def put(self, value: Any) -> Any:
        """Return a value with all texts in their places."""
        text = json.dumps(value)
        for name, place in self._texts.items():
            text = text.replace(name, place)
        return json.loads(text)

    def entry(self, written: Mapping[str, Any]) -> dict[str, Any]:
        """Return an entry whose launcher finds what is installed. So it needs no network."""
        entry: dict[str, Any] = self.put(written)
        if entry.get("command") in ("npx", "uvx"):
            paths = (NODE / "bin", self._tools, PEERS / "stdio-servers/bin", "/usr/bin", "/bin")
            caches = {
                "npm_config_cache": f"{self._tools}/.npm",
                "UV_CACHE_DIR": f"{self._tools}/.uv",
                "UV_OFFLINE": "1",
            }
            variables = {"PATH": ":".join(map(str, paths)), "UV_TOOL_DIR": str(self._tools), **caches}
            entry |= {"cwd": str(NODE), "env": {**entry.get("env", {}), **variables}}
        return {**entry, "gateway": {}}

    def keep(self) -> None:
        """Note what the folder has now."""
        shutil.copytree(self.folder, self._kept)

    def reset(self) -> None:
        """Give the folder what it had, with the same inodes, as servers may hold it open."""
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(self._kept, self.folder, dirs_exist_ok=True)


def _fill(folder: Path) -> None:
    files, repository = folder / "files", folder / "repository"
    files.mkdir()
    (files / "a.txt").write_text("hello, hello\n")
    (files / "table.csv").write_text("name,units\nAda,3\nBob,5\n")
    (files / "dot.png").write_bytes(DOT)
    repository.mkdir()
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    for command in (["init", "--quiet"], [*who, "commit", "--quiet", "--allow-empty", "--message", "first"]):
        subprocess.run(["git", *command], cwd=repository, check=True)
    for name, value in (("user.name", "Ada"), ("user.email", "ada@example.com")):
        subprocess.run(["git", "config", name, value], cwd=repository, check=True)
    subprocess.run(["git", "branch", "side"], cwd=repository, check=True)
    (repository / "new.txt").write_text("new\n")
    (repository / "staged.txt").write_text("staged\n")
    subprocess.run(["git", "add", "staged.txt"], cwd=repository, check=True)


def _install(folder: Path, package: str, peer: Path) -> None:
    """Let uv take an environment for that of an installed tool."""
    if not peer.exists():
        return
    folder.mkdir(parents=True)
    for name in ("bin", "lib"):
        (folder / name).symlink_to(peer.resolve() / name)
    shutil.copy(peer / "pyvenv.cfg", folder)
    (folder / "uv-receipt.toml").write_text(f'[tool]\nrequirements = [{{ name = "{package}" }}]\nentrypoints = []\n')


class Direct:
    """A program that is called without the gateway."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        variables = environment(os.environ, entry.get("env", {}))
        self._process = subprocess.Popen(
            [shutil.which(entry["command"], path=variables["PATH"]) or entry["command"], *entry["args"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=variables,
            cwd=entry.get("cwd"),
        )
        self._number = 0

    def open(self) -> None:
        """Begin a session."""
        client = {"name": "sealed-gateway", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        self._send({"method": "notifications/initialized"})

    def close(self) -> None:
        with self._process:  # closes its pipes
            try:
                self._process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()

    def ask(self, method: str, params: Mapping[str, Any]) -> Written:
        """Return the result of a request."""
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"{") and json.loads(line).get("id") == self._number:
                return Written.of_message(line)
        raise AssertionError(f"no answer to {method}")

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Written:
        return self.ask("tools/call", {"name": tool, "arguments": arguments})

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._process.stdin.flush()


class Tried:
    """The servers of one file, each called directly, and the entries with which a gateway serves them."""

    def __init__(self, file: str, places: Places) -> None:
        self.file, self.places = file, places
        self.entries = {name: places.entry(each) for name, each in entries_of(file).items()}
        stdio = {name: each for name, each in self.entries.items() if "command" in each}
        everything = places.entry(entries_of("reference")["everything"])
        self._commands = {name: stdio.get(name, everything) for name in self.entries}
        self.direct: dict[str, Direct] = {}

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        """Start all programs, and prepare what they need."""
        with contextlib.ExitStack() as stack:
            for name, entry in self._commands.items():
                self.direct[name] = stack.enter_context(contextlib.closing(Direct(entry)))
            for direct in self.direct.values():
                direct.open()
            for name, direct in self.direct.items():
                for tool, arguments in calls_of(name).prepare:
                    direct.call(tool, self.places.put(arguments))
            self.places.keep()
            yield self


@contextlib.contextmanager
def tried(file: str, folder: Path) -> Iterator[Tried]:
    """Give the servers of one file while the context is open."""
    port = free_port()
    with PlainServer(page) as server:
        places = Places(folder, f"http://{HOST}:{server.port}/page", f"http://127.0.0.1:{port}/mcp")
        with contextlib.ExitStack() as stack:
            if file == "sdks":
                stack.enter_context(everything_over_http(places.folder, port))
            yield stack.enter_context(Tried(file, places).running())


@contextlib.contextmanager
def everything_over_http(folder: Path, port: int) -> Iterator[None]:
    """Run server-everything in a folder while the context is open."""
    process = subprocess.Popen(
        [*EVERYTHING, "streamableHttp"],
        env={**environment(os.environ, {}), "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=folder,
    )
    try:
        stderr = process.stderr
        assert stderr is not None
        wait_until(lambda: b"listening" in stderr.readline(), "server-everything over HTTP")
        yield
    finally:
        process.kill()
        process.communicate()
