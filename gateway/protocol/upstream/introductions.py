"""Pure: what an upstream says of itself when a session begins."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from gateway.protocol.strict_json import decode, encode

MAX_INTRODUCTION_BYTES: Final = 256 * 1024
"""How large an answer to `initialize` may be."""


class SessionIntroduction:
    """The answer to `initialize`: what is needed of it as long as the session lasts.

    It is kept encoded: there may be many sessions, and decoded values can take 25 times as much memory.

    Attributes:
        offers_tasks: whether tools may run as tasks (MCP 2025-11-25, "Tasks").
    """

    def __init__(self, result: Mapping[str, Any]) -> None:
        offered: Any = result
        for name in ("capabilities", "tasks", "requests", "tools", "call"):
            offered = offered.get(name) if isinstance(offered, Mapping) else None
        self.offers_tasks = offered is not None
        self._encoded = encode({name: result.get(name) for name in ("capabilities", "instructions")})

    def as_discovered(self) -> dict[str, Any]:
        """Return it like the answer to `server/discover` of later versions."""
        discovered: dict[str, Any] = decode(self._encoded, sys.maxsize, sys.maxsize)
        return discovered
