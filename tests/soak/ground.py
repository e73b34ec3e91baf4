"""Balancer, replicas, workers, store and depot as real processes, and the faults that strike them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeAlias

import redis

from gateway.auth.tokens import mint
from gateway.sealing.keyring import KeyRing
from loadtest.cluster import Cluster, ClusterError, Replica, Worker, clean_environment, new_key, wait_until
from loadtest.cluster.common import LoggedProcess
from tests.chaos.clocks import ShiftedClock
from tests.integration.pipes import Pipe
from tests.soak.customers import JUMP_SECONDS
from tests.soak.depot import Depot
from tests.soak.effects import DIRECTORY
from tests.soak.ledger import Rest
from tests.soak.store import Store
from tests.storage.deployments import keys_without_lifetime

REPLICAS: Final = 2
WORKERS: Final = 3
USERS: Final = ("ada", "grace", "edsger", "barbara")
LEASE_SECONDS: Final = 2.0
TTL_SECONDS: Final = 180.0
"""A task's time to live: long enough for any task to end, short enough to outlast a key during the soak."""

PATIENCE_SECONDS: Final = 60.0
MAX_INFLIGHT: Final = 16
CROWD: Final = 200
"""How many orders come at once in an overload: more than all replicas have room for."""

AUDIENCE: Final = "soak"
SECRET: Final = "a secret that only the soak knows, 32 bytes"

EXPECTED_ERRORS: Final = (
    "tool failed",
    "task is given up",
    "lines cannot be written",
    "the worker did not stop in time",
)
"""The beginnings of expected errors. A tool raises, a task is given up when its worker is lost, and logs fail. A worker
may also be asked to stop while the store is paused for longer than the worker may take."""

LEG_SECONDS: Final = 20.0
"""The longest time until a charge whose replica was killed is reported as used."""

FULL_BYTES: Final = 1 << 30
"""The size of audit logs on full disks; nothing else is as large. They are sparse files that nobody reads."""

SHOWN_CHARACTERS: Final = 500
PIPE_SECONDS: Final = 0.05


