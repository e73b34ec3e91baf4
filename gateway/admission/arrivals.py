"""The requests whose caller is not known yet: how many of them each credential may have at once.

Anybody can send many requests at once, with a valid token or with forged ones. So the credential is all there is to
divide the room by, until the caller is known.
"""

from __future__ import annotations


class Arrivals:
    """Counts the requests whose headers are complete and whose caller is not known yet.

    While there are places for all of them, only their number counts. Each of the others counts for its credential. One
    credential gets no more room than it leaves free. The first request of each other credential may come even if there
    is no room left, so a credential with many requests keeps nobody out. There may be one more of those than could be
    admitted now. So the limit of requests in flight also bounds the memory.

    Attributes:
        size: how many there are.
    """

    __slots__ = ("_of", "size")

    def __init__(self) -> None:
        self.size = 0
        self._of: dict[bytes, int] = {}

    def has_room(self, credential: bytes | None, free: int, at_hand: int) -> bool:
        """Return whether one more request may come that would count for its credential.

        Args:
            credential: what is said to identify its caller; None if all requests have the same caller, who may use all
                of the room.
            free: how many requests may come in addition to those that have a place or wait for one.
            at_hand: the same, with the places in reserve. More than 0.
        """
        left = free - self.size
        if credential is None:
            return left > 0
        own = self._of.get(token_of(credential), 0)
        return left > own if own else left > 0 or len(self._of) <= at_hand

    def add(self, credential: bytes | None) -> None:
        """Count one more request, for its credential if that is not None."""
        self.size += 1
        if credential is not None:
            token = token_of(credential)
            self._of[token] = self._of.get(token, 0) + 1

    def release(self, credential: bytes | None) -> None:
        """Stop counting a request: its caller is known, or it has ended."""
        self.size -= 1
        if credential is None:
            return
        token = token_of(credential)
        left = self._of[token] - 1
        if left:
            self._of[token] = left
        else:
            del self._of[token]


def token_of(credential: bytes) -> bytes:
    """Return the token of an `Authorization` header: scheme, blanks and tabs can be written in many ways."""
    return credential.rstrip(b" \t").rpartition(b" ")[2]
