"""Pure: notifications about one request, sent before its answer, each encoded as one line of JSON.

They are the same on every wire (MCP "Progress", "Logging").
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from gateway.protocol.jsonrpc import notification
from gateway.protocol.versions import LOG_LEVELS

_NOTHING: Final[Mapping[str, Any]] = {}
_SEVERITY: Final = {level: severity for severity, level in enumerate(LOG_LEVELS)}


def progress(
    token: str | int,
    done: float,
    total: float | None = None,
    message: str | None = None,
    related: Mapping[str, Any] = _NOTHING,
) -> bytes:
    """Encode a progress notification. The caller ensures that `done` only rises.

    `related` are further parameters, such as the `_meta` that names a task.

    `done` and `total` have the same unit, any one. A total that is less than `done` is omitted. Neither may be infinite
    or NaN, which JSON cannot represent: that is a `ValueError`.
    """
    params: dict[str, Any] = {"progressToken": token, "progress": done, **related}
    if total is not None and total >= done:
        params["total"] = total
    if message is not None:
        params["message"] = message
    # Not `math.isfinite`, which turns integers into floats first.
    if not -math.inf < done < math.inf or not -math.inf < (total or 0) < math.inf:
        raise ValueError("progress must be a finite number")
    return notification("notifications/progress", params)


def is_logged(level: str, minimum: str | None) -> bool:
    """Return whether a client that asked for `minimum` and above gets this level; None asks for no messages.

    A level that is not in `LOG_LEVELS` is a `ValueError`.
    """
    if level not in _SEVERITY or (minimum is not None and minimum not in _SEVERITY):
        raise ValueError(f"a log level must be one of {', '.join(LOG_LEVELS)}")
    return minimum is not None and _SEVERITY[level] >= _SEVERITY[minimum]


def log_message(level: str, data: Any, logger: str | None = None) -> bytes:
    """Encode a log message. Check with `is_logged` whether the client wants it.

    If the data has no JSON form, this raises the errors of `strict_json.encode`.
    """
    params: dict[str, Any] = {"level": level, "data": data}
    if logger is not None:
        params["logger"] = logger
    return notification("notifications/message", params)
