"""Pure: notifications about one request, told ahead of its answer, each encoded as one line of JSON.

They are the same on every wire (MCP "Progress", "Logging").
"""

from __future__ import annotations

import math
from typing import Any, Final

from gateway.protocol.jsonrpc import notification
from gateway.protocol.versions import LOG_LEVELS

_SEVERITY: Final = {level: severity for severity, level in enumerate(LOG_LEVELS)}


def progress(token: str | int, done: float, total: float | None = None, message: str | None = None) -> bytes:
    """Tell how far a request is. Whoever calls sees to it that `done` only rises.

    Args:
        token: the `progressToken` of the request.
        done: in any unit.
        total: in the same unit, or None if it is not known. One that is less than `done` is wrong, and left out.
        message: for people.

    Raises:
        ValueError: `done` or `total` is infinite or no number at all, which JSON cannot tell.
    """
    params: dict[str, Any] = {"progressToken": token, "progress": done}
    if total is not None and total >= done:
        params["total"] = total
    if message is not None:
        params["message"] = message
    # Not `math.isfinite`, which turns integers into floats first.
    if not -math.inf < done < math.inf or not -math.inf < (total or 0) < math.inf:
        raise ValueError("progress must be a finite number")
    return notification("notifications/progress", params)


def is_logged(level: str, minimum: str | None) -> bool:
    """Whether a message of this level goes to a client that asked for `minimum` and above; None asks for none.

    Raises:
        ValueError: one of them is not in `LOG_LEVELS`.
    """
    if level not in _SEVERITY or (minimum is not None and minimum not in _SEVERITY):
        raise ValueError(f"a log level must be one of {', '.join(LOG_LEVELS)}")
    return minimum is not None and _SEVERITY[level] >= _SEVERITY[minimum]


def log_message(level: str, data: Any, logger: str | None = None) -> bytes:
    """Send a log message; whether the client wants it is told by `is_logged`.

    Raises:
        TypeError, ValueError, RecursionError: the data has no JSON form, see `strict_json.encode`.
    """
    params: dict[str, Any] = {"level": level, "data": data}
    if logger is not None:
        params["logger"] = logger
    return notification("notifications/message", params)
