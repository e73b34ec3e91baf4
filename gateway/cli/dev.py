"""`gateway dev`: replicas behind one port, and workers, for trying things out.

The parent runs a small front on the port, and owns one listening socket for each replica. A replica inherits its
socket, so a restarted replica takes over the connections that waited for it. Unless GATEWAY_REDIS_URL names a task
store, one is started for this run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from gateway.auth.bind import check_bind
from gateway.children.environment import environment
from gateway.cli.children import (
    EXIT_CONFIGURATION,
    Child,
    Nursery,
    Orders,
    bind_to_parent,
    first_of,
    signal_group,
)
from gateway.cli.console import Console
from gateway.cli.embedded_store import HOW_TO_GET_ONE, EmbeddedStore, embedded_store, find_server
from gateway.cli.fleet import Fleet, KeyFile, Kind, Member
from gateway.cli.fleet_api import FleetApi
from gateway.cli.own_code import START_GATEWAY, pin_own_code
from gateway.cli.round_robin import Front
from gateway.errors import ConfigurationError
from gateway.process.preflight import find_problems, find_upstream_problems
from gateway.runtime.background import task_running
from gateway.sealing.keyring import generate_entry
from gateway.settings.model import Settings
from gateway.settings.problems import Problems
from gateway.settings.tool_files import find_file, names_file
from gateway.web.listener import listen

LOOPBACK: Final = "127.0.0.1"
DEMO_TOOLS: Final = "gateway.demo"
AUDIENCE: Final = "dev"

_STORE_STOP_SECONDS: Final = 3.0
_ABANDONED_DRAIN_SECONDS: Final = 2.0
_LAST_WORDS_SECONDS: Final = 10.0
_LAST_PORT: Final = 65535
_SLOW_SECONDS: Final = 2.0
"""How long importing the tools may take before a line says so."""
_CHECK_SECONDS: Final = 10.0
"""How long importing the tools may delay the start."""


def run(
    replicas: int,
    workers: int,
    host: str | None = None,
    port: int | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    tools: str | None = None,
    upstreams: str | None = None,
    reload: bool = False,
) -> int:
    """Run replicas and workers until Ctrl-C, SIGTERM or SIGHUP, or until nobody can read stdout any more.

    Workers run if there is a task store or a server to start one with. Port 0 picks a free one. `tools` are modules and
    files, separated by commas. The environment has the values of those that are None. Return 0 after being
    stopped, 1 if a child kept dying, 2 if a child reported a wrong configuration.

    Raises:
        ConfigurationError: settings or tools are wrong, or the port is taken.
    """
    chosen = _variables(host, port, tools, upstreams)
    filled, made = fill_environment({**(os.environ if environ is None else environ), **chosen})
    with contextlib.ExitStack() as stack:
        console = stack.enter_context(contextlib.closing(Console()))
        settings = _load_settings(filled, console)
        _check_tools(filled, console)
        if made:
            console.say(f"made for this run and shared by all replicas: {', '.join(made)}")
        listener = stack.enter_context(listen(settings.host, settings.port))
        store = None if settings.redis_url is not None else _make_store(filled, stack, console)
        keys = _make_key_file(filled, stack) if "a seal key" in made else None
        sockets = _make_sockets(settings.metrics_port, replicas, stack, console)
        filled["GATEWAY_PEERS"] = filled.get("GATEWAY_PEERS") or ",".join(replica.url for replica in sockets)
        options = ["--reload"] if reload else []
        holder = _make_holder(settings, filled, stack)
        fleet = Fleet(
            _first_members(holder, sockets, workers if store or settings.redis_url else 0, options),
            filled,
            _maker(options, stack, has_metrics=settings.metrics_port is not None),
            keys,
            has_releases=filled.get("GATEWAY_TOOLS") == DEMO_TOOLS,
        )
        return _supervise(fleet, settings, listener, console, store=store, origin=_origin(settings.host, listener))


def _variables(host: str | None, port: int | None, tools: str | None, upstreams: str | None) -> dict[str, str]:
    named = {"GATEWAY_HOST": host, "GATEWAY_PORT": port, "GATEWAY_TOOLS": tools, "GATEWAY_UPSTREAMS": upstreams}
    return {name: str(value) for name, value in named.items() if value is not None}


def _supervise(
    fleet: Fleet,
    settings: Settings,
    listener: socket.socket,
    console: Console,
    *,
    store: EmbeddedStore | None,
    origin: str,
) -> int:
    """Run the processes until they should stop, behind a front on the listener."""
    api = FleetApi(fleet, has_store=store is not None) if settings.playground == "dev" else None
    front = Front(fleet if api is None else api, listener)
    page = "" if api is None else api.page_of(origin)
    supervisor = _Supervisor(fleet, store, front, settings.drain_seconds, console, page)
    exit_code = asyncio.run(supervisor.run(f"{origin}/mcp"))
    if exit_code:  # nobody asked to stop, so there is time to print the reason
        console.close(_LAST_WORDS_SECONDS)
    return exit_code


def _check_tools(environ: Mapping[str, str], console: Console) -> None:
    """Import the tools once, so that a mistake is reported once instead of by every replica and worker.

    Another process does it: this one must not run code of tools, which may bind ports or start threads. All that it
    started ends with it.

    Raises:
        ConfigurationError: the tools cannot be served.
    """
    with tempfile.TemporaryFile() as errors:  # no pipe: processes that tools start may keep it open
        checking = subprocess.Popen(  # noqa: S603 - our own program
            [*START_GATEWAY, "tools"],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            process_group=0,
            preexec_fn=bind_to_parent(),  # noqa: PLW1509 - it only makes system calls
        )
        try:
            with _ended_by_interrupts(checking) as interrupts:
                exit_code = _wait_imported(checking, console)
        finally:
            signal_group(checking.pid, signal.SIGKILL)
            checking.wait()
        if interrupts:
            console.say("stopped while importing the tools")
            raise KeyboardInterrupt
        if exit_code is None:
            console.say(f"the tools are not imported after {_CHECK_SECONDS:g} seconds; starting anyway")
        errors.seek(0)
        text = "\n" + errors.read().decode(errors="replace").rstrip()
    if exit_code == EXIT_CONFIGURATION:
        raise ConfigurationError(*text.split("\ngateway: ")[1:])  # without what tools wrote before


@contextlib.contextmanager
def _ended_by_interrupts(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """End a process and its group at Ctrl-C. The list is empty until then.

    `KeyboardInterrupt` could come while the console holds its lock, which would then never be free again.
    """
    interrupts: list[int] = []

    def end(number: int, _frame: object) -> None:
        interrupts.append(number)
        signal_group(process.pid, signal.SIGKILL)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)


def _wait_imported(checking: subprocess.Popen[bytes], console: Console) -> int | None:
    """Return the exit code of the process that imports the tools, None if it takes too long."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return checking.wait(_SLOW_SECONDS)
    console.say("importing the tools takes long; press Ctrl-C to stop")
    with contextlib.suppress(subprocess.TimeoutExpired):
        return checking.wait(_CHECK_SECONDS - _SLOW_SECONDS)
    return None


