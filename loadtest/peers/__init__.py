"""Other projects' servers with the tools of ephemeral users, run like the gateway: several behind HAProxy."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from loadtest.cluster import REPOSITORY, Balancer, ClusterError, new_key
from loadtest.cluster.common import HOST, LoggedProcess, port_of, reserve_port

PEERS: Final = {"sdk": (REPOSITORY / ".venvs" / "sdk", Path(__file__).with_name("sdk_server.py"))}
"""The environment of each peer, which `make` builds, and the server that runs in it."""

_READY_SECONDS = 1.0


@contextlib.contextmanager
def peer_cluster(name: str, directory: Path, *, replicas: int = 2) -> Iterator[str]:
    """Run a peer behind the shipped balancer configuration, and yield the URL of its MCP endpoint.

    Args:
        name: one of `PEERS`.
        directory: where the logs go.
        replicas: how many; they are called sdk1, sdk2, …

    Raises:
        ClusterError: a process does not start, or the peer's environment is missing.
    """
    directory.mkdir(parents=True, exist_ok=True)
    key = new_key()
    servers = [PeerServer(name, number, key, directory) for number in range(1, replicas + 1)]
    with contextlib.ExitStack() as stack:
        balancer = Balancer(directory)
        for process in (balancer, *servers):
            stack.callback(process.stop)
            process.start()
        for process in (balancer, *servers):
            process.wait_ready()
        balancer.set_servers({server.name: server.address for server in servers})
        balancer.wait_up(*(server.name for server in servers))
        yield balancer.url


class PeerServer(LoggedProcess):
    """One process of a peer.

    Args:
        peer: one of `PEERS`.
        number: from 1.
        key: the key that all of them seal states with.
        directory: where its log goes.

    Raises:
        ClusterError: the peer's environment is missing.
    """

    def __init__(self, peer: str, number: int, key: str, directory: Path) -> None:
        name = f"{peer}{number}"
        environment, self._server = PEERS[peer]
        self._python = environment / "bin" / "python"
        if not self._python.exists():
            built = environment.relative_to(REPOSITORY) / ".installed"
            raise ClusterError(f"the environment of the peer {peer} is missing: run make {built}")
        super().__init__(name, {"PEER_STATE_KEY": key}, directory / f"{name}.log")
        self._port = reserve_port()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return HOST, port_of(self._port)

    def _command(self) -> Sequence[str]:
        host, port = self.address
        return [str(self._python), str(self._server), self.name, host, str(port)]

    def wait_ready(self) -> None:
        """Wait until it serves, or fail at once when the process ends."""
        self._wait_started(self._answers)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(*self.address, timeout=_READY_SECONDS)
        try:
            connection.request("GET", "/readyz", headers={"connection": "close"})
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        """End the process for good."""
        super().stop()
        self._port.close()
