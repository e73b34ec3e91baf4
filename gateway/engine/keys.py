"""Pure: authors' keys, and values derived from them."""

from __future__ import annotations

import hashlib
import hmac
import uuid
from functools import lru_cache
from typing import Any

from gateway.errors import AuthoringError

MAX_KEY_LENGTH = 200
"""The longest author's key, in characters."""


def check_key(key: Any) -> None:
    """Check that a key can name a question or a step on every wire.

    Raises:
        AuthoringError: it is not a text of 1 to `MAX_KEY_LENGTH` printable characters without `~`.
    """
    if not isinstance(key, str):
        raise _no_key(key)
    _check_text(key)


@lru_cache(maxsize=1024)
def _check_text(key: str) -> None:
    """Check a text. The cache does not remember exceptions, so overlong keys take no memory."""
    if not key or len(key) > MAX_KEY_LENGTH or "~" in key or not key.isprintable():
        raise _no_key(key)


def _no_key(key: Any) -> AuthoringError:
    return AuthoringError(f"{key!r} is not a valid key; use 1 to {MAX_KEY_LENGTH} printable characters without '~'")


def derived_uuid(seed: bytes, key: Any) -> uuid.UUID:
    """Return a version 4 UUID that depends only on the seed and the key."""
    return uuid.UUID(bytes=_derive(seed, "uuid", key)[:16], version=4)


def derived_random(seed: bytes, key: Any) -> float:
    """Return a number from [0, 1) that depends only on the seed and the key."""
    return int.from_bytes(_derive(seed, "random", key)[:7], "big") / 2**56


def derived_id(seed: bytes, of: bytes) -> bytes:
    """Return 32 bytes that depend on the seed and on what they identify. They cannot be guessed without the seed.

    They use HMAC, unlike the values that authors get, so they never equal a value that a tool derives from the seed.
    """
    return hmac.digest(seed, b"sealed-gateway/id\0" + of, "sha256")


def _derive(seed: bytes, kind: str, key: Any) -> bytes:
    check_key(key)
    return hashlib.sha256(seed + f"\0{kind}\0{key}".encode()).digest()
