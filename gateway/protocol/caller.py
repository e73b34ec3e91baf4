"""Pure: the caller of a request, and what a relay may know of the request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import msgspec

from gateway.engine.exchanged_token import ExchangedToken
from gateway.protocol.headers import Headers
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


def _granted(_scopes: frozenset[str]) -> bool:
    """Return True: the scopes of a task were checked when it was created."""
    return True


def _stay() -> None:
    """Do nothing: a task has no place in flight."""


class Requester(msgspec.Struct, frozen=True):
    """The part of a leg's request that a relay may use.

    Attributes:
        exchange: exchanges the caller's token, or None. Always None in a task.
        headers: the headers of the client's request; none in a task.
        meta: the `_meta` of the client's request; empty in a task. A relay may replace the values that only it reads by
            their JSON, a `msgspec.Raw`.
        log_level: from which level on the client wants log messages, None if it wants none.
        grants: returns whether the caller's token grants these scopes.
        step_aside: gives up the request's place in flight, while something else works.
        task_id: the id of the task that the leg belongs to, or "".
    """

    principal: Principal | None = None
    exchange: Exchange | None = None
    headers: Headers = msgspec.field(default_factory=lambda: Headers(()))
    capabilities: Mapping[str, Any] = msgspec.field(default_factory=dict)
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    log_level: str | None = None
    wants_progress: bool = False
    grants: Callable[[frozenset[str]], bool] = _granted
    step_aside: Callable[[], None] = _stay
    in_task: bool = False
    task_id: str = ""


RequesterOf: TypeAlias = Callable[[], Requester]
"""Makes it where a relay needs it: most calls do not."""
