"""`gateway dev`: replicas behind one port, and workers, for trying things out.

The parent owns the port as a small front and one listening socket for each replica. A replica inherits its socket,
so one that is started anew takes over the connections that have been waiting meanwhile. Tasks are kept by a server of
this run alone, unless GATEWAY_REDIS_URL names another.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from gateway.auth.bind import check_bind
from gateway.cli.children import Child, Nursery, Orders
from gateway.cli.console import Console
from gateway.cli.embedded_store import HOW_TO_GET_ONE, EmbeddedStore, embedded_store, find_server
from gateway.cli.own_code import START_GATEWAY, pin_own_code
from gateway.cli.round_robin import Front
from gateway.errors import ConfigurationError
from gateway.process.preflight import find_problems
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


def run(
    replicas: int,
    workers: int,
    host: str,
    port: int,
    environ: Mapping[str, str] | None = None,
    *,
    tools: str | None = None,
    reload: bool = False,
) -> int:
    """Run replicas and workers until Ctrl-C, SIGTERM or SIGHUP, or until nobody can read stdout any more.

    Args:
        replicas: how many replicas.
        workers: how many workers, if there is a task store or a server for one.
        host: the address to listen on.
        port: the port to listen on; 0 takes any free one.
        environ: the environment to start from; None is the process's own.
        tools: the tool modules and files, separated by commas; None leaves them to GATEWAY_TOOLS.
        reload: whether replicas and workers re-read them when their files change.

    Returns:
        The exit code: 0 after being stopped, 1 when a child died again and again, 2 when a child found
        its configuration wrong (it has said how).

    Raises:
        ConfigurationError: settings are wrong, a tool file is missing, or the port is taken.
    """
    given = dict(os.environ if environ is None else environ)
    if tools is not None:
        given["GATEWAY_TOOLS"] = tools
    filled, made = fill_environment(given)
    with contextlib.ExitStack() as stack:
        console = stack.enter_context(contextlib.closing(Console()))
        settings = _load_settings(filled, host, console)
        if made:
            console.say(f"made for this run, the same for all replicas: {', '.join(made)}")
        listener = stack.enter_context(listen(host, port))
        store = None if settings.redis_url is not None else _make_store(stack, console)
        if store is not None:
            filled["GATEWAY_REDIS_URL"] = store.url
        fleet = _make_fleet(settings.metrics_port, replicas, stack, console)
        filled["GATEWAY_PEERS"] = filled.get("GATEWAY_PEERS") or ",".join(replica.url for replica in fleet)
        has_tasks = store is not None or settings.redis_url is not None
        options = ["--reload"] if reload else []
        children = [replica.child(options) for replica in fleet]
        children += [_worker(f"w{number}", options) for number in range(1, workers + 1)] if has_tasks else []
        front = Front([replica.address for replica in fleet], listener)
        supervisor = _Supervisor(children, store, front, filled, settings.drain_seconds, console)
        exit_code = asyncio.run(supervisor.run(_url(host, listener)))
        if exit_code:  # nobody has asked for it to end, so there is time to say why it does
            console.close(_LAST_WORDS_SECONDS)
        return exit_code


def _load_settings(environ: Mapping[str, str], host: str, console: Console) -> Settings:
    """Read and check the settings of all processes.

    Raises:
        ConfigurationError: something is wrong; it has all of it.
    """
    problems = Problems()
    settings = Settings.load(environ, problems=problems)
    for name, meant in settings.unknown.items():
        guess = "" if meant is None else f"; did you mean {meant}?"
        console.say(f"{name} is not a setting, so it has no effect; see docs/run/settings.md{guess}")
    find_problems(settings, problems)
    for entry in filter(names_file, settings.tools):
        with problems.noted():
            find_file(entry)
    with problems.noted():
        check_bind(settings.auth, host)
    problems.raise_any()
    return settings


WAYS_TO_VERIFY = ("GATEWAY_JWT_SECRET", "GATEWAY_JWT_SECRET_FILE", "GATEWAY_JWKS_URL", "GATEWAY_JWKS_FILE")


def fill_environment(environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Add what a first try should not have to set.

    Returns:
        The environment of the replicas, and what was made up, in words for people.
    """
    filled = dict(environ)
    made = []

    def make(name: str, value: str, words: str) -> None:
        filled[name] = value
        made.append(words)

    if not filled.get("GATEWAY_SEAL_KEYS") and not filled.get("GATEWAY_SEAL_KEYS_FILE"):
        make("GATEWAY_SEAL_KEYS", generate_entry(secrets.token_bytes), "a seal key")
        if (filled.get("GATEWAY_REDIS_URL") or filled.get("GATEWAY_REDIS_URL_FILE")) and not filled.get(
            "GATEWAY_AUDIENCE"
        ):
            # What an earlier run left in this store was sealed with another key. Tokens still are for `dev`.
            audience = f"{AUDIENCE}-{secrets.token_hex(4)}"
            make("GATEWAY_AUDIENCE", audience, f"GATEWAY_AUDIENCE={audience}")
            filled["GATEWAY_JWT_AUDIENCE"] = filled.get("GATEWAY_JWT_AUDIENCE") or AUDIENCE
    for name, value in (("GATEWAY_AUDIENCE", AUDIENCE), ("GATEWAY_TOOLS", DEMO_TOOLS)):
        if not filled.get(name):
            make(name, value, f"{name}={value}")
    # Somebody who gives a way to verify tokens wants it to be used.
    if not any(filled.get(name) for name in ("GATEWAY_AUTH", *WAYS_TO_VERIFY)):
        make("GATEWAY_AUTH", "none", "GATEWAY_AUTH=none")
    for name in ("GATEWAY_CONNECTION_CLOSE", "GATEWAY_STRICT_ASKS"):
        filled[name] = filled.get(name) or "on"
    filled["GATEWAY_DRAIN_NOTICE_SECONDS"] = filled.get("GATEWAY_DRAIN_NOTICE_SECONDS") or "0"
    filled["PYTHONUNBUFFERED"] = "1"
    pin_own_code(filled)
    return filled, made


