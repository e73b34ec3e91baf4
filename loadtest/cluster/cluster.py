"""The cluster as a whole: started at once, changed while it runs, ended without a trace."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

from loadtest.cluster.balancer import Balancer
from loadtest.cluster.common import HOST, LoggedProcess, new_key
from loadtest.cluster.processes import Replica, Worker
from loadtest.cluster.redis_server import RedisServer

OnEvent = Callable[[str, str], object]
"""Told of each step with a replica or worker: `leaving`, `left` or `ready`, and its name."""


class Cluster:
    """Identical replicas, and what they need: a context manager that leaves no process behind.

    Args:
        directory: where the logs and the data of Redis go, a file each.
        replicas: how many; they are called r1, r2, …
        workers: how many; they are called w1, w2, …
        redis: whether there is a Redis, which workers need.
        balancer: whether HAProxy stands in front. Without it connections to a replica that is away wait for the next.
        environ: the settings of all processes, on top of loopback defaults: the demo tools, no identity, and a seal
            key made for this cluster.
        own: further settings by the name of the replica or worker.
        worker_environ: further settings of the workers.
        module: what `python -m` runs for replicas and workers.

    Raises:
        ClusterError: something does not start, or is missing on this system.
    """

    def __init__(
        self,
        directory: Path,
        *,
        replicas: int = 2,
        workers: int = 0,
        redis: bool = False,
        balancer: bool = True,
        environ: Mapping[str, str] | None = None,
        own: Mapping[str, Mapping[str, str]] | None = None,
        worker_environ: Mapping[str, str] | None = None,
        module: str = "gateway",
    ) -> None:
        self.directory = directory
        self.module = module
        self.environ = {
            "GATEWAY_TOOLS": "gateway.demo",
            "GATEWAY_SEAL_KEYS": new_key(),
            "GATEWAY_AUDIENCE": "cluster",
            "GATEWAY_AUTH": "none",
            "GATEWAY_TRUSTED_PROXIES": HOST,
            **(environ or {}),
        }
        self.own = {name: dict(settings) for name, settings in (own or {}).items()}
        self.worker_environ = dict(worker_environ or {})
        self.replicas: list[Replica] = []
        self.workers: list[Worker] = []
        self.redis: RedisServer | None = None
        self.balancer: Balancer | None = None
        self._wanted = (replicas, workers, redis, balancer)

    def __enter__(self) -> Self:
        """Start everything, and wait until it serves."""
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End everything: first who serves and works, then what they need."""
        _stop_all([*self.replicas, *self.workers])
        _stop_all([process for process in (self.balancer, self.redis) if process is not None])

    def _start(self) -> None:
        replicas, workers, redis, balancer = self._wanted
        if redis:
            self.redis = RedisServer(self.directory)
            self.redis.start()
            self.redis.wait_ready()
            self.environ["GATEWAY_REDIS_URL"] = self.redis.url
        if balancer:
            self.balancer = Balancer(self.directory)
            self.balancer.start()
        for _ in range(replicas):
            self._make_replica(None, {}).start()
        for _ in range(workers):
            self._make_worker(None, {}).start()
        for process in self._members():
            process.wait_ready()
        if self.balancer is not None:
            self.balancer.wait_ready()
            self._tell_balancer()

    @property
    def url(self) -> str:
        """The MCP endpoint: the balancer's, or without one the first replica's."""
        return self.replicas[0].url if self.balancer is None else self.balancer.url

    def __getitem__(self, name: str) -> Replica | Worker:
        """Return a replica or a worker by its name."""
        return next(process for process in self._members() if process.name == name)

    def add_replica(self, name: str | None = None, **environ: str) -> Replica:
        """Start one more replica, with further settings, and wait until requests are sent to it."""
        replica = self._make_replica(name, environ)
        replica.start()
        replica.wait_ready()
        self._tell_balancer()
        return replica

    def remove_replica(self, name: str) -> int:
        """Let a replica leave as in a rolling update, for good, and return its exit code."""
        replica = next(replica for replica in self.replicas if replica.name == name)
        code = replica.terminate()
        self.replicas.remove(replica)
        replica.stop()
        self._tell_balancer()
        return code

    def add_worker(self, name: str | None = None, **environ: str) -> Worker:
        """Start one more worker, with further settings, and wait until it takes tasks."""
        worker = self._make_worker(name, environ)
        worker.start()
        worker.wait_ready()
        return worker

    def rolling_restart(
        self, environ_changes: Mapping[str, str] | None = None, *, on_event: OnEvent | None = None
    ) -> dict[str, int]:
        """Start every process anew, one after the other, as a rolling update does: first the replicas.

        Each is asked to leave, has ended, is started at the same address, serves, and is seen by the balancer, before
        the next one is touched. Those that are started later get the changes too.

        Args:
            environ_changes: the settings that change.
            on_event: told of each step, as it happens.

        Returns:
            With which exit code each process left, by name: 0 is a clean end.
        """
        changes = dict(environ_changes or {})
        tell = on_event or (lambda _event, _name: None)
        self.environ.update(changes)
        return {process.name: self._replace(process, changes, tell) for process in self._members()}

    def _members(self) -> list[Replica | Worker]:
        return [*self.replicas, *self.workers]

    def _replace(self, process: Replica | Worker, environ_changes: Mapping[str, str], on_event: OnEvent) -> int:
        on_event("leaving", process.name)
        code = process.terminate()
        on_event("left", process.name)
        process.environ.update(environ_changes)
        process.restart()
        if self.balancer is not None and isinstance(process, Replica):
            self.balancer.wait_up(process.name)
        on_event("ready", process.name)
        return code

    def logs(self) -> Iterator[tuple[str, str]]:
        """Return the name and the log of each process."""
        for process in (*self.replicas, *self.workers, self.balancer, self.redis):
            if process is not None:
                yield process.name, process.log_text()

    def _make_replica(self, name: str | None, environ: Mapping[str, str]) -> Replica:
        name = name or _next_name("r", self.replicas)
        settings = {**self.environ, **self.own.get(name, {}), **environ}
        log_path = self.directory / f"{name}.log"
        replica = Replica(name, settings, log_path, module=self.module, hold=self.balancer is None)
        self.replicas.append(replica)
        return replica

    def _make_worker(self, name: str | None, environ: Mapping[str, str]) -> Worker:
        name = name or _next_name("w", self.workers)
        settings = {**self.environ, **self.worker_environ, **self.own.get(name, {}), **environ}
        worker = Worker(name, settings, self.directory / f"{name}.log", module=self.module)
        self.workers.append(worker)
        return worker

    def _tell_balancer(self) -> None:
        if self.balancer is not None:
            self.balancer.set_servers({replica.name: replica.address for replica in self.replicas})
            self.balancer.wait_up(*(replica.name for replica in self.replicas))


def _next_name(letter: str, taken: list[Replica] | list[Worker]) -> str:
    names = {process.name for process in taken}
    return next(name for number in range(1, len(names) + 2) if (name := f"{letter}{number}") not in names)


def _stop_all(processes: list[LoggedProcess]) -> None:
    """Ask all to leave at once, then see to it that each has."""
    for process in processes:
        if process.alive:
            process.signal(signal.SIGTERM)
    for process in processes:
        process.stop()
