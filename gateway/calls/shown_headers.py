"""The headers of a request that functions may see."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gateway.errors import InvalidRequest
from gateway.protocol.headers import Headers

MAX_BYTES: Final = 2048
"""How long their names and values may be together: every state of the call carries them."""


def shown_headers(headers: Headers, names: Iterable[str]) -> dict[str, str]:
    """Return those headers of a request that have one of the names, which are in lower case.

    Raises:
        InvalidRequest: one is repeated or has characters that a header must not have, or all are too long.
    """
    found = {name: headers.single(name.encode("latin-1")) for name in names}
    shown = {name: value for name, value in found.items() if value is not None}
    if sum(len(name) + len(value) for name, value in shown.items()) > MAX_BYTES:
        raise InvalidRequest(f"The headers that tools see ({', '.join(shown)}) have more than {MAX_BYTES} bytes")
    return shown
