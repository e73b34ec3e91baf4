"""Pure: which holder has the connection with a key. Each process of the deployment finds the same, from the list alone.

The key belongs to the holder with the highest digest of both (rendezvous hashing). So a holder that leaves the list
moves only its own keys, and one that joins takes its share of each other's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def ranked(key: bytes, holders: Iterable[str]) -> list[str]:
    """Return the holders in the order in which they should have the connection with a key, whatever their order is."""
    return sorted(set(holders), key=lambda holder: (_weight(key, holder), holder), reverse=True)


def _weight(key: bytes, holder: str) -> bytes:
    return hashlib.sha256(hashlib.sha256(holder.encode()).digest() + key).digest()
