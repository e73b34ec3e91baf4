"""Finds out from the system whether a client is still connected.

A client that loses its network or its power does not close its connection. The system resends unacknowledged data for a
quarter of an hour before it gives up, so we check earlier. A slow reader does acknowledge data, and has a separate
limit.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from typing import Any, Final

_ON_LINUX: Final = sys.platform == "linux"
"""Linux is the only system whose `struct tcp_info` we can read."""

_INFO: Final = struct.Struct("=24xI28xI")
"""Reads from `struct tcp_info` (tcp(7)) the number of unacknowledged segments, and the time since the last ACK (ms)."""


class Presence:
    """Watches one client while a stream is sent to it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._socket: Any = transport.get_extra_info("socket") if _ON_LINUX else None
        self._silent_seconds: float | None = None

    def look(self, elapsed_seconds: float) -> float | None:
        """Return for how many seconds the client has acknowledged nothing; None if it has received everything.

        `elapsed_seconds` is the time since the last call.
        """
        waiting = None if self._socket is None else _unacknowledged(self._socket)
        if waiting is None:
            self._silent_seconds = None
        elif self._silent_seconds is None or waiting < elapsed_seconds:
            self._silent_seconds = 0.0
        else:
            self._silent_seconds += elapsed_seconds
        return self._silent_seconds


def _unacknowledged(connection: Any) -> float | None:
    """Return how long ago a client last acknowledged data, in seconds; None if no data is in flight."""
    try:
        segments, since_ms = _INFO.unpack(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size))
    except OSError:
        return None  # it is closed, or not TCP
    return since_ms / 1000 if segments else None
