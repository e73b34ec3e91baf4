"""The interface that the endpoint needs: authentication."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from gateway.protocol.caller import Caller


class Authenticator(Protocol):
    """Identifies the caller by the `Authorization` header."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep the keys and settings up to date while the context is open."""
        ...

    def known(self, authorization_header: str | None) -> Caller | None:
        """Return the caller if this token was verified before, or None."""
        ...

    async def authenticate(self, authorization_header: str | None) -> Caller:
        """Return the caller. This may wait for the keys of an identity provider.

        Raises:
            HttpRefusal: 401 with a `WWW-Authenticate` challenge, or 503 while there are no keys.
            Overloaded: too many requests wait for keys.
        """
        ...
