"""Pure: who sent a request."""

from __future__ import annotations

from typing import Protocol

from gateway.sealing.principal import Principal


class Caller(Protocol):
    """Who sent a request, as far as its token was verified."""

    @property
    def principal(self) -> Principal | None:
        """The authenticated principal, or None for an anonymous caller."""
        ...

    @property
    def scopes(self) -> frozenset[str]:
        """What the token grants."""
        ...

    @property
    def ends_at(self) -> float:
        """From when on the token is not accepted any more, in seconds since the epoch."""
        ...

    @property
    def key(self) -> bytes:
        """Names the key that signed the token, b"" for one that never changes."""
        ...

    def grants(self, scopes: frozenset[str]) -> bool:
        """Tell whether the token grants all of these scopes (RFC 6749 section 3.3)."""
        ...