def _load_settings(environ: Mapping[str, str], console: Console) -> Settings:
    """Read and check the settings of all processes.

    Raises:
        ConfigurationError: something is wrong; the error lists all problems.
    """
    problems = Problems()
    settings = Settings.load(environ, problems=problems)
    for name, meant in settings.unknown.items():
        guess = "" if meant is None else f" (did you mean {meant}?)"
        console.say(f"{name} is not a setting and has no effect{guess}; see docs/run/settings.md")
    find_problems(settings, problems)
    for entry in filter(names_file, settings.tools):
        with problems.noted():
            find_file(entry)
    find_upstream_problems(settings, problems)
    with problems.noted():
        check_bind(settings.auth, settings.host)
    problems.raise_any()
    return settings


WAYS_TO_VERIFY = ("GATEWAY_JWT_SECRET", "GATEWAY_JWT_SECRET_FILE", "GATEWAY_JWKS_URL", "GATEWAY_JWKS_FILE")


_DEFAULTS: Final = {
    "GATEWAY_CONNECTION_CLOSE": "on",
    "GATEWAY_STRICT_ASKS": "on",
    "GATEWAY_SHOW_ERRORS": "on",
    "GATEWAY_PLAYGROUND": "dev",
    "GATEWAY_TASK_LEASE_SECONDS": "5",
    "GATEWAY_DRAIN_NOTICE_SECONDS": "0",
}
"""The settings that differ while tools are being written."""


