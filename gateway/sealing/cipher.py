"""Pure: XAES-256-GCM (C2SP, https://c2sp.org/XAES-256-GCM), with its derived keys cached.

AES-256-GCM with a 192-bit nonce. The first half of the nonce, the prefix, derives a key of its own (NIST SP 800-108 r1
counter mode with CMAC). Under that key the second half is an ordinary GCM nonce. Random nonces of 192 bits are safe for
any number of messages that a fleet can produce; random nonces of 96 bits are not.
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
"""Derived keys cached for opening, about 3 KiB each. A fleet uses one prefix for each process and million seals."""


class NotAuthentic(Exception):
    """The tag does not verify: another key, nonce or associated data, or a changed ciphertext."""


def derive_key(key: bytes, prefix: bytes) -> bytes:
    """Derive the AES-256-GCM key for a 12-byte nonce prefix from a 32-byte key."""
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

    The key schedule of the last sealing prefix is cached, and so are those of recent opening prefixes. A prefix enters
    the opening cache only after a tag verified under it. So without the key, nobody can fill the cache or evict a live
    prefix.

    The key is 32 uniformly random bytes; any other length is a `ValueError`. `cache_size` counts the prefixes cached
    for opening, at least 1.
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
        """Encrypt; return the ciphertext with its 16-byte tag. The nonce must never be used twice with this key."""
        prefix, rest = _halves(nonce)
        sealing = self._sealing
        if sealing is None or sealing[0] != prefix:
            sealing = self._sealing = (prefix, self._schedule(prefix))
        return sealing[1].encrypt(rest, plaintext, aad)

    def open(self, ciphertext: bytes, aad: bytes, nonce: bytes) -> bytes:
        """Verify and decrypt the result of `seal` with this `aad` and nonce, or raise `NotAuthentic`."""
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
