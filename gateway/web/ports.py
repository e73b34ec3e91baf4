"""What the endpoint needs from outside: who calls."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from gateway.protocol.caller import Caller


class Authenticator(Protocol):
    """Tells who calls from the `Authorization` header."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep what it judges by current while the context is open."""
        ...

    def known(self, authorization_header: str | None) -> Caller | None:
        """Return the caller if that needs no more than a look at what was verified before, else None."""
        ...

    async def authenticate(self, authorization_header: str | None) -> Caller:
        """Return the caller. This may wait for the keys of an identity provider.

        Raises:
            HttpRefusal: 401, with a `WWW-Authenticate` challenge; 503 while there is nothing to judge by.
            Overloaded: too many requests wait for keys.
        """
        ...