def fill_environment(environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Add the settings that a first try should not have to make.

    Return the environment of the replicas, and what was added, in words for people.
    """
    filled = dict(environ)
    made = []

    def make(name: str, value: str, words: str) -> None:
        filled[name] = value
        made.append(words)

    def is_set(*names: str) -> bool:
        return any(filled.get(name) for name in names)

    if not is_set("GATEWAY_SEAL_KEYS", "GATEWAY_SEAL_KEYS_FILE"):
        make("GATEWAY_SEAL_KEYS", generate_entry(secrets.token_bytes), "a seal key")
        if is_set("GATEWAY_REDIS_URL", "GATEWAY_REDIS_URL_FILE") and not is_set("GATEWAY_AUDIENCE"):
            # A new audience keeps this run apart from what earlier runs stored under other keys. Bearer tokens are
            # still for `dev`.
            audience = f"{AUDIENCE}-{secrets.token_hex(4)}"
            make("GATEWAY_AUDIENCE", audience, f"GATEWAY_AUDIENCE={audience}")
            filled["GATEWAY_JWT_AUDIENCE"] = filled.get("GATEWAY_JWT_AUDIENCE") or AUDIENCE
    if not is_set("GATEWAY_AUDIENCE"):
        make("GATEWAY_AUDIENCE", AUDIENCE, f"GATEWAY_AUDIENCE={AUDIENCE}")
    if not is_set("GATEWAY_TOOLS", "GATEWAY_UPSTREAMS"):
        make("GATEWAY_TOOLS", DEMO_TOOLS, f"GATEWAY_TOOLS={DEMO_TOOLS}")
    # A user who sets a way to verify tokens wants authentication.
    if not is_set("GATEWAY_AUTH", *WAYS_TO_VERIFY):
        make("GATEWAY_AUTH", "none", "GATEWAY_AUTH=none")
    for name, value in _DEFAULTS.items():
        filled[name] = filled.get(name) or value
    filled["PYTHONUNBUFFERED"] = "1"
    pin_own_code(filled)
    return filled, made


def _make_store(environ: dict[str, str], stack: contextlib.ExitStack, console: Console) -> EmbeddedStore | None:
    """Prepare a task store for this run, and print which. Return None if no server is installed."""
    program = find_server()
    if program is None:
        console.say(f"tasks are off: GATEWAY_REDIS_URL is not set and no Redis server was found; {HOW_TO_GET_ONE}")
        return None
    console.say(f"using {program} to store the tasks of this run; set GATEWAY_REDIS_URL to use another store")
    store = stack.enter_context(embedded_store(program))
    environ["GATEWAY_REDIS_URL"] = store.url
    return store


def _origin(host: str, listener: socket.socket) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def _make_key_file(environ: dict[str, str], stack: contextlib.ExitStack) -> KeyFile:
    """Put the seal keys of this run into a file, so that they can be rotated while it runs."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-keys-"))
    path = Path(folder) / "seal-keys"
    keys = KeyFile(path)
    del environ["GATEWAY_SEAL_KEYS"]
    environ["GATEWAY_SEAL_KEYS_FILE"] = str(path)
    return keys


def _make_sockets(
    metrics_port: int | None, count: int, stack: contextlib.ExitStack, console: Console
) -> list[_Replica]:
    """Open the sockets of the replicas."""
    metrics = _metrics_listeners(metrics_port, count, stack, console)
    return [
        _Replica(f"r{number}", stack.enter_context(listen(LOOPBACK, 0)), metrics_listener)
        for number, metrics_listener in enumerate(metrics, start=1)
    ]


