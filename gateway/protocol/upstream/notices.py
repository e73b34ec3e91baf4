"""Pure: notifications about a request, which a server sends while it works on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from gateway.protocol.jsonrpc import RequestId
from gateway.protocol.upstream.cleaning import short_text

PROGRESS: Final = "notifications/progress"
LOG: Final = "notifications/message"
VISITED: Final = "notifications/elicitation/complete"
"""A user has finished at a URL (2025-11-25). No client gets it: its call continues when the user accepts."""

MAX_TEXT_BYTES: Final = 16 * 1024
MAX_LEVEL_CHARS: Final = 32


def read_progress(params: Mapping[str, Any], token: RequestId) -> dict[str, Any] | None:
    """Return `progress`, and `total` and `message` if they are valid; None for progress that is not about `token`."""
    given, done, total, message = (params.get(name) for name in ("progressToken", "progress", "total", "message"))
    if type(given) is not type(token) or given != token or not _is_finite(done):
        return None
    told: dict[str, Any] = {"progress": done}
    if _is_finite(total):
        told["total"] = total
    if type(message) is str:
        told["message"] = short_text(message, MAX_TEXT_BYTES)
    return told


def read_log(params: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return `level`, `data`, and `logger` if it is valid; None if it is not a log message.

    The level may be unknown.
    """
    level, logger = params.get("level"), params.get("logger")
    if type(level) is not str or len(level) > MAX_LEVEL_CHARS or "data" not in params:
        return None
    told: dict[str, Any] = {"level": level, "data": params["data"]}
    if type(logger) is str:
        told["logger"] = short_text(logger, MAX_TEXT_BYTES)
    return told


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and -math.inf < value < math.inf
