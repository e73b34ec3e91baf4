"""The level of log messages that an upstream sends in a session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

from gateway.protocol.versions import LOG_LEVELS
from gateway.upstreams.failures import UpstreamError

SET_LEVEL: Final = "logging/setLevel"

_Send: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[object]]


class SessionLogLevel:
    """Asks an upstream for log messages. A level applies to the whole session, so it only ever sinks."""

    def __init__(self) -> None:
        self._can_log = False
        self._rank = len(LOG_LEVELS)

    def learn(self, introduction: Mapping[str, Any]) -> None:
        """Learn from the answer to `initialize` whether the upstream sends any."""
        capabilities = introduction.get("capabilities")
        self._can_log = isinstance(capabilities, dict) and "logging" in capabilities

    async def sink(self, level: str | None, send: _Send) -> None:
        """Let the upstream send messages of this level too."""
        ranks = [rank for rank, each in enumerate(LOG_LEVELS) if each == level]
        if self._can_log and ranks and ranks[0] < self._rank:
            self._rank = ranks[0]
            with suppress(UpstreamError):  # it sends what it likes
                await send(SET_LEVEL, {"level": level})
