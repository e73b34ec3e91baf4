"""Pure: XAES-256-GCM (C2SP, https://c2sp.org/XAES-256-GCM), with its derived keys cached.

AES-256-GCM with a 192-bit nonce. The first half of the nonce, the prefix, derives a key of its own
(NIST SP 800-108 r1 counter mode with CMAC); under that key the second half is an ordinary GCM nonce.
Random nonces are safe for any number of messages that a fleet can make, which 96 bits are not.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.kdf.kbkdf import KBKDFCMAC, CounterLocation, Mode

KEY_BYTES: Final = 32
PREFIX_BYTES: Final = 12
NONCE_BYTES: Final = 24
TAG_BYTES: Final = 16

DEFAULT_CACHE_SIZE: Final = 4096
"""Derived keys remembered for opening, about 3 KiB each. A fleet uses one prefix a process and a million seals."""


class NotAuthentic(Exception):
    """The tag does not verify: another key, nonce, associated data, or a changed ciphertext."""


def derive_key(key: bytes, prefix: bytes) -> bytes:
    """Derive the AES-256-GCM key of one nonce prefix (12 bytes) from a 32-byte key."""
    return KBKDFCMAC(
        algorithm=AES,
        mode=Mode.CounterMode,
        length=KEY_BYTES,
        rlen=2,
        llen=None,
        location=CounterLocation.BeforeFixed,
        label=None,
        context=None,
        fixed=b"X\x00" + prefix,
    ).derive(key)


class Cipher:
    """XAES-256-GCM under one key.

    The schedule of the prefix last sealed with is kept, and so are those of the prefixes last opened with.
    A prefix is remembered for opening only after a tag verified under it, so nobody without the key can
    fill the cache or push a live prefix out of it.

    Args:
        key: 32 uniformly random bytes.
        cache_size: how many prefixes are remembered for opening, at least 1.

    Raises:
        ValueError: the key has another length.
    """

    __slots__ = ("_cache_size", "_key", "_opening", "_sealing")

    def __init__(self, key: bytes, *, cache_size: int = DEFAULT_CACHE_SIZE) -> None:
        if len(key) != KEY_BYTES:
            msg = f"a key must have {KEY_BYTES} bytes"
            raise ValueError(msg)
        self._key = key
        self._cache_size = max(1, cache_size)
        self._sealing: tuple[bytes, AESGCM] | None = None
        # Least recently used first; a dict keeps the order in which its keys were inserted.
        self._opening: dict[bytes, AESGCM] = {}

    def seal(self, plaintext: bytes, aad: bytes, nonce: bytes) -> bytes:
        """Encrypt and authenticate.

        Args:
            plaintext: what to hide.
            aad: associated data, authenticated but not sent.
            nonce: 24 bytes, never used twice with this key.

        Returns:
            The ciphertext followed by its 16-byte tag.
        """
        prefix, rest = _halves(nonce)
        sealing = self._sealing
        if sealing is None or sealing[0] != prefix:
            sealing = self._sealing = (prefix, self._schedule(prefix))
        return sealing[1].encrypt(rest, plaintext, aad)

    def open(self, ciphertext: bytes, aad: bytes, nonce: bytes) -> bytes:
        """Verify and decrypt what `seal` made with the same key, associated data and nonce.

        Raises:
            NotAuthentic: anything differs.
        """
        prefix, rest = _halves(nonce)
        schedule = self._opening.get(prefix)
        if schedule is None:
            schedule = self._schedule(prefix)
        try:
            plaintext = schedule.decrypt(rest, ciphertext, aad)
        except InvalidTag:
            raise NotAuthentic from None
        self._remember(prefix, schedule)
        return plaintext

    def _schedule(self, prefix: bytes) -> AESGCM:
        return AESGCM(derive_key(self._key, prefix))

    def _remember(self, prefix: bytes, schedule: AESGCM) -> None:
        cache = self._opening
        cache.pop(prefix, None)
        cache[prefix] = schedule
        if len(cache) > self._cache_size:
            del cache[next(iter(cache))]


def _halves(nonce: bytes) -> tuple[bytes, bytes]:
    if len(nonce) != NONCE_BYTES:
        msg = f"a nonce must have {NONCE_BYTES} bytes"
        raise ValueError(msg)
    return nonce[:PREFIX_BYTES], nonce[PREFIX_BYTES:]
