"""The number of connections that the process can hold. Each needs a file descriptor."""

from __future__ import annotations

import logging
import resource
from typing import Final

RESERVED: Final = 128
"""File descriptors for everything except clients: listening sockets, logs, key files, metrics, and files of tools."""

MIN_CONNECTIONS: Final = 16

log = logging.getLogger(__name__)


def make_room(connections: int, beside: int = 0) -> int:
    """Raise the limit of open files to fit this many connections, as far as the system allows.

    There is room for so many `beside` them only if the hard limit allows it too.

    Above the system's limit `accept` fails, and no client can connect until another one disconnects. So the limit on
    connections must be below it: return how many the process can hold. That is fewer if the hard limit of `ulimit -n`
    is too low.
    """
    wanted = connections + RESERVED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted + beside
    if soft == resource.RLIM_INFINITY or soft >= most:
        return connections
    allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if allowed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed >= wanted:
        return connections
    possible = max(allowed - RESERVED, MIN_CONNECTIONS)
    log.warning(
        "too few file descriptors for GATEWAY_MAX_CONNECTIONS; raise the hard limit of `ulimit -n`",
        extra={"wanted": wanted, "allowed": allowed, "max_connections": possible},
    )
    return possible
