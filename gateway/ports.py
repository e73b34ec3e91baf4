"""Protocols for what the core needs from outside. The edges implement them without importing this."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol, TypeAlias

from gateway.sealing.binding import Principal

Clock: TypeAlias = Callable[[], float]
"""Seconds since the epoch."""

RandomBytes: TypeAlias = Callable[[int], bytes]
"""So many cryptographically strong random bytes."""


class Caller(Protocol):
    """Who sent a request, as far as its token was verified."""

    @property
    def principal(self) -> Principal | None:
        """The authenticated principal, or None for an anonymous caller."""
        ...

    def grants(self, scopes: frozenset[str]) -> bool:
        """Tell whether the token grants all of these scopes (RFC 6749 section 3.3)."""
        ...


class Authenticator(Protocol):
    """Tells who calls from the `Authorization` header."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep what it judges by current while the context is open."""
        ...

    async def authenticate(self, authorization_header: str | None) -> Caller:
        """Return the caller.

        Raises:
            HttpRefusal: 401, with a `WWW-Authenticate` challenge; 503 while there is nothing to judge by.
        """
        ...


class CallerLimits(Protocol):
    """What one caller may take of this replica: a principal, or an address where nobody says who calls."""

    def admit(self, principal: Hashable | None, address: str) -> None:
        """Count one request.

        Raises:
            RateLimited: the caller has sent too many.
        """
        ...

    def stream(self, principal: Hashable | None, address: str) -> AbstractContextManager[None]:
        """Count one stream as open while the context lasts.

        Raises:
            TooManyStreams: by the context, as it is entered: the caller has as many open as allowed.
        """
        ...
