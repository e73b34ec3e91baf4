"""Recognises functions of upstreams that can ask their user only in a session, and remembers them for a while.

Measured with `mcp` 2.3: error -32600 with "no back-channel for server-initiated requests". Measured with fastmcp 4:
error -32603 or, from tools, a failed result. Its text is the same or "via server-initiated requests is unavailable on".
Measured with the TypeScript SDK 2.4: a failed result with one of two texts of its own, by the era.
Measured with supergateway 4: it refuses the question of the server behind it, whose tools fail with its text.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any, Final

import msgspec

from gateway.runtime.sources import Clock
from gateway.upstreams.failures import UpstreamError

REMEMBERED_SECONDS: Final = 3600.0
MAX_REMEMBERED: Final = 10_000
"""How many functions of one upstream are remembered."""

_CODES: Final = frozenset({-32600, -32603})
_TEXT: Final = re.compile(
    r"no back-channel for server-initiated requests|via server-initiated requests is unavailable on"
    r"|Server-to-client requests are not (?:available on protocol revision|supported in stateless mode)"
    r"|the client on this 2025-era connection did not declare the required capability"
)
_MAX_TEXT: Final = 500
"""The longest text that is looked at: longer ones may quote anything."""


def is_error_of_session(error: UpstreamError) -> bool:
    """Return whether an upstream's error says that it could ask only in a session."""
    return error.code in _CODES and _says_so(error.message)


def is_result_of_session(result: Mapping[str, Any]) -> bool:
    """Return whether the failed result of a tool says that it could ask only in a session."""
    content = result.get("content")
    if result.get("isError") is not True or not isinstance(content, list) or len(content) != 1:
        return False
    text = content[0].get("text") if isinstance(content[0], dict) else None
    return isinstance(text, str) and _says_so(text)


def is_quoted(params: Mapping[str, Any]) -> bool:
    """Return whether a request itself contains the words, so that an error may only repeat them."""
    return _TEXT.search(msgspec.json.encode(params).decode()) is not None


def _says_so(text: str) -> bool:
    return len(text) <= _MAX_TEXT and _TEXT.search(text) is not None


class NeedSessions:
    """Remembers for an hour which functions of an upstream need a session.

    Each caller has a memory of their own: what an upstream answers may be what its caller made it say.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._until: OrderedDict[tuple[Hashable, str, str], float] = OrderedDict()

    def add(self, caller: Hashable, method: str, name: str) -> None:
        """Remember a function."""
        self._until.pop((caller, method, name), None)
        self._until[caller, method, name] = self._clock() + REMEMBERED_SECONDS
        if len(self._until) > MAX_REMEMBERED:
            self._until.popitem(last=False)

    def has(self, caller: Hashable, method: str, name: str) -> bool:
        """Return whether a function is known to need a session."""
        until = self._until.get((caller, method, name))
        if until is None:
            return False
        if self._clock() < until:
            return True
        del self._until[caller, method, name]
        return False
