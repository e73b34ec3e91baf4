"""Pure: canonical unpadded base64url (RFC 4648 sections 3.5 and 5): one text for each byte string.

A decoder that lets several texts mean the same bytes makes tokens malleable. Everything but the text
that `encode` gives is refused: padding, white space, the standard alphabet, non-zero trailing bits.
"""

from __future__ import annotations

from typing import Final

import pybase64

_ALTERNATIVES: Final = b"-_"
_PADDING: Final = ("", None, "==", "=")
"""Padding to restore, by length modulo 4; no byte string has a text of length 1 modulo 4."""
_LAST: Final = (None, None, frozenset("AQgw"), frozenset("AEIMQUYcgkosw048"))
"""Last characters whose unused trailing bits are zero, by length modulo 4."""


def encode(data: bytes) -> str:
    """Encode bytes as unpadded base64url."""
    return pybase64.b64encode_as_string(data, _ALTERNATIVES).rstrip("=")


def decode(text: str) -> bytes:
    """Decode the one text that `encode` gives for some bytes.

    Raises:
        ValueError: the text is any other.
    """
    remainder = len(text) % 4
    padding = _PADDING[remainder]
    last = _LAST[remainder]
    # pybase64 accepts its own padding and, next to the alternative alphabet, the standard one.
    if (
        padding is None
        or (last is not None and text[-1] not in last)
        or text.endswith("=")
        or "+" in text
        or "/" in text
    ):
        msg = "not canonical unpadded base64url"
        raise ValueError(msg)
    return pybase64.b64decode(text + padding, _ALTERNATIVES, validate=True)
