"""HAProxy with the shipped configuration. It gets the addresses of the replicas at run time."""

from __future__ import annotations

import csv
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from loadtest.cluster.common import (
    HOST,
    REPOSITORY,
    STOP_SECONDS,
    ClusterError,
    LoggedProcess,
    find_program,
    wait_until,
)

SHIPPED = REPOSITORY / "deploy" / "haproxy.cfg"
BACKENDS = ("replicas", "repeatable")
"""Each has the same replicas, at the same places."""
EVERYTHING = "*\n"
"""The list of a deployment without upstreams."""
NOTHING = ""
NOWHERE = f"{HOST}:1"


class Balancer(LoggedProcess):
    """HAProxy, at the same address over all its restarts.

    It starts with empty places for replicas; `set_servers` fills them.

    Args:
        directory: where its log and its list go.
        config: its configuration.
        own: the list of requests that it may send again, as `gateway upstreams --haproxy` writes it.

    Raises:
        ClusterError: the system has no HAProxy.
    """

    def __init__(self, directory: Path, config: Path = SHIPPED, *, own: str = EVERYTHING) -> None:
        super().__init__("haproxy", {}, directory / "haproxy.log")
        self._program = find_program("haproxy", package="haproxy")
        self._address, self._metrics_address = f"{HOST}:{self._keep_port()}", f"{HOST}:{self._keep_port()}"
        self._admin_port = self._keep_port()
        listed = directory / "own.lst"
        listed.write_text(own)
        self.environ = {
            "GATEWAY_BALANCER_BIND": self._address,
            "GATEWAY_BALANCER_METRICS": self._metrics_address,
            "GATEWAY_BALANCER_ADMIN": f"ipv4@{HOST}:{self._admin_port}",
            "GATEWAY_BALANCER_REPLICAS": NOWHERE,
            "GATEWAY_BALANCER_OWN": str(listed),
        }
        self.config = config
        self._servers: dict[str, tuple[str, int]] = {}
        self._places: dict[str, str] = {}

    @property
    def url(self) -> str:
        """The MCP endpoint of the cluster."""
        return f"http://{self._address}/mcp"

    @property
    def metrics_url(self) -> str:
        """Where it serves its metrics."""
        return f"http://{self._metrics_address}/metrics"

    def _command(self) -> Sequence[str]:
        return [self._program, "-db", "-f", str(self.config)]

    def wait_ready(self) -> None:
        """Wait until it accepts connections and knows where the replicas are."""
        self._wait_started(self._answers)
        self._places = {}
        self.set_servers(self._servers)

    def _answers(self) -> bool:
        try:
            return bool(self.command("show info"))
        except OSError:
            return False

    def set_servers(self, servers: Mapping[str, tuple[str, int]]) -> None:
        """Set the replicas, name → address. Replicas whose address stays the same are not touched.

        Raises:
            ClusterError: the configuration has too few places.
        """
        rows = self._rows()
        stay = {name for name, address in servers.items() if self._servers.get(name) == address}
        kept = {name: place for name, place in self._places.items() if name in stay}
        free = [place for place in rows if place not in kept.values()]
        new = [name for name in servers if name not in kept]
        if len(new) > len(free):
            raise ClusterError(f"{self.config.name} has places for {len(rows)} replicas, not for {len(servers)}")
        self._servers = dict(servers)
        self._places = {**kept, **dict(zip(new, free, strict=False))}
        for place in free:
            if place not in self._places.values() and any(row["status"] != "MAINT" for row in rows[place]):
                self._empty(place)
        for name in new:
            host, port = servers[name]
            self._command_all(self._places[name], f"addr {host} port {port}")
            self._command_all(self._places[name], "state ready")

    def _empty(self, place: str) -> None:
        """Send a place no more requests.

        Maintenance closes connections, also those of requests that HAProxy is about to send to another replica because
        this one is gone. So each request has to end or move first.
        """
        self._command_all(place, "state drain")
        wait_until(lambda: all(row["scur"] == "0" for row in self._rows()[place]), f"the requests to {place} to end")
        self._command_all(place, "state maint")

    def _command_all(self, place: str, change: str) -> None:
        for backend in BACKENDS:
            self.command(f"set server {backend}/{place} {change}")

    def up(self) -> set[str]:
        """Return the names of the replicas that it sends all kinds of requests to now."""
        rows = self._rows()
        return {name for name, place in self._places.items() if all(map(_is_up, rows[place]))}

    def wait_up(self, *names: str) -> None:
        """Wait until it sends requests to these replicas."""
        wait_until(lambda: self.up() >= set(names), f"the balancer to see {', '.join(names)} up")

    def wait_down(self, *names: str) -> None:
        """Wait until it sends no request to these replicas."""

        def are_down() -> bool:
            rows = self._rows()
            return not any(_is_up(row) for name in names for row in rows[self._places[name]])

        wait_until(are_down, f"the balancer to see {', '.join(names)} down")

    def command(self, text: str) -> str:
        """Send one command to the runtime API, and return its reply."""
        with socket.create_connection((HOST, self._admin_port), timeout=STOP_SECONDS) as connection:
            connection.sendall(f"{text}\n".encode())
            with connection.makefile("r", encoding="utf-8") as said:
                return said.read().strip()

    def _rows(self) -> dict[str, list[dict[str, str]]]:
        """Return the statistics of each place in each backend, in order."""
        found: dict[str, list[dict[str, str]]] = {}
        for row in csv.DictReader(self.command("show stat").removeprefix("# ").splitlines()):
            if row["pxname"] in BACKENDS and row["svname"] != "BACKEND":
                found.setdefault(row["svname"], []).append(row)
        return found


def _is_up(row: Mapping[str, str]) -> bool:
    return row["status"].startswith("UP")
