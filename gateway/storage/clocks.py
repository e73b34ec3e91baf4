"""The time on a server, estimated from what the server reported a short time ago."""

from __future__ import annotations

import time
from typing import Final

KNOWN_SECONDS: Final = 10.0
"""How long an estimate is used before the server is asked again. Clocks drift, and they get set."""

FRESH_SECONDS: Final = 5.0
"""How long an estimate needs no refresh."""


class ServerClocks:
    """Estimates the time on servers. An estimate is never ahead, unless the server's clock was set back.

    So a command whose deadline is an estimated time never runs after that moment on the process's own clock.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, float]] = {}

    def time_ms(self, server: str) -> float | None:
        """Return the time on a server in milliseconds since the epoch, None if the server has to be asked."""
        known, now = self._known.get(server), time.monotonic()
        if known is None or now >= known[1]:
            return None
        return known[0] + now * 1000

    def learn(self, server: str, server_ms: int) -> None:
        """Note the time that a server has just reported. By now it may be later there, but never earlier."""
        now = time.monotonic()
        self._known[server] = (server_ms - now * 1000, now + KNOWN_SECONDS)

    def is_fresh(self, server: str) -> bool:
        """Return whether a server was asked recently enough."""
        known = self._known.get(server)
        return known is not None and time.monotonic() < known[1] - KNOWN_SECONDS + FRESH_SECONDS

    def forget(self) -> None:
        """Forget all estimates: another server may answer from now on."""
        self._known.clear()