def _make_holder(settings: Settings, environ: dict[str, str], stack: contextlib.ExitStack) -> _Replica | None:
    """Open the sockets of a holder if an upstream may need one, unless the operator names others."""
    if settings.upstreams is None or settings.holders:
        return None
    from gateway.upstreams.config import checks, reading  # noqa: PLC0415 - most runs have no upstreams

    found = reading.UpstreamReader(Path(settings.upstreams)).read()
    if not any(map(checks.may_keep_connections, found.definitions)):
        return None
    metrics = None if settings.metrics_port is None else stack.enter_context(listen(LOOPBACK, 0))
    holder = _Replica("h1", stack.enter_context(listen(LOOPBACK, 0)), metrics)
    environ["GATEWAY_HOLDERS"] = holder.url
    return holder


def _metrics_listeners(
    first: int | None, count: int, stack: contextlib.ExitStack, console: Console
) -> list[socket.socket | None]:
    """Listen for the metrics of each replica, on consecutive ports where they are free; None if metrics are off.

    Replicas inherit the sockets, so no other process can take a port before a replica starts or while it restarts.
    """
    if first is None:
        return [None] * count
    listeners: list[socket.socket | None] = []
    for wanted in (first + index if first else 0 for index in range(count)):
        listener = stack.enter_context(_listen_near(wanted))
        port = listener.getsockname()[1]
        if wanted and port != wanted:
            console.say(f"port {wanted} is in use, so metrics are served on port {port} instead")
        listeners.append(listener)
    return listeners


def _listen_near(port: int) -> socket.socket:
    """Listen on a port, or on any free one if it is taken."""
    if port <= _LAST_PORT:
        with contextlib.suppress(ConfigurationError):
            return listen(LOOPBACK, port)
    return listen(LOOPBACK, 0)


@dataclass(frozen=True, slots=True)
class _Replica:
    """One replica: its name and its listening sockets."""

    name: str
    listener: socket.socket
    metrics: socket.socket | None

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.listener.getsockname()
        return host, port

    @property
    def url(self) -> str:
        """The URL at which the other replicas reach it."""
        return "http://{}:{}".format(*self.address)

    def member(self, more: list[str]) -> Member:
        """Return this replica with its process, started with `more` options."""
        metrics = None if self.metrics is None else (LOOPBACK, self.metrics.getsockname()[1])
        return Member("replica", self._child(more), self.address, metrics)

    def holder(self, more: list[str]) -> Member:
        """Return the same for a holder, which gets no requests of clients."""
        return replace(self.member(more), kind="holder", address=None)

    def _child(self, more: list[str]) -> Child:
        descriptors = [self.listener.fileno()]
        options = ["--fd", str(descriptors[0]), "--replica-id", self.name, "--metrics-host", LOOPBACK]
        details = ""
        if self.metrics is None:
            options += ["--metrics-port", "off"]
        else:
            port, descriptor = self.metrics.getsockname()[1], self.metrics.fileno()
            options += ["--metrics-port", str(port), "--metrics-fd", str(descriptor)]
            descriptors.append(descriptor)
            details = f", metrics http://{LOOPBACK}:{port}/metrics"
        return Child(
            self.name,
            [*START_GATEWAY, "serve", *options, *more],
            is_ready=partial(_is_ready, self.address),
            details=details,
            descriptors=tuple(descriptors),
            environ={"GATEWAY_REPLICA_URL": self.url},
        )


def _worker(name: str, more: list[str]) -> Member:
    options = ["--worker-id", name, "--metrics-port", "off"]
    return Member("worker", Child(name, [*START_GATEWAY, "worker", *options, *more]))


def _first_members(
    holder: _Replica | None, replicas: Iterable[_Replica], workers: int, options: list[str]
) -> dict[str, Member]:
    members = [] if holder is None else [holder.holder(options)]
    members += [replica.member(options) for replica in replicas]
    members += [_worker(f"w{number}", options) for number in range(1, workers + 1)]
    return {member.child.name: member for member in members}


