"""Pure: cursors of the catalogue lists (tools, prompts, resources), the same for every caller.

A cursor says where a page ended, and a MAC proves that we made it: nobody else can make one, or use one in another
list. It is `c1.` and base64url of `key id(4) ‖ MAC(16) ‖ place of the last entry`. It contains no secret and no
randomness, so a page that is the same for everybody stays the same, including its cursor.

The MAC is HMAC-SHA256 (RFC 2104) over `length of the list's name(4) ‖ name of the list ‖ place of the last entry`,
truncated to 128 bits, under a separate key for each key of the ring. The text of a place is described at `ListPlace`.
"""

from __future__ import annotations

import hmac
import re
from typing import Final

import msgspec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gateway.errors import RejectReason
from gateway.sealing import base64url
from gateway.sealing.envelope import Rejected
from gateway.sealing.keyring import KEY_ID_BYTES, KeyRing, SealKey

LABEL: Final = "c1."
"""The format of the cursor. A different layout or MAC gets a different label."""

_HKDF_INFO: Final = b"sealed-gateway/cursor/v1"
_KEY_BYTES: Final = 32
_MAC_BYTES: Final = 16
_HEADER_BYTES: Final = KEY_ID_BYTES + _MAC_BYTES
_LENGTH_BYTES: Final = 4

_PLACE: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})\.(.*)", re.ASCII | re.DOTALL)


class ListPlace(msgspec.Struct, frozen=True):
    """The place of an entry in a list that has parts.

    Its text is `number of the part . number of the entry . length of the part's name . name of the part, name of the
    entry`, such as `1.249.4.timetime__now`. The numbers give the next page a start when the part or the entry has gone.
    `part_at` is the position of the part, and `at` that of the entry in its part, both from 0.
    """

    part: str
    name: str
    part_at: int
    at: int

    @property
    def text(self) -> str:
        """The place as a text."""
        return f"{self.part_at}.{self.at}.{len(self.part)}.{self.part}{self.name}"

    @staticmethod
    def read(text: str) -> ListPlace | None:
        """Return the place that a text describes, None if it describes none."""
        found = _PLACE.fullmatch(text)
        if found is None or int(found[3]) > len(found[4]):
            return None
        length = int(found[3])
        return ListPlace(found[4][:length], found[4][length:], int(found[1]), int(found[2]))


class CursorMaker:
    """Makes cursors with the ring's first key, and reads them with all keys.

    Each key gets a derived key here, once.
    """

    __slots__ = ("_key_id", "_keys")

    def __init__(self, ring: KeyRing) -> None:
        self._keys = {key.key_id: _derive(key) for key in ring.keys}
        self._key_id = ring.sealing_key.key_id

    def make(self, list_name: str, last: str) -> str:
        """Make the cursor for the page after the entry `last`. `list_name` is, say, the method that reads the list."""
        name = _bytes(last)
        mac = _mac(self._keys[self._key_id], list_name, name)
        return LABEL + base64url.encode(self._key_id + mac + name)

    def read(self, list_name: str, cursor: object) -> str:
        """Return the `last` of a cursor that a client presents for this list.

        Only a `str` can be a cursor.

        Raises:
            Rejected: MALFORMED, UNKNOWN_KEY or NOT_AUTHENTIC, checked in this order.
        """
        raw = _decode(cursor)
        key = self._keys.get(raw[:KEY_ID_BYTES])
        if key is None:
            raise Rejected(RejectReason.UNKNOWN_KEY)
        name = raw[_HEADER_BYTES:]
        if not hmac.compare_digest(_mac(key, list_name, name), raw[KEY_ID_BYTES:_HEADER_BYTES]):
            raise Rejected(RejectReason.NOT_AUTHENTIC)
        return name.decode("utf-8", "surrogatepass")


def _derive(key: SealKey) -> bytes:
    return HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=_HKDF_INFO).derive(key.secret)


def _mac(key: bytes, list_name: str, name: bytes) -> bytes:
    listed = _bytes(list_name)
    message = len(listed).to_bytes(_LENGTH_BYTES, "big") + listed + name
    return hmac.digest(key, message, "sha256")[:_MAC_BYTES]


def _decode(cursor: object) -> bytes:
    if not isinstance(cursor, str) or not cursor.startswith(LABEL):
        raise Rejected(RejectReason.MALFORMED)
    try:
        raw = base64url.decode(cursor[len(LABEL) :])
    except ValueError:
        raise Rejected(RejectReason.MALFORMED) from None
    if len(raw) < _HEADER_BYTES:
        raise Rejected(RejectReason.MALFORMED)
    return raw


def _bytes(value: str) -> bytes:
    # An author's name must not crash the list, whatever it contains.
    return value.encode("utf-8", "surrogatepass")
