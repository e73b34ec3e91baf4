"""Reads bodies that are large or still arriving, within the limits of this replica and of their callers."""

from __future__ import annotations

from typing import Final

from gateway.admission.bodies import EXTRA_BYTES, HeldBody
from gateway.errors import HttpRefusal, TooManyBodyBytes
from gateway.protocol.headers import Headers
from gateway.protocol.method_table import METHODS, NOTIFICATION_PREFIX
from gateway.protocol.strict_json import weight
from gateway.web.exchange import BodyTooLarge, Exchange

SMALL_BYTES: Final = 4096
"""Bodies up to this size do not count in the budget of bytes: almost all are smaller, and counting takes time."""

QUICK_BYTES: Final = 65536
"""Bodies up to this size are decoded at once, unless they have more than `QUICK_COMMAS`. Some are read although their
caller has its share, where they may be messages that are never refused."""

QUICK_COMMAS: Final = 500
"""Between two values of JSON is a comma."""

NEVER_REFUSED: Final = (
    NOTIFICATION_PREFIX.encode(),
    *(name.encode() for name, method in METHODS.items() if method.never_refused and not method.is_notification),
)
"""The prefixes of methods that are never refused because of load. They include all notifications."""


class BodyReader:
    """Reads bodies. Above `max_bytes`, a body is refused while it arrives; above `large_from`, it is large."""

    def __init__(self, max_bytes: int) -> None:
        self.large_from = min(SMALL_BYTES, max_bytes)
        self._max_bytes = max_bytes

    async def read(
        self, exchange: Exchange, headers: Headers, whole: bytes | None, held: HeldBody, method: bytes
    ) -> tuple[bytes, bool]:
        """Return a body, and whether it must be refused if it turns out to be a request.

        `whole` is the body if it has arrived. `held` counts its bytes: all at once where their number is declared, else
        as they arrive. Once all have come, it counts what the body takes when it is decoded. The headers name the
        method, or b"".

        Raises:
            TooManyBodyBytes: the caller has its share. Nothing of the body was decoded.
            HttpRefusal: the body is too large.
        """
        size = self._size_of(headers, whole)
        must_be_refused = False
        if size is not None and size > SMALL_BYTES:
            must_be_refused = _count(held, size, size, method)
        if whole is None:
            try:
                whole = await exchange.read_body(self._max_bytes, held.grow if size is None else None)
            except BodyTooLarge:
                raise self._too_large() from None
        size = len(whole)
        if size > SMALL_BYTES and (charge := weight(whole)) > size:
            must_be_refused = _count(held, charge, size, method) or must_be_refused
        return whole, must_be_refused

    def _size_of(self, headers: Headers, whole: bytes | None) -> int | None:
        """Return the size of a body, or None if nobody knows it yet. A body that is too large raises `HttpRefusal`."""
        size: int | None = None
        declared = headers.get(b"content-length")
        if whole is not None:
            size = len(whole)
        elif declared is not None and declared.isdecimal():  # otherwise the server has refused it
            digits = declared.lstrip("0")
            size = self._max_bytes + 1 if len(digits) > len(str(self._max_bytes)) else int(digits or "0")
        if size is not None and size > self._max_bytes:
            raise self._too_large()
        return size

    def _too_large(self) -> HttpRefusal:
        # The rest of the body is not read, so the connection cannot be reused.
        return HttpRefusal(413, f"The body is larger than {self._max_bytes} bytes", [("connection", "close")])


def _count(held: HeldBody, charge: int, size: int, method: bytes) -> bool:
    """Count a body as so many bytes, and return whether it must be refused if it turns out to be a request.

    If the caller has its share, this raises `TooManyBodyBytes`.
    """
    try:
        held.grow_to(charge)
    except TooManyBodyBytes:
        # On the handshake wires, only the body tells whether a message may be refused.
        if size > QUICK_BYTES or (method and not method.startswith(NEVER_REFUSED)):
            raise
    else:
        return False
    held.grow_to(charge, EXTRA_BYTES)
    return not method