def _maker(options: list[str], stack: contextlib.ExitStack, *, has_metrics: bool) -> Callable[[Kind, int], Member]:
    """Return what makes further replicas and workers; their sockets are closed with the stack."""

    def make(kind: Kind, number: int) -> Member:
        if kind == "worker":
            return _worker(f"w{number}", options)
        metrics = stack.enter_context(listen(LOOPBACK, 0)) if has_metrics else None
        return _Replica(f"r{number}", stack.enter_context(listen(LOOPBACK, 0)), metrics).member(options)

    return make


@dataclass(slots=True)
class _Supervisor:
    """Starts the task store, then everything else, and stops them in reverse order."""

    fleet: Fleet
    store: EmbeddedStore | None
    front: Front
    drain_seconds: float
    console: Console
    page: str
    orders: Orders = field(default_factory=Orders)

    async def run(self, url: str) -> int:
        self._listen_to_signals()
        async with task_running(self._stop_without_reader()):
            try:
                await self.front.start()
                async with self._running_store():
                    await self._run_fleet(url)
            finally:
                await self.front.close()
        self.console.say("stopped")
        return self.orders.exit_code

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._asked_to_stop)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup` ignores it, to outlive the terminal
            loop.add_signal_handler(signal.SIGHUP, self._stop_soon)

    def _asked_to_stop(self) -> None:
        # Set the event before printing: a failure to print must not keep the run alive.
        if self.orders.stopping.is_set():
            self.orders.hurry.set()
        else:
            self.orders.stopping.set()
            self.console.say("stopping; press Ctrl-C again to stop at once")

    def _stop_soon(self) -> None:
        """Stop without waiting for a second signal, which nobody is left to send: kill what does not stop in time."""
        if not self.orders.stopping.is_set():
            self.orders.stopping.set()
            self.console.say("stopping")
        asyncio.get_running_loop().call_later(_ABANDONED_DRAIN_SECONDS, self.orders.hurry.set)

    async def _stop_without_reader(self) -> None:
        await self.console.until_gone()
        self._stop_soon()

    @contextlib.asynccontextmanager
    async def _running_store(self) -> AsyncIterator[None]:
        """Run the embedded store, if there is one, while the context is open."""
        if self.store is None:
            yield
            return
        child = Child("store", self.store.command(), is_ready=self.store.is_ready, last_words=self.store.last_words)
        stop = asyncio.Event()
        needed = environment(self.fleet.environ, {})  # without secrets: all programs of this user can read it
        nursery = Nursery(needed, self.orders, _STORE_STOP_SECONDS, self.console, stop)
        keeper = asyncio.create_task(nursery.keep(child))
        try:
            await first_of(child.ready.wait(), self.orders.stopping.wait())
            yield
        finally:
            stop.set()
            await keeper

    async def _run_fleet(self, url: str) -> None:
        """Run replicas and workers until one gives up or the run is asked to stop."""
        fleet = self.fleet
        fleet.keep(Nursery(fleet.environ, self.orders, self.drain_seconds, self.console))
        greeter = asyncio.create_task(self._greet(url))
        try:
            await first_of(fleet.ended.wait(), self.orders.stopping.wait())
        finally:
            self.orders.stopping.set()
            self.front.stop_listening()
            greeter.cancel()
            failures = await fleet.stopped()
        for failure in failures:
            raise failure

    async def _greet(self, url: str) -> None:
        for member in list(self.fleet.members.values()):
            await member.child.ready.wait()
        if self.page:
            self.console.say(f"playground {self.page}")
        self.console.say(f"ready on {url} (press Ctrl-C to stop)")


async def _is_ready(address: tuple[str, int]) -> bool:
    """Return whether a replica is ready. The connection waits in the socket's queue while the replica starts."""
    try:
        reader, writer = await asyncio.open_connection(*address)
    except OSError:
        return False
    try:
        writer.write(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        status = await reader.readline()
        return status.split(b" ")[1:2] == [b"200"]
    except (OSError, ValueError):
        return False
    finally:
        writer.transport.abort()
