"""Replicas and workers of two releases behind one balancer, with one store, and a server that both of them relay to."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from gateway.auth.tokens import mint
from gateway.sealing.keyring import KeyRing
from loadtest.cluster import Cluster, Replica, Worker, new_key, wait_until
from loadtest.cluster.processes import GatewayProcess
from tests.releases.account import release_of
from tests.releases.environment import Release

TOOLS: Final = Path(__file__).parent / "tools.py"
AUDIENCE: Final = "releases"
SECRET: Final = "a secret that only these tests know, 32 bytes or more"
CLEAN: Final = 0

ProcessT = TypeVar("ProcessT", bound=GatewayProcess)


class SideBySide(Cluster):
    """A cluster that begins with one release. The name of each process begins with its release.

    Args:
        directory: for logs, keys, effects and the store.
        releases: all releases that are going to run; first the one that it begins with.

    Attributes:
        effects: the file that tools write to.
        left: the processes that were replaced.
        incidents: what went wrong with processes.
    """

    def __init__(self, directory: Path, *releases: Release) -> None:
        self._releases = {release.version: release for release in releases}
        self._numbers = itertools.count(1)
        self._keys = directory / "keys"
        self._entries = [new_key()]
        self._upstreams = directory / "upstreams.json"
        self._gone: list[GatewayProcess] = []
        self.effects = directory / "effects"
        self.left: set[str] = set()
        self.incidents: list[str] = []
        settings = {
            "GATEWAY_TOOLS": str(TOOLS),
            "GATEWAY_UPSTREAMS": str(self._upstreams),
            "GATEWAY_AUDIENCE": AUDIENCE,
            "GATEWAY_AUTH": "jwt",
            "GATEWAY_JWT_SECRET": SECRET,
            "GATEWAY_JWT_CLAIMS": "email",
            "GATEWAY_SEAL_KEYS": "",
            "GATEWAY_SEAL_KEYS_FILE": str(self._keys),
            "GATEWAY_AUDIT_LOG": "off",
            "GATEWAY_MAX_INFLIGHT": "500",  # a busy machine is not what is tested
            "TEST_DIRECTORY": str(directory),  # where tools write their effects
        }
        first = releases[0].version
        names = [[self._name(first, letter) for _ in range(2)] for letter in "rw"]
        super().__init__(directory, replicas=names[0], workers=names[1], redis=True, environ=settings)
        own = {"GATEWAY_UPSTREAMS": "", "GATEWAY_AUTH": "none", "GATEWAY_REDIS_URL": "", "GATEWAY_SEAL_KEYS": new_key()}
        own |= {"GATEWAY_SEAL_KEYS_FILE": "", "GATEWAY_TOOLS": str(TOOLS.with_name("upstream.py"))}
        self.upstream = Replica("upstream", {**self.environ, **own}, directory / "upstream.log")

    def __enter__(self) -> Self:
        """Start everything, and wait until it serves."""
        self._keys.write_text(self._entries[0])
        behind = {"url": self.upstream.url, "gateway": {"task": "optional", "scopes": {"*": ["shop"]}}}
        self._upstreams.write_text(json.dumps({"mcpServers": {"behind": behind}}))
        self.upstream.start()
        try:
            self.upstream.wait_ready()
            return super().__enter__()
        except BaseException:
            self.upstream.end()
            raise

    def __exit__(self, *error: object) -> None:
        """Stop everything."""
        try:
            super().__exit__(*error)
        finally:
            self.upstream.stop()

    def _name(self, version: str, letter: str) -> str:
        return f"{version}-{letter}{next(self._numbers)}"

    def _make_replica(self, name: str, *options: str, **environ: str) -> Replica:
        return self._of_its_release(super()._make_replica(name, *options, **environ))

    def _make_worker(self, name: str, *options: str, **environ: str) -> Worker:
        return self._of_its_release(super()._make_worker(name, *options, **environ))

    def _of_its_release(self, process: ProcessT) -> ProcessT:
        """Let a process run the code of the release that its name begins with, and nothing of the other one."""
        release = self._releases[release_of(process.name)]
        process.python, process.cwd = release.python, release.sources
        process.environ["PYTHONPATH"] = str(release.sources)
        return process

    def token(self, user: str) -> str:
        """Return a token for a user, who has an address and may shop."""
        return mint(SECRET, user, AUDIENCE, scopes=["shop"], claims={"email": f"{user}@example.com"})

    def replace_replica(self, release: Release, before_leaving: Callable[[str], None]) -> None:
        """Start a replica of a release, and let one of another release go.

        Args:
            release: that of the new replica.
            before_leaving: called with the name of the old one before it is asked to stop.
        """
        old = next(replica for replica in self.replicas if release_of(replica.name) != release.version)
        self.add_replica(self._name(release.version, "r"))
        before_leaving(old.name)
        self._let_go(old, self.remove_replica)

    def replace_worker(self, release: Release) -> None:
        """Start a worker of a release, and let one of another release go."""
        old = next(worker for worker in self.workers if release_of(worker.name) != release.version)
        self.add_worker(self._name(release.version, "w"))
        self._let_go(old, self.remove_worker)

    def _let_go(self, process: GatewayProcess, remove: Callable[[str], int]) -> None:
        self.left.add(process.name)
        self._gone.append(process)
        code = remove(process.name)
        if code != CLEAN:
            self.incidents.append(f"{process.name} ended with {code}")

    def rotate_keys(self) -> None:
        """Bring in a seal key that all processes open, and then let it seal; the older ones stay."""
        key = new_key()
        for entries in ([*self._entries, key], [key, *self._entries]):
            self._keys.write_text(",".join(entries))
            for process in (*self.replicas, *self.workers):
                wait_until(partial(_holds, process, key, seals=entries[0] == key), f"a new key at {process.name}")
            self._entries = entries

    def note_logs(self) -> None:
        """Add what processes have logged and should not have to the incidents."""
        for process in (*self._gone, *self.replicas, *self.workers):
            for line in process.log_lines():
                if line.get("level") in ("warning", "error") and not self._is_usual(line):
                    self.incidents.append(f"{process.name}: {json.dumps(line)}")

    def _is_usual(self, line: Mapping[str, Any]) -> bool:
        """Return whether an answer has only just missed its call, which ended with its replica.

        If the call did not end, its client gets no result, and the order fails.
        """
        match line:
            case {"message": "replica not reached", "url": str(url)}:
                return url in {process.environ.get("GATEWAY_REPLICA_URL") for process in self._gone}
            case {"message": "response rejected", "reason": "gone"}:
                return True
        return False


def _holds(process: GatewayProcess, entry: str, *, seals: bool) -> bool:
    """Return whether a process has a key, and seals with it if wanted."""
    (key,) = KeyRing.parse(entry).keys
    return process.metric("gateway_seal_keys", key_id=key.key_id.hex(), role="seals" if seals else "opens") == 1
