"""Pure: the sealed token, `s1.` and base64url of `key id(4) ‖ nonce(24) ‖ ciphertext`.

The tag covers the label, the key id and the caller's associated data. Each token has exactly one text: no padding, no
other alphabet, no trailing bits. Nothing in a token names an algorithm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from gateway.errors import GatewayError, RejectReason
from gateway.sealing import base64url
from gateway.sealing.cipher import DEFAULT_CACHE_SIZE, NONCE_BYTES, PREFIX_BYTES, TAG_BYTES, Cipher, NotAuthentic
from gateway.sealing.keyring import KEY_ID_BYTES, KeyRing

LABEL: Final = "s1."
"""The format of the token. A different layout or cipher gets a different label."""

SEALS_PER_PREFIX: Final = 2**20
"""Seals after which a process takes a fresh nonce prefix, and with it a fresh derived key."""

MAX_TOKEN_CHARS: Final = 2**20
"""The longest token examined if the caller sets no limit of its own."""

_LABEL_BYTES: Final = LABEL.encode("ascii")
_HEADER_BYTES: Final = KEY_ID_BYTES + NONCE_BYTES

OVERHEAD_BYTES: Final = _HEADER_BYTES + TAG_BYTES
"""How many bytes sealing adds, before they become text."""


class Rejected(GatewayError):
    """A token was rejected.

    The reason is for the log and the counter only. To the client all reasons look alike.
    """

    def __init__(self, reason: RejectReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Opened(NamedTuple):
    """The content of a token.

    `key_id` is the 4-byte id of the key that sealed it; operators watch it before they retire a key.
    """

    plaintext: bytes
    key_id: bytes


def token_chars(plaintext_bytes: int) -> int:
    """Return the length of the token for a plaintext of this size, in characters."""
    sealed_bytes = plaintext_bytes + OVERHEAD_BYTES
    return len(LABEL) + (sealed_bytes * 4 + 2) // 3


class Sealer:
    """Seals with the ring's first key, opens with all of them.

    A nonce is a random prefix, fresh per sealer and every `SEALS_PER_PREFIX` seals, then 12 fresh random bytes per
    seal. It is never a counter: replicas, forks and restored snapshots share no state to count in.

    `random_bytes` is cryptographically secure, and called with the number of bytes. `cache_size` counts the derived
    keys kept for opening, for each key of the ring.
    """

    __slots__ = (
        "_cipher",
        "_ciphers",
        "_header",
        "_key_id",
        "_prefix",
        "_random_bytes",
        "_seals_left",
        "_seals_per_prefix",
    )

    def __init__(
        self,
        ring: KeyRing,
        random_bytes: Callable[[int], bytes],
        *,
        cache_size: int = DEFAULT_CACHE_SIZE,
        seals_per_prefix: int = SEALS_PER_PREFIX,
    ) -> None:
        self._ciphers = {key.key_id: Cipher(key.secret, cache_size=cache_size) for key in ring.keys}
        self._key_id = ring.sealing_key.key_id
        self._cipher = self._ciphers[self._key_id]
        self._header = _LABEL_BYTES + self._key_id
        self._random_bytes = random_bytes
        self._prefix = b""
        self._seals_per_prefix = seals_per_prefix
        self._seals_left = 0

    @property
    def key_id(self) -> bytes:
        """The 4-byte id of the key that seals."""
        return self._key_id

    def seal(self, plaintext: bytes, aad: bytes) -> str:
        """Seal bytes into a token that opens only with the same associated data (see `gateway.sealing.binding`)."""
        return LABEL + base64url.encode(self.seal_bytes(plaintext, aad))

    def seal_bytes(self, plaintext: bytes, aad: bytes) -> bytes:
        """Seal bytes, and return what a token has after its label, not encoded as text."""
        nonce = self._nonce()
        return self._key_id + nonce + self._cipher.seal(plaintext, self._header + aad, nonce)

    def open(self, token: object, aad: bytes, *, max_chars: int = MAX_TOKEN_CHARS) -> Opened:
        """Open whatever a client presents as a token.

        Only a `str` can open. One with more than `max_chars` is rejected before it is decoded.

        Raises:
            Rejected: MALFORMED, TOO_LARGE, UNKNOWN_KEY or NOT_AUTHENTIC, checked in this order.
        """
        return self.open_bytes(_decode(token, max_chars), aad)

    def open_bytes(self, raw: bytes, aad: bytes) -> Opened:
        """Open the result of `seal_bytes`, or raise `Rejected`, like `open`. Any bytes may have arrived."""
        if len(raw) < OVERHEAD_BYTES:
            raise Rejected(RejectReason.MALFORMED)
        key_id = raw[:KEY_ID_BYTES]
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise Rejected(RejectReason.UNKNOWN_KEY)
        nonce = raw[KEY_ID_BYTES:_HEADER_BYTES]
        try:
            return Opened(cipher.open(raw[_HEADER_BYTES:], _LABEL_BYTES + key_id + aad, nonce), key_id)
        except NotAuthentic:
            pass  # raised below, so that the rejection has no context
        raise Rejected(RejectReason.NOT_AUTHENTIC)

    def _nonce(self) -> bytes:
        if self._seals_left == 0:
            self._prefix = self._random_bytes(PREFIX_BYTES)
            self._seals_left = self._seals_per_prefix
        self._seals_left -= 1
        return self._prefix + self._random_bytes(NONCE_BYTES - PREFIX_BYTES)


def _decode(token: object, max_chars: int) -> bytes:
    if not isinstance(token, str):
        raise Rejected(RejectReason.MALFORMED)
    if len(token) > max_chars:
        raise Rejected(RejectReason.TOO_LARGE)
    if not token.startswith(LABEL):
        raise Rejected(RejectReason.MALFORMED)
    try:
        raw = base64url.decode(token[len(LABEL) :])
    except ValueError:
        raise Rejected(RejectReason.MALFORMED) from None
    return raw
