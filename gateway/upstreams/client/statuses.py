"""The meaning of an HTTP status other than 200, and whether the upstream may have acted before it sent one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from gateway.upstreams.failures import Reason

_REDIRECTS: Final = range(300, 400)
_CLIENT_ERRORS: Final = 400
_SERVER_ERRORS: Final = 500
_UNAUTHORIZED: Final = 401
_NOT_FOUND: Final = 404
UNAVAILABLE: Final = 503
_REFUSED: Final[Mapping[int, Reason]] = {
    _UNAUTHORIZED: Reason.UNAUTHORIZED,
    403: Reason.FORBIDDEN,
    429: Reason.BUSY,
    UNAVAILABLE: Reason.SERVER_ERROR,
}
"""Statuses that decide alone. Their bodies are not read. The upstream has done nothing, unless it is 503."""
_NOT_PROCESSED: Final = frozenset({404, 405, 406, 411, 413, 414, 415, 421, 426, 431})
"""Further statuses with which a server says that it has not looked at the request."""
_LOGIN: Final = "; check its credentials, and if users must log in there, use mcp-remote over stdio or forward_headers"
"""Advice for operators: a hosted server may want the login of each user, which no option provides."""


_PLACE: Final = re.compile(r"[!-\"$->A-~]{1,200}", re.ASCII)
"""An address without query, fragment and user, which could be secret."""


class Meaning(NamedTuple):
    """The failure that a status stands for: its reason, whether the upstream may have acted, and words for the log."""

    reason: Reason
    sent: bool
    detail: str


def may_have_error(status: int) -> bool:
    """Return whether a response with this status may contain a JSON-RPC error, which then counts."""
    return status >= _CLIENT_ERRORS and status not in _REFUSED


def meaning_of(status: int, *, acts: bool, location: str = "") -> Meaning:
    """Return the failure that a status stands for, if its body contains no JSON-RPC error.

    `acts` tells whether the upstream may have acted if it answers 503. Some proxies send that too when the server
    behind them broke off, perhaps in the middle of its work. `location` is where a redirect leads.
    """
    detail = f"HTTP {status}"
    if status in _REDIRECTS:
        return Meaning(Reason.REDIRECT, sent=False, detail=detail + _advice(location))
    if status in _REFUSED:
        advice = _LOGIN if status == _UNAUTHORIZED else ""
        return Meaning(_REFUSED[status], sent=acts and status == UNAVAILABLE, detail=detail + advice)
    if status == _NOT_FOUND:
        return Meaning(Reason.NOT_FOUND, sent=False, detail=detail)
    if status >= _SERVER_ERRORS:
        return Meaning(Reason.SERVER_ERROR, sent=True, detail=detail)
    return Meaning(Reason.MALFORMED, sent=status not in _NOT_PROCESSED, detail=detail)


def _advice(location: str) -> str:
    """Return words for the operator, who may have to write a slash at the end of the URL, or to remove it."""
    place = re.split("[?#]", location, maxsplit=1)[0]
    return f" to {place}; if that is the right address, write it in the file" if _PLACE.fullmatch(place) else ""
