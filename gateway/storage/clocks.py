"""What time it is on a server, as a process knows it from what the server told it a short time ago."""

from __future__ import annotations

import time
from typing import Final

KNOWN_SECONDS: Final = 10.0
"""How long a server's time is relied on before it is asked again. Clocks drift apart, and are set."""

FRESH_SECONDS: Final = 5.0
"""How long it need not be asked again."""


class ServerClocks:
    """Estimates the time of servers. An estimate is never ahead of the server, but for what its clock is set back.

    A command that may run until the estimate reaches a certain time runs no later than that by the process's own clock.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, float]] = {}

    def time_ms(self, server: str) -> float | None:
        """Return the time of a server in milliseconds since the epoch, None if it has to be asked."""
        known, now = self._known.get(server), time.monotonic()
        if known is None or now >= known[1]:
            return None
        return known[0] + now * 1000

    def learn(self, server: str, server_ms: int) -> None:
        """Note what a server has just told. It did so some time ago: it may be later there by now, never earlier."""
        now = time.monotonic()
        self._known[server] = (server_ms - now * 1000, now + KNOWN_SECONDS)

    def is_fresh(self, server: str) -> bool:
        """Tell whether a server was asked so recently that it need not be asked again."""
        known = self._known.get(server)
        return known is not None and time.monotonic() < known[1] - KNOWN_SECONDS + FRESH_SECONDS

    def forget(self) -> None:
        """Forget everything: another server may answer from now on."""
        self._known.clear()
