"""A whole cluster: started together, changed while it runs, and stopped without leaving a process behind."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from loadtest.cluster.balancer import EVERYTHING, NOTHING, Balancer
from loadtest.cluster.common import HOST, LoggedProcess, new_key
from loadtest.cluster.processes import Replica, Worker
from loadtest.cluster.redis_server import RedisServer

OnEvent = Callable[[str, str], object]
"""Called for each step of a rolling restart: `leaving`, `left` or `ready`, and the name of the replica or worker."""


class Cluster:
    """Identical replicas and the processes they need: a context manager that leaves no process behind.

    Args:
        directory: where the logs and the data of Redis go; created if it does not exist.
        replicas: how many, called r1, r2, …; or their names.
        workers: the same for workers, w1, w2, …
        redis: whether to start a Redis server, which workers need.
        balancer: whether to put HAProxy in front. Without it, connections to a stopped replica wait until it is back.
        environ: the settings of all replicas and workers, on top of loopback defaults: the demo tools, no identity,
            and a seal key made for this cluster.
        own: further settings, by the name of the replica or worker.
        repeatable: the requests that the balancer may send again; by default all, or none if there are upstreams.
        worker_environ: further settings of the workers.
        module: the module that `python -m` starts replicas and workers from.

    Raises:
        ClusterError: a process does not start, or a program is missing on this system.
    """

    def __init__(
        self,
        directory: Path,
        *,
        replicas: int | Sequence[str] = 2,
        workers: int | Sequence[str] = 0,
        redis: bool = False,
        balancer: bool = True,
        environ: Mapping[str, str] | None = None,
        own: Mapping[str, Mapping[str, str]] | None = None,
        repeatable: str | None = None,
        worker_environ: Mapping[str, str] | None = None,
        module: str = "gateway",
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.module = module
        self.redis = RedisServer(directory) if redis else None
        if repeatable is None:
            repeatable = NOTHING if "GATEWAY_UPSTREAMS" in (environ or {}) else EVERYTHING
        self.balancer = Balancer(directory, own=repeatable) if balancer else None
        self.environ = {
            "GATEWAY_TOOLS": "gateway.demo",
            "GATEWAY_SEAL_KEYS": new_key(),
            "GATEWAY_AUDIENCE": "cluster",
            "GATEWAY_AUTH": "none",
            **({} if self.balancer is None else {"GATEWAY_TRUSTED_PROXIES": HOST}),
            **({} if self.redis is None else {"GATEWAY_REDIS_URL": self.redis.url}),
            **(environ or {}),
        }
        self._own = own or {}
        self._worker_environ = worker_environ or {}
        self.replicas: list[Replica] = []
        self.workers: list[Worker] = []
        for name in _names("r", replicas):
            self._make_replica(name)
        for name in _names("w", workers):
            self._make_worker(name)

    def __enter__(self) -> Self:
        """Start everything, and wait until it serves."""
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything: first replicas and workers, then the processes they need."""
        try:
            _stop_all(self._members())
        finally:
            _stop_all([process for process in (self.balancer, self.redis) if process is not None])

    def _start(self) -> None:
        if self.redis is not None:
            self.redis.start()
            self.redis.wait_ready()
        for process in self._members():
            process.start()
        if self.balancer is not None:
            self.balancer.start()
        for process in self._members():
            process.wait_ready()
        if self.balancer is not None:
            self.balancer.wait_ready()
            self._tell_balancer()

    @property
    def url(self) -> str:
        """The MCP endpoint: the balancer's, or without one the first replica's."""
        return self.replicas[0].url if self.balancer is None else self.balancer.url

    def __getitem__(self, name: str) -> Replica:
        """Return a replica by its name."""
        return next(replica for replica in self.replicas if replica.name == name)

    def worker(self, name: str) -> Worker:
        """Return a worker by its name."""
        return next(worker for worker in self.workers if worker.name == name)

    def add_replica(self, name: str | None = None, *options: str, **environ: str) -> Replica:
        """Start one more replica, and wait until it gets requests.

        Args:
            name: its name; by default the next free one.
            options: further options of its command line.
            environ: further settings.
        """
        replica = self._make_replica(name or _free_name("r", self.replicas), *options, **environ)
        replica.start()
        replica.wait_ready()
        self._tell_balancer()
        return replica

    def remove_replica(self, name: str) -> int:
        """Let a replica drain and stop for good, and return its exit code."""
        replica = self[name]
        code = replica.terminate()
        self.replicas.remove(replica)
        replica.stop()
        self._tell_balancer()
        return code

    def add_worker(self, name: str | None = None, *options: str, **environ: str) -> Worker:
        """Start one more worker, and wait until it takes tasks.

        Args:
            name: its name; by default the next free one.
            options: further options of its command line.
            environ: further settings.
        """
        worker = self._make_worker(name or _free_name("w", self.workers), *options, **environ)
        worker.start()
        worker.wait_ready()
        return worker

    def remove_worker(self, name: str) -> int:
        """Let a worker hand back its tasks and stop for good, and return its exit code."""
        worker = self.worker(name)
        code = worker.terminate()
        self.workers.remove(worker)
        worker.stop()
        return code

    def rolling_restart(
        self, environ_changes: Mapping[str, str] | None = None, *, on_event: OnEvent | None = None
    ) -> dict[str, int]:
        """Restart every process, one after the other, as a rolling update does: the replicas, then the workers.

        Each is asked to stop, ends, starts at the same address, serves again and is seen by the balancer before the
        next one is touched. Processes that are added later start with the changes too.

        Args:
            environ_changes: the settings that change.
            on_event: called for each step as it happens.

        Returns:
            Name → exit code; 0 is a clean exit.
        """
        changes = environ_changes or {}
        tell = on_event or (lambda _event, _name: None)
        self.environ.update(changes)
        return {process.name: self._replace(process, changes, tell) for process in self._members()}

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
        for process in (*self._members(), self.balancer, self.redis):
            if process is not None:
                yield process.name, process.log_text()

    def _members(self) -> list[Replica | Worker]:
        return [*self.replicas, *self.workers]

    def _make_replica(self, name: str, *options: str, **environ: str) -> Replica:
        settings = {**self.environ, **self._own.get(name, {}), **environ}
        log_path = self.directory / f"{name}.log"
        hold = self.balancer is None
        self.replicas.append(Replica(name, settings, log_path, *options, module=self.module, hold=hold))
        return self.replicas[-1]

    def _make_worker(self, name: str, *options: str, **environ: str) -> Worker:
        settings = {**self.environ, **self._worker_environ, **self._own.get(name, {}), **environ}
        self.workers.append(Worker(name, settings, self.directory / f"{name}.log", *options, module=self.module))
        return self.workers[-1]

    def _tell_balancer(self) -> None:
        if self.balancer is not None:
            self.balancer.set_servers({replica.name: replica.address for replica in self.replicas})
            self.balancer.wait_up(*(replica.name for replica in self.replicas if replica.alive))


def _names(letter: str, wanted: int | Sequence[str]) -> Sequence[str]:
    return [f"{letter}{number}" for number in range(1, wanted + 1)] if isinstance(wanted, int) else wanted


def _free_name(letter: str, taken: Sequence[LoggedProcess]) -> str:
    names = {process.name for process in taken}
    return next(name for name in _names(letter, len(names) + 1) if name not in names)


def _stop_all(processes: Sequence[LoggedProcess]) -> None:
    """Ask all of them to stop at once, and make sure that each ends, even if this is interrupted."""
    try:
        for process in processes:
            if process.alive:
                process.signal(signal.SIGTERM)
        for process in processes:
            process.stop()
    finally:
        for process in processes:
            process.end()
