"""The store: a Redis at an address that follows the primary, with a clock that can jump."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from loadtest.cluster import RedisServer, wait_until
from loadtest.cluster.common import HOST
from tests.chaos.clocks import ShiftedClock
from tests.soak.history import MARK
from tests.soak.relay import Relay

MARK_SECONDS: Final = 3600
UNREPLICATED_SECONDS: Final = 0.02
"""How long an old primary, cut off from its replica, serves on."""


class Store:
    """One primary at a time; each has a folder of its own, which stays.

    The files of all primaries are the history of all tasks, so they are never rewritten.

    Args:
        directory: for their folders.

    Attributes:
        primary: the present one.
        folders: of all primaries, in order.
        address: the address of the primary.
        slow_address: another one, whose replies can be withheld.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._clock = ShiftedClock(directory / "store.clock")
        self.folders: list[Path] = []
        self.primary = self._new_server()
        self.address, self.slow_address = Relay(self.primary.port), Relay(self.primary.port)

    def _new_server(self) -> RedisServer:
        folder = self._directory / f"store-{len(self.folders)}"
        folder.mkdir()
        self.folders.append(folder)
        server = RedisServer(folder, "--auto-aof-rewrite-percentage", "0")
        environ = self._clock.environ
        # The allocator of Redis asks for the time before libfaketime can answer. That of the C library does not.
        server.environ = {**environ, "LD_PRELOAD": f"{environ['LD_PRELOAD']}:libc.so.6"}
        return server

    def close(self) -> None:
        """Stop the primary."""
        self.primary.stop()
        self.address.close()
        self.slow_address.close()

    def jump(self, shift: str) -> None:
        """Set its clock."""
        self._clock.set(shift)

    def fail_over(self, seconds: float) -> None:
        """Make a replica, lose the primary after some seconds, and promote the replica.

        Writes that the primary has acknowledged in the last moment are lost with it.
        """
        replica, old = self._new_server(), self.primary
        try:
            replica.restart()
            replica.ask("REPLICAOF", HOST, str(old.port))
            wait_until(lambda: _is_in_step(replica), "the replica to have a copy")
            mark = f"{MARK}{len(self.folders) - 1}"
            old.ask("SET", mark, "", "EX", str(MARK_SECONDS))
            wait_until(lambda: bool(replica.ask("EXISTS", mark)), "the replica to follow")
            time.sleep(seconds)
        except BaseException:
            replica.stop()
            self.folders.pop()
            raise
        replica.ask("REPLICAOF", "NO", "ONE")
        time.sleep(UNREPLICATED_SECONDS)
        old.kill()
        old.stop()
        self.primary = replica
        for relay in (self.address, self.slow_address):
            relay.follow(replica.port)


def _is_in_step(replica: RedisServer) -> bool:
    """Return whether a replica has all data, and writes what comes next to its file."""
    state = replica.ask("INFO")
    assert isinstance(state, dict)
    busy = state["aof_rewrite_in_progress"] or state["aof_rewrite_scheduled"]
    return bool(state["role"] == "slave" and state["master_link_status"] == "up" and not busy)
