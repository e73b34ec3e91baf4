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
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from gateway.auth.bind import check_bind
from gateway.children import Child, Nursery, Orders, say
from gateway.embedded import HOW_TO_GET_ONE, EmbeddedStore, embedded_store, find_server
from gateway.preflight import find_problems
from gateway.problems import Problems
from gateway.sealing.keyring import generate_entry
from gateway.settings import Settings
from gateway.web.front import Front
from gateway.web.listener import listen

LOOPBACK: Final = "127.0.0.1"
DEMO_TOOLS: Final = "gateway.demo"
AUDIENCE: Final = "dev"

_STORE_STOP_SECONDS: Final = 3.0


def run(replicas: int, workers: int, host: str, port: int, environ: Mapping[str, str] | None = None) -> int:
    """Run replicas and workers until Ctrl-C or SIGTERM.

    Args:
        replicas: how many replicas.
        workers: how many workers, if there is a task store or a server for one.
        host: the address to listen on.
        port: the port to listen on; 0 takes any free one.
        environ: the environment to start from; None is the process's own.

    Returns:
        The exit code: 0 after Ctrl-C or SIGTERM, 1 when a child died again and again, 2 when a child found
        its configuration wrong (it has said how).

    Raises:
        ConfigurationError: settings are wrong, or the port is taken.
    """
    filled, made = fill_environment(os.environ if environ is None else environ)
    problems = Problems()
    settings = Settings.load(filled, problems=problems)
    for name, meant in settings.unknown.items():
        guess = "" if meant is None else f"; did you mean {meant}?"
        say(f"{name} is not a setting, so it has no effect; see docs/settings.md{guess}")
    find_problems(settings, problems)
    with problems.noted():
        check_bind(settings.auth, host)
    problems.raise_any()
    if made:
        say(f"made for this run, the same for all replicas: {', '.join(made)}")
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(listen(host, port))
        store = None if settings.redis_url is not None else _make_store(stack)
        if store is not None:
            filled["GATEWAY_REDIS_URL"] = store.url
        fleet = [
            _Replica(f"r{number}", stack.enter_context(listen(LOOPBACK, 0)), metrics_port)
            for number, metrics_port in enumerate(_metrics_ports(settings.metrics_port, replicas), start=1)
        ]
        filled["GATEWAY_PEERS"] = filled.get("GATEWAY_PEERS") or ",".join(replica.url for replica in fleet)
        has_tasks = store is not None or settings.redis_url is not None
        helpers = [_worker(f"w{number}") for number in range(1, workers + 1)] if has_tasks else []
        supervisor = _Supervisor(fleet, helpers, store, listener, filled, settings.drain_seconds)
        return asyncio.run(supervisor.run(_url(host, listener)))


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
    return filled, made


def _make_store(stack: contextlib.ExitStack) -> EmbeddedStore | None:
    """Prepare a task store of this run alone, and say so; None if the machine has no server for one."""
    program = find_server()
    if program is None:
        say(f"tasks are off: GATEWAY_REDIS_URL is not set and there is no server to start; {HOW_TO_GET_ONE}")
        return None
    say(f"tasks are kept by {program} for this run alone; GATEWAY_REDIS_URL names another store")
    return stack.enter_context(embedded_store(program))


def _url(host: str, listener: socket.socket) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/mcp"


def _metrics_ports(first: int | None, count: int) -> list[int | None]:
    """Choose a port for the metrics of each replica: consecutive ones where they are free, None where off."""
    if first is None:
        return [None] * count
    with contextlib.ExitStack() as probes:
        ports: list[int | None] = []
        for wanted in (first + index if first else 0 for index in range(count)):
            probe = _probe(wanted) or _probe(0)
            if probe is None:
                raise RuntimeError("the system has no free port left")
            port = probes.enter_context(probe).getsockname()[1]
            if wanted and port != wanted:
                say(f"port {wanted} is in use, so these metrics are on {port}")
            ports.append(port)
    return ports


def _probe(port: int) -> socket.socket | None:
    try:
        return socket.create_server((LOOPBACK, port))
    except (OSError, OverflowError):
        return None


@dataclass(frozen=True, slots=True)
class _Replica:
    """Where one replica listens."""

    name: str
    listener: socket.socket
    metrics_port: int | None

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.listener.getsockname()
        return host, port

    @property
    def url(self) -> str:
        """Where the other replicas reach it."""
        return "http://{}:{}".format(*self.address)

    def child(self) -> Child:
        descriptor = self.listener.fileno()
        metrics = "off" if self.metrics_port is None else str(self.metrics_port)
        options = ["--fd", str(descriptor), "--replica-id", self.name]
        options += ["--metrics-host", LOOPBACK, "--metrics-port", metrics]
        return Child(
            self.name,
            [sys.executable, "-m", "gateway", "serve", *options],
            is_ready=partial(_is_ready, self.address),
            details="" if self.metrics_port is None else f", metrics http://{LOOPBACK}:{self.metrics_port}/metrics",
            descriptors=(descriptor,),
            environ={"GATEWAY_REPLICA_URL": self.url},
        )


def _worker(name: str) -> Child:
    return Child(name, [sys.executable, "-m", "gateway", "worker", "--worker-id", name, "--metrics-port", "off"])


@dataclass(slots=True)
class _Supervisor:
    """Runs the task store, then everything else, and stops them in the other order."""

    fleet: list[_Replica]
    workers: list[Child]
    store: EmbeddedStore | None
    listener: socket.socket
    environ: Mapping[str, str]
    drain_seconds: float
    orders: Orders = field(default_factory=Orders)

    async def run(self, url: str) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._asked_to_stop)
        front = Front([replica.address for replica in self.fleet], self.listener)
        await front.start()
        try:
            async with self._running_store():
                await self._run_fleet(front, url)
        finally:
            await front.close()
        say("stopped")
        return self.orders.exit_code

    def _asked_to_stop(self) -> None:
        if self.orders.stopping.is_set():
            self.orders.hurry.set()
        else:
            say("stopping; once more to stop at once")
            self.orders.stopping.set()

    @contextlib.asynccontextmanager
    async def _running_store(self) -> AsyncIterator[None]:
        """Run the embedded store around everything that uses it."""
        if self.store is None:
            yield
            return
        child = Child("store", self.store.command(), is_ready=self.store.is_ready, last_words=self.store.last_words)
        stop = asyncio.Event()
        keeper = asyncio.create_task(Nursery(self.environ, self.orders, _STORE_STOP_SECONDS, stop).keep(child))
        try:
            await _first_of(child.ready.wait(), self.orders.stopping.wait())
            yield
        finally:
            stop.set()
            await keeper

    async def _run_fleet(self, front: Front, url: str) -> None:
        """Run replicas and workers until it is time to stop."""
        nursery = Nursery(self.environ, self.orders, self.drain_seconds)
        replicas = [replica.child() for replica in self.fleet]
        keepers = [asyncio.create_task(nursery.keep(child)) for child in [*replicas, *self.workers]]
        greeter = asyncio.create_task(_greet([*replicas, *self.workers], url))
        stopping = asyncio.create_task(self.orders.stopping.wait())
        try:
            await asyncio.wait([*keepers, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.orders.stopping.set()
            front.stop_listening()
            greeter.cancel()
            failures = await asyncio.gather(*keepers, stopping, return_exceptions=True)
        for failure in failures:
            if isinstance(failure, Exception):
                raise failure


async def _first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait until the first of several waits is over, and drop the others."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


async def _greet(children: list[Child], url: str) -> None:
    for child in children:
        await child.ready.wait()
    say(f"ready on {url} (Ctrl-C stops)")


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
