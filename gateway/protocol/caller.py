"""Pure: the caller of a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from gateway.engine.exchanged_token import ExchangedToken
from gateway.sealing.principal import Principal


@dataclass(frozen=True, slots=True)
class TokenWanted:
    """A token that a tool asks for, in the words of RFC 8693 section 2.1.

    Scopes are separated by spaces; "" omits a field. `renewed` is for a service that refused the cached token.
    """

    audience: str
    scope: str = ""
    resource: str = ""
    renewed: bool = field(default=False, compare=False)


Exchange: TypeAlias = Callable[[TokenWanted], Awaitable[ExchangedToken]]
"""Exchanges the token of one request. Raises `TokenExchangeError`."""


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

    @property
    def exchange(self) -> Exchange | None:
        """Exchanges the token; None if there is no token, or the deployment exchanges none."""
        ...

    def grants(self, scopes: frozenset[str]) -> bool:
        """Return whether the token grants all of these scopes (RFC 6749 section 3.3)."""
        ...
