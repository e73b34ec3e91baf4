"""Pure: canonical unpadded base64url (RFC 4648 sections 3.5 and 5): one text for each byte string.

A decoder that accepts several texts for the same bytes makes tokens malleable. So only the output of `encode` is
accepted: no padding, no white space, no standard alphabet, no non-zero trailing bits.
"""

from __future__ import annotations

from typing import Final

import pybase64

_ALTERNATIVES: Final = b"-_"
_PADDING: Final = ("", None, "==", "=")
"""Padding to restore, by length modulo 4; no byte string encodes to a length of 1 modulo 4."""
_LAST: Final = (None, None, frozenset("AQgw"), frozenset("AEIMQUYcgkosw048"))
"""Last characters whose unused trailing bits are zero, by length modulo 4."""


def encode(data: bytes) -> str:
    """Encode bytes as unpadded base64url."""
    return pybase64.b64encode_as_string(data, _ALTERNATIVES).rstrip("=")


def decode(text: str) -> bytes:
    """Decode a text that `encode` returns for some bytes; raise `ValueError` for any other text."""
    remainder = len(text) % 4
    padding = _PADDING[remainder]
    last = _LAST[remainder]
    # pybase64 also accepts padding and the standard alphabet.
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