def _make_store(stack: contextlib.ExitStack, console: Console) -> EmbeddedStore | None:
    """Prepare a task store of this run alone, and say so; None if the machine has no server for one."""
    program = find_server()
    if program is None:
        console.say(f"tasks are off: GATEWAY_REDIS_URL is not set and there is no server to start; {HOW_TO_GET_ONE}")
        return None
    console.say(f"tasks are kept by {program} for this run alone; GATEWAY_REDIS_URL names another store")
    return stack.enter_context(embedded_store(program))


def _url(host: str, listener: socket.socket) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/mcp"


def _make_fleet(metrics_port: int | None, count: int, stack: contextlib.ExitStack, console: Console) -> list[_Replica]:
    """Open the sockets of the replicas."""
    metrics = _metrics_listeners(metrics_port, count, stack, console)
    return [
        _Replica(f"r{number}", stack.enter_context(listen(LOOPBACK, 0)), metrics_listener)
        for number, metrics_listener in enumerate(metrics, start=1)
    ]


def _metrics_listeners(
    first: int | None, count: int, stack: contextlib.ExitStack, console: Console
) -> list[socket.socket | None]:
    """Listen for the metrics of each replica: on consecutive ports where they are free, None where metrics are off.

    Replicas inherit the sockets, so nobody can take a port before a replica starts, or while it is started anew.
    """
    if first is None:
        return [None] * count
    listeners: list[socket.socket | None] = []
    for wanted in (first + index if first else 0 for index in range(count)):
        listener = stack.enter_context(_listen_near(wanted))
        port = listener.getsockname()[1]
        if wanted and port != wanted:
            console.say(f"port {wanted} is in use, so these metrics are on {port}")
        listeners.append(listener)
    return listeners


def _listen_near(port: int) -> socket.socket:
    """Listen on a port, or on any other one if it is taken."""
    if port <= _LAST_PORT:
        with contextlib.suppress(ConfigurationError):
            return listen(LOOPBACK, port)
    return listen(LOOPBACK, 0)


@dataclass(frozen=True, slots=True)
class _Replica:
    """Where one replica listens."""

    name: str
    listener: socket.socket
    metrics: socket.socket | None

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.listener.getsockname()
        return host, port

    @property
    def url(self) -> str:
        """Where the other replicas reach it."""
        return "http://{}:{}".format(*self.address)

    def child(self, more: list[str]) -> Child:
        """Return the process of this replica; it gets `more` options."""
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


def _worker(name: str, more: list[str]) -> Child:
    options = ["--worker-id", name, "--metrics-port", "off"]
    return Child(name, [*START_GATEWAY, "worker", *options, *more])


@dataclass(slots=True)
class _Supervisor:
    """Runs the task store, then everything else, and stops them in the other order."""

    children: list[Child]
    store: EmbeddedStore | None
    front: Front
    environ: Mapping[str, str]
    drain_seconds: float
    console: Console
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
        # The order comes first: nothing that goes wrong with the report may keep the run alive.
        if self.orders.stopping.is_set():
            self.orders.hurry.set()
        else:
            self.orders.stopping.set()
            self.console.say("stopping; once more to stop at once")

    def _stop_soon(self) -> None:
        """Stop though nobody is left who could ask a second time: what has not stopped in time is killed."""
        if not self.orders.stopping.is_set():
            self.orders.stopping.set()
            self.console.say("stopping")
        asyncio.get_running_loop().call_later(_ABANDONED_DRAIN_SECONDS, self.orders.hurry.set)

    async def _stop_without_reader(self) -> None:
        await self.console.until_gone()
        self._stop_soon()

    @contextlib.asynccontextmanager
    async def _running_store(self) -> AsyncIterator[None]:
        """Run the embedded store around everything that uses it."""
        if self.store is None:
            yield
            return
        child = Child("store", self.store.command(), is_ready=self.store.is_ready, last_words=self.store.last_words)
        stop = asyncio.Event()
        nursery = Nursery(self.environ, self.orders, _STORE_STOP_SECONDS, self.console, stop)
        keeper = asyncio.create_task(nursery.keep(child))
        try:
            await _first_of(child.ready.wait(), self.orders.stopping.wait())
            yield
        finally:
            stop.set()
            await keeper

    async def _run_fleet(self, url: str) -> None:
        """Run replicas and workers until it is time to stop."""
        nursery = Nursery(self.environ, self.orders, self.drain_seconds, self.console)
        keepers = [asyncio.create_task(nursery.keep(child)) for child in self.children]
        greeter = asyncio.create_task(self._greet(url))
        stopping = asyncio.create_task(self.orders.stopping.wait())
        try:
            await asyncio.wait([*keepers, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.orders.stopping.set()
            self.front.stop_listening()
            greeter.cancel()
            failures = await asyncio.gather(*keepers, stopping, return_exceptions=True)
        for failure in failures:
            if isinstance(failure, Exception):
                raise failure

    async def _greet(self, url: str) -> None:
        for child in self.children:
            await child.ready.wait()
        self.console.say(f"ready on {url} (Ctrl-C stops)")


async def _first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait until the first of several waits is over, and drop the others."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


async def _is_ready(address: tuple[str, int]) -> bool:
    """Ask a replica whether it serves. The connection waits in the socket's queue while the replica starts."""
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
