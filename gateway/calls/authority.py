"""The authority of callers, checked throughout the life of a stream or a waiting call, not only at its start."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias

from gateway.errors import InsufficientScope
from gateway.protocol.caller import Caller, Exchange
from gateway.registry.registry import Registry
from gateway.runtime.sources import Clock
from gateway.sealing.principal import Principal

_SOON_SECONDS: Final = 0.01
"""The delay before a timer that fired early checks again: timers and tokens use different clocks."""

Needs: TypeAlias = Callable[[Registry], frozenset[str]]
"""Returns the scopes that something requires from a given registry."""


@dataclass(frozen=True, slots=True)
class Authority:
    """What a token proved about its caller. It can be stored or sent to another replica; satisfies `Caller`.

    Attributes:
        ends_at: when the token stops being accepted, including leeway, in seconds since the epoch.
        key: the name of the key that signed it, b"" for a key that never changes.
        session: the nonce of the session that it came with, b"" for none.
        exchange: exchanges the token of the request that this continues, if any. Never stored, sent or compared.
    """

    principal: Principal | None
    scopes: frozenset[str]
    ends_at: float
    key: bytes = b""
    session: bytes = b""
    exchange: Exchange | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, caller: Caller, session: bytes = b"") -> Self:
        """Return the authority of a caller whose message came in a session."""
        return cls(caller.principal, caller.scopes, caller.ends_at, caller.key, session)

    def grants(self, scopes: frozenset[str]) -> bool:
        """Return whether the token grants all of these scopes; an anonymous caller may do everything."""
        return self.principal is None or scopes <= self.scopes

    def check(self, scopes: frozenset[str], session: bytes) -> None:
        """Check that the sender of an answer may continue what was begun.

        `session` is the one in which it began. If that is b"" (none), the answer may come with any session, or without
        one.

        Raises:
            InsufficientScope: the token does not grant the scopes, or the session is a different one.
        """
        if not self.grants(scopes):
            raise InsufficientScope(scopes)
        if session not in (b"", self.session):
            raise InsufficientScope(scopes, "This answers a question from another session")


class Authorities:
    """Knows whether callers may still do what they began, and ends waiting streams and calls when they may not.

    A caller's authority ends when the token expires, or when its key leaves the provider's set. It also ends when the
    served tools require a scope that the token does not grant. Use it only on the event loop. `clock` returns seconds
    since the epoch. `has_left` returns whether the key with this name used to verify tokens and no longer does.
    """

    def __init__(self, registry: Registry, clock: Clock, has_left: Callable[[bytes], bool]) -> None:
        self._registry = registry
        self._clock = clock
        self._has_left = has_left
        self._standings: set[Standing] = set()

    def serve(self, registry: Registry) -> None:
        """Use a new registry from now on, and end what callers may no longer have."""
        self._registry = registry
        self.review()

    def review(self) -> None:
        """End what callers may no longer have. Call this when the keys that verify tokens have changed."""
        for standing in tuple(self._standings):
            standing.look()

    def scopes(self, needs: Needs) -> frozenset[str]:
        """Return the scopes that something requires now."""
        return needs(self._registry)

    def hold(self, caller: Caller, needs: Needs) -> bool:
        """Return whether a caller may still have what they were granted."""
        return self.seconds_left(caller) > 0 and not self._has_left(caller.key) and caller.grants(self.scopes(needs))

    def seconds_left(self, caller: Caller) -> float:
        """Return the remaining life of the caller's token."""
        return caller.ends_at - self._clock()

    @contextlib.contextmanager
    def watching(self, caller: Caller, needs: Needs, end: Callable[[], None]) -> Iterator[Standing]:
        """While the context is open, call `end` as soon as the caller's authority ends, at most once."""
        standing = Standing(self, caller, needs, end)
        self._standings.add(standing)
        standing.look()
        try:
            yield standing
        finally:
            self._standings.discard(standing)
            standing.close()


class Standing:
    """The authority under which something waits; made by `Authorities.watching`."""

    def __init__(self, authorities: Authorities, caller: Caller, needs: Needs, end: Callable[[], None]) -> None:
        self.caller = caller
        self._authorities = authorities
        self._needs = needs
        self._end = end
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None

    def pass_to(self, authority: Authority, session: bytes) -> bool:
        """Continue under the authority of another token, if it is sufficient.

        Return False if the authority has ended, or belongs to another principal. The token must come with `session`,
        unless that is b"".

        Raises:
            InsufficientScope: the token does not grant the required scopes, or the session is a different one.
        """
        if authority.principal != self.caller.principal:
            return False
        authority.check(self._authorities.scopes(self._needs), session)
        if not self._authorities.hold(authority, self._needs):
            return False
        self.caller = authority
        self.look()
        return not self._is_over

    def look(self) -> None:
        """End what waits if its authority has ended; otherwise check again when the token ends."""
        self.close()
        if self._is_over:
            return
        if not self._authorities.hold(self.caller, self._needs):
            self._is_over = True
            self._end()
        elif self.caller.ends_at != float("inf"):
            seconds = max(_SOON_SECONDS, self._authorities.seconds_left(self.caller))
            self._timer = asyncio.get_running_loop().call_later(seconds, self.look)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
