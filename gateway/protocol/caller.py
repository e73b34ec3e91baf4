"""Pure: the caller of a request."""

from __future__ import annotations

from typing import Protocol

from gateway.sealing.principal import Principal


class Caller(Protocol):
    """The sender of a request, as far as the token identifies it."""

    @property
    def principal(self) -> Principal | None:
        """The authenticated principal, or None for an anonymous caller."""
        ...

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes that the token grants."""
        ...

    @property
    def ends_at(self) -> float:
        """When the token expires, in seconds since the epoch."""
        ...

    @property
    def key(self) -> bytes:
        """The id of the key that signed the token; b"" if the key never changes."""
        ...

    def grants(self, scopes: frozenset[str]) -> bool:
        """Return whether the token grants all of these scopes (RFC 6749 section 3.3)."""
        ...