class Ground:
    """A context manager that starts everything and leaves no process behind.

    Args:
        directory: for logs, keys, effects and the store.
        tools: the module with the tools.

    Attributes:
        incidents: what went wrong with processes.
        struck: fault → how often it struck.
        crowd: lets so many customers order at once, and returns how many were refused.
    """

    def __init__(self, directory: Path, tools: str) -> None:
        self.incidents: list[str] = []
        self.struck: Counter[str] = Counter()
        self.crowd: Callable[[int], int] = lambda _: 0
        self.store = Store(directory)
        self._depot = Depot(directory)
        upstreams = directory / "upstreams.json"
        upstreams.write_text(json.dumps({"mcpServers": {"depot": {"url": self._depot.url, "gateway": {}}}}))
        self._keys = KeyFile(directory / "seal-keys")
        self._clocks = {name: ShiftedClock(directory / f"{name}.clock") for name in ("r1", "w3")}
        self._pipes = [Pipe(directory / f"{name}.audit") for name in ("r2", "w2")]
        self._reads_pipes = threading.Event()
        self._ended = threading.Event()
        settings = {
            "GATEWAY_TOOLS": tools,
            "GATEWAY_UPSTREAMS": str(upstreams),
            "GATEWAY_MAX_INFLIGHT": str(MAX_INFLIGHT),
            "GATEWAY_AUDIENCE": AUDIENCE,
            "GATEWAY_AUDIT_LOG": str(directory / "audit"),
            "GATEWAY_AUTH": "jwt",
            "GATEWAY_JWT_SECRET": SECRET,
            "GATEWAY_SEAL_KEYS": "",
            "GATEWAY_SEAL_KEYS_FILE": str(self._keys.path),
            "GATEWAY_REDIS_URL": self.store.address.url,
            "GATEWAY_DRAIN_NOTICE_SECONDS": "1",
            "GATEWAY_DRAIN_SECONDS": "5",
            "GATEWAY_LEG_SECONDS": str(LEG_SECONDS),
            "GATEWAY_TASK_LEASE_SECONDS": str(LEASE_SECONDS),
            "GATEWAY_TASK_MAX_TTL_SECONDS": str(TTL_SECONDS),
            "GATEWAY_TASKS_PER_PRINCIPAL": "1000000",
            "GATEWAY_TASK_BYTES_PER_PRINCIPAL": str(2**40),
            "GATEWAY_WORKER_CONCURRENCY": "8",
            DIRECTORY: str(directory),
        }
        own = {name: dict(clock.environ) for name, clock in self._clocks.items()}
        for name in ("r1", "w1"):
            audit = directory / f"{name}.audit"
            audit.touch()
            os.truncate(audit, FULL_BYTES)
            required = {"GATEWAY_AUDIT_LOG": str(audit), "GATEWAY_AUDIT_LOG_REQUIRED": "on"}
            own.setdefault(name, {}).update(required)
        for name, pipe in zip(("r2", "w2"), self._pipes, strict=True):
            own[name] = {"GATEWAY_AUDIT_LOG": str(pipe.path), "GATEWAY_REDIS_URL": self.store.slow_address.url}
        self._cluster = Cluster(
            directory,
            replicas=REPLICAS,
            workers=WORKERS,
            environ=settings,
            own=own,
            repeatable=_repeatable(settings),
        )

    def __enter__(self) -> Self:
        """Start everything."""
        self._reads_pipes.set()
        threading.Thread(target=self._read_pipes, daemon=True).start()
        try:
            self.store.primary.restart()
            self._depot.restart()
            self._cluster.__enter__()
            self._wait_listed()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End everything that still runs."""
        self._cluster.__exit__()
        self._depot.stop()
        self.store.close()
        self._ended.set()
        ShiftedClock.clean_up()

    @property
    def url(self) -> str:
        """The balancer."""
        return self._cluster.url

    @staticmethod
    def tokens(seconds: float) -> list[str]:
        """Make a token for each user that is valid for `seconds`."""
        return [mint(SECRET, user, AUDIENCE, ttl_seconds=round(seconds)) for user in USERS]

    def strike(self, fault: str, chance: random.Random) -> None:
        """Let a fault strike and pass. When this returns, everything that ran before runs again."""
        try:
            if FAULTS[fault](self, chance):
                self.struck[fault] += 1
        except Exception as error:  # noqa: BLE001 - the soak continues, and reports at the end
            self.incidents.append(f"{fault}: {type(error).__name__}: {str(error)[:SHOWN_CHARACTERS]}")

    def leave(self) -> Rest:
        """Wait until nothing is queued, read the rest of the store, and ask all processes to stop cleanly."""
        rest = self._rest()
        for process in self._members():
            self._end(process, clean=True)
        self.store.primary.terminate()
        self.incidents += self._errors()
        return rest

    def _rest(self) -> Rest:
        with redis.Redis.from_url(self.store.primary.url, decode_responses=True) as client:
            queues = list(client.scan_iter(match="*:queue", count=1000))
            try:
                wait_until(lambda: not any(map(client.xlen, queues)), "empty queues", PATIENCE_SECONDS)
            except ClusterError as error:
                self.incidents.append(str(error))
            phases = {task: client.hget(task, "phase") for task in client.scan_iter(match="*:task:*", count=1000)}
            return Rest(
                queued={queue: client.xlen(queue) for queue in queues},
                phases={task.rpartition(":")[2]: phase for task, phase in phases.items() if phase is not None},
                endless=keys_without_lifetime(self.store.primary.url),
            )

    def _wait_listed(self) -> None:
        """Wait until every replica has read the depot's lists."""
        for replica in self._cluster.replicas:
            wait_until(partial(_has_listed, replica), f"{replica.name} to list the depot's tools")

    def _members(self) -> list[Replica | Worker]:
        return [*self._cluster.replicas, *self._cluster.workers]

    def _kill_worker(self, chance: random.Random) -> bool:
        self._kill(chance.choice(self._cluster.workers), chance.uniform(0, LEASE_SECONDS))
        return True

    def _pause_worker(self, chance: random.Random) -> bool:
        worker = chance.choice(self._cluster.workers)
        worker.pause()
        time.sleep(chance.uniform(1.2, 2.5) * LEASE_SECONDS)
        worker.resume()
        return True

    def _drain_worker(self, chance: random.Random) -> bool:
        worker = chance.choice(self._cluster.workers)
        self._end(worker)
        worker.restart()
        return True

    def _kill_replica(self, chance: random.Random) -> bool:
        self._kill(chance.choice(self._cluster.replicas), chance.uniform(0, 1))
        return True

    def _drain_replica(self, chance: random.Random) -> bool:
        replica = chance.choice(self._cluster.replicas)
        self._end(replica)
        replica.restart()
        return True

    def _rotate_keys(self, chance: random.Random) -> bool:
        """Roll out the next phase of a rotation when it is due."""
        if not self._keys.may_advance():
            return False
        ids = self._keys.advance()
        members = self._members()
        wait_until(lambda: all(member.logged("seal keys replaced", key_ids=ids) for member in members), "the keys")
        self._keys.rolled_out()
        return True

    def _kill_store(self, chance: random.Random) -> bool:
        self._kill(self.store.primary, chance.uniform(0, 3))
        return True

    def _restart_store(self, chance: random.Random) -> bool:
        self.store.primary.terminate()
        time.sleep(chance.uniform(0, 3))
        self.store.primary.restart()
        return True

    def _pause_store(self, chance: random.Random) -> bool:
        self.store.primary.pause()
        time.sleep(chance.uniform(0.5, 5))
        self.store.primary.resume()
        return True

    def _flush_scripts(self, chance: random.Random) -> bool:
        self.store.primary.ask("SCRIPT", "FLUSH")
        return True

    def _cut_connections(self, chance: random.Random) -> bool:
        for kind in ("pubsub", "normal"):
            self.store.primary.ask("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        return True

    def _pause_store_for_long(self, chance: random.Random) -> bool:
        self.store.primary.pause()
        time.sleep(chance.uniform(5, 35))
        self.store.primary.resume()
        return True

    def _withhold_replies(self, chance: random.Random) -> bool:
        """Let the store run the commands of a replica and a worker, and withhold its replies."""
        self.store.slow_address.withhold_replies()
        time.sleep(chance.uniform(0.5, 5))
        self.store.slow_address.release_replies()
        return True

    def _fill_store(self, chance: random.Random) -> bool:
        self.store.primary.ask("CONFIG", "SET", "maxmemory", "1")
        time.sleep(chance.uniform(1, 5))
        self.store.primary.ask("CONFIG", "SET", "maxmemory", "0")
        return True

    def _fail_over(self, chance: random.Random) -> bool:
        self.store.fail_over(chance.uniform(0, 2))
        return True

    def _shift_stores_clock(self, chance: random.Random) -> bool:
        """Let the clock jump there and back, by less than tasks live longer than their customers need."""
        self.store.jump(chance.choice((f"+{JUMP_SECONDS}s", f"-{JUMP_SECONDS}s")))
        time.sleep(chance.uniform(2, 5))
        self.store.jump("+0")
        return True

    def _overload(self, _chance: random.Random) -> bool:
        return self.crowd(CROWD) > 0

    def _kill_depot(self, _chance: random.Random) -> bool:
        self._kill(self._depot, 0)
        return True

    def _roll(self, _chance: random.Random) -> bool:
        """Restart all replicas and workers, one after the other."""
        for name, code in self._cluster.rolling_restart().items():
            self._check_exit(name, code, (0, 1))
        return True

    def _hang_up(self, _chance: random.Random) -> bool:
        """Let all processes read their files again."""
        before = {member: len(member.logged("files read again")) for member in self._members()}
        for member in before:
            member.signal(signal.SIGHUP)
        for member, count in before.items():
            member.wait_for_log("files read again", count=count + 1)
        return True

    def _freeze_replica(self, chance: random.Random) -> bool:
        replica = chance.choice(self._cluster.replicas)
        replica.pause()
        time.sleep(chance.uniform(1, 8))
        replica.resume()
        return True

    def _fill_disk(self, chance: random.Random) -> bool:
        """Fill the audit logs of a replica and a worker, whose calls require their audit lines."""
        members = [self._cluster["r1"], self._cluster.worker("w1")]
        before = [resource.prlimit(member.pid, resource.RLIMIT_FSIZE) for member in members]
        for member, (_, hard) in zip(members, before, strict=True):
            resource.prlimit(member.pid, resource.RLIMIT_FSIZE, (FULL_BYTES, hard))
        time.sleep(chance.uniform(1, 5))
        for member, limits in zip(members, before, strict=True):
            resource.prlimit(member.pid, resource.RLIMIT_FSIZE, limits)
        return True

    def _leave_pipes_unread(self, chance: random.Random) -> bool:
        self._reads_pipes.clear()
        for pipe in self._pipes:
            pipe.fill()
        time.sleep(chance.uniform(1, 5))
        self._reads_pipes.set()
        return True

    def _lose_readers(self, chance: random.Random) -> bool:
        self._reads_pipes.clear()
        for pipe in self._pipes:
            pipe.lose_reader()
        time.sleep(chance.uniform(1, 5))
        for pipe in self._pipes:
            pipe.gain_reader()
        self._reads_pipes.set()
        return True

    def _shift_workers_clock(self, chance: random.Random) -> bool:
        return self._shift("w3", chance.choice(("+1h", "-1h")), chance)

    def _shift_replicas_clock(self, chance: random.Random) -> bool:
        """Shift a replica's clock by less than makes it reject tokens and states, which is documented."""
        return self._shift("r1", chance.choice(("+20s", "-20s")), chance)

    def _shift(self, name: str, shift: str, chance: random.Random) -> bool:
        self._clocks[name].set(shift)
        time.sleep(chance.uniform(2, 5))
        self._clocks[name].set("+0")
        return True

    def _read_pipes(self) -> None:
        """Read the pipes, as a log collector does."""
        while not self._ended.wait(PIPE_SECONDS):
            for pipe in self._pipes if self._reads_pipes.is_set() else ():
                # The reader may be lost at any moment.
                with contextlib.suppress(AssertionError, OSError):
                    pipe.read()

    def _kill(self, process: LoggedProcess, away_seconds: float) -> None:
        self._expect_alive(process)
        process.kill()
        time.sleep(away_seconds)
        process.restart()

    def _end(self, process: Replica | Worker, *, clean: bool = False) -> None:
        self._expect_alive(process)
        self._check_exit(process.name, process.terminate(), (0,) if clean else (0, 1))

    def _check_exit(self, name: str, code: int, allowed: tuple[int, ...]) -> None:
        if code not in allowed:
            self.incidents.append(f"{name} was asked to leave and ended with {code}")

    def _expect_alive(self, process: LoggedProcess) -> None:
        if not process.alive:
            self.incidents.append(f"{process.name} ended by itself with {process.wait()}")

    def _errors(self) -> Iterator[str]:
        """Yield logged errors, and output that is not a log line."""
        for member in self._members():
            for line in member.log_text().splitlines():
                record = json.loads(line) if line.startswith("{") else {"level": "error", "message": line}
                wanted = str(record["message"]).startswith(EXPECTED_ERRORS)
                if record["level"] in ("error", "critical") and not wanted:
                    yield f"{member.name}: {record['message']} {record.get('exception', '')[-SHOWN_CHARACTERS:]}"


class KeyFile:
    """The seal keys in a file, and their rotation: `old,new`, then `new,old`, then `new` once nothing needs the old.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ring = [new_key()]
        self._phase = 0
        self._useless_at = 0.0
        self._write()

    def may_advance(self) -> bool:
        """Return whether the next phase is due."""
        return self._phase < 2 or time.monotonic() > self._useless_at

    def advance(self) -> str:
        """Begin the next phase, and return the ids of its keys as processes log them."""
        self._phase = (self._phase + 1) % 3
        match self._phase:
            case 1:
                self._ring.append(new_key())
            case 2:
                self._ring.reverse()
            case _:
                self._ring.pop()
        self._write()
        return ", ".join(KeyRing.parse(key).sealing_key.key_id.hex() for key in self._ring)

    def rolled_out(self) -> None:
        """Record that every process has the keys of this phase: from now on the first one seals tasks."""
        self._useless_at = time.monotonic() + TTL_SECONDS + JUMP_SECONDS

    def _write(self) -> None:
        """Replace the file as a whole."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text(",".join(self._ring))
        fresh.rename(self.path)


def _has_listed(replica: Replica) -> bool:
    return replica.metric("gateway_upstream_entries") > 0


def _repeatable(settings: Mapping[str, str]) -> str:
    """Return the requests that reach no upstream, as an operator lists them for the balancer."""
    command = [sys.executable, "-m", "gateway", "upstreams", "--haproxy"]
    environ = clean_environment(settings)
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout


Fault: TypeAlias = Callable[[Ground, random.Random], bool]

PROCESS_FAULTS: Final[Mapping[str, Fault]] = {
    "worker killed": Ground._kill_worker,
    "worker paused past its lease": Ground._pause_worker,
    "worker drained": Ground._drain_worker,
    "replica killed": Ground._kill_replica,
    "replica frozen": Ground._freeze_replica,
    "disk of audit logs full": Ground._fill_disk,
    "pipes of audit logs unread": Ground._leave_pipes_unread,
    "readers of audit logs dead": Ground._lose_readers,
    "replica drained": Ground._drain_replica,
    "seal keys: next phase": Ground._rotate_keys,
    "rolling restart": Ground._roll,
    "SIGHUP": Ground._hang_up,
}
STORE_FAULTS: Final[Mapping[str, Fault]] = {
    "store killed": Ground._kill_store,
    "store restarted": Ground._restart_store,
    "store paused": Ground._pause_store,
    "store paused for long": Ground._pause_store_for_long,
    "replies withheld": Ground._withhold_replies,
    "scripts flushed": Ground._flush_scripts,
    "connections cut": Ground._cut_connections,
    "store full": Ground._fill_store,
    "failover": Ground._fail_over,
    "store's clock 20 s off": Ground._shift_stores_clock,
}
OTHER_FAULTS: Final[Mapping[str, Fault]] = {
    "overload": Ground._overload,
    "depot killed": Ground._kill_depot,
    "worker's clock an hour off": Ground._shift_workers_clock,
    "replica's clock 20 s off": Ground._shift_replicas_clock,
}
"""Faults of one table strike one after the other; those of the other tables may strike at the same time."""

FAULTS: Final[Mapping[str, Fault]] = {**PROCESS_FAULTS, **STORE_FAULTS, **OTHER_FAULTS}
