"""How many connections the process may hold: each needs a file descriptor."""

from __future__ import annotations

import logging
import resource
from typing import Final

RESERVED: Final = 128
"""Descriptors for everything but clients: listening sockets, logs, key files, metrics, what tools open."""

MIN_CONNECTIONS: Final = 16

log = logging.getLogger(__name__)


def make_room(connections: int) -> int:
    """Let the process open enough files for so many connections, as far as the system lets it.

    Above the system's limit `accept` fails, and nobody can connect until somebody leaves; so the limit on connections
    has to be below it.

    Returns:
        How many connections it may hold: so many, or fewer if the hard limit of `ulimit -n` is too low.
    """
    wanted = connections + RESERVED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if allowed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed == wanted:
        return connections
    possible = max(allowed - RESERVED, MIN_CONNECTIONS)
    log.warning(
        "too few file descriptors for GATEWAY_MAX_CONNECTIONS; raise the hard limit of `ulimit -n`",
        extra={"wanted": wanted, "allowed": allowed, "max_connections": possible},
    )
    return possible
