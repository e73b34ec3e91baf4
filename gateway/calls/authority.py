"""What callers may do, checked when it is used: for as long as a stream or a call waits, not only as it begins."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

from gateway.authoring.registry import Registry
from gateway.errors import InsufficientScope
from gateway.protocol.caller import Caller
from gateway.runtime.sources import Clock
from gateway.sealing.principal import Principal

_SOON_SECONDS: Final = 0.01
"""Until a timer looks again that came early: it goes by another clock than tokens do."""

Needs: TypeAlias = Callable[[Registry], frozenset[str]]
"""Returns the scopes that something takes, where this is what is served."""


@dataclass(frozen=True, slots=True)
class Authority:
    """What a token proved of its caller, to be kept or told to another replica; satisfies `Caller`.

    Attributes:
        principal: the caller, None for an anonymous one.
        scopes: what the token grants.
        ends_at: from when on the token is not accepted any more, leeway included, in seconds since the epoch.
        key: names the key that signed it, b"" for one that never changes.
        session: the nonce of the session with which it came, b"" for none.
    """

    principal: Principal | None
    scopes: frozenset[str]
    ends_at: float
    key: bytes = b""
    session: bytes = b""

    @classmethod
    def of(cls, caller: Caller, session: bytes = b"") -> Self:
        """Return the authority of a caller whose message came with a session."""
        return cls(caller.principal, caller.scopes, caller.ends_at, caller.key, session)

    def grants(self, scopes: frozenset[str]) -> bool:
        """Tell whether the token grants all of these; without identity there is nothing to withhold."""
        return self.principal is None or scopes <= self.scopes

    def check(self, scopes: frozenset[str], session: bytes) -> None:
        """Let only an answer through that may go on with what was begun.

        Args:
            scopes: what it takes.
            session: the session in which it began, b"" for none: then any will do, and none.

        Raises:
            InsufficientScope: the token does not grant them, or the session is another one.
        """
        if not self.grants(scopes):
            raise InsufficientScope(scopes)
        if session not in (b"", self.session):
            raise InsufficientScope(scopes, "This answers a question from another session")


class Authorities:
    """Tells whether callers may still do what they were let to, and ends what waits when they may not.

    That is over when the token is, when its key has left the set of the provider, and when what is served now takes a
    scope that the token does not grant. Use it on the event loop alone.

    Args:
        registry: what is served.
        clock: seconds since the epoch.
        has_left: tells of a key, by its name, whether it was one that verifies tokens and is none any more.
    """

    def __init__(self, registry: Registry, clock: Clock, has_left: Callable[[bytes], bool]) -> None:
        self._registry = registry
        self._clock = clock
        self._has_left = has_left
        self._standings: set[Standing] = set()

    def serve(self, registry: Registry) -> None:
        """Go by what is served now, and end what callers may not have any more."""
        self._registry = registry
        self.review()

    def review(self) -> None:
        """End what callers may not have any more; to be called when the keys have changed that verify tokens."""
        for standing in tuple(self._standings):
            standing.look()

    def scopes(self, needs: Needs) -> frozenset[str]:
        """Return the scopes that something takes now."""
        return needs(self._registry)

    def hold(self, caller: Caller, needs: Needs) -> bool:
        """Tell whether a caller may still have what they were let to."""
        return self.seconds_left(caller) > 0 and not self._has_left(caller.key) and caller.grants(self.scopes(needs))

    def seconds_left(self, caller: Caller) -> float:
        """Return how long the caller's token is still accepted, unless something else ends it."""
        return caller.ends_at - self._clock()

    @contextlib.contextmanager
    def watching(self, caller: Caller, needs: Needs, end: Callable[[], None]) -> Iterator[Standing]:
        """End something as soon as the caller may not have it any more, while the context is open.

        Args:
            caller: who has it.
            needs: the scopes that it takes.
            end: ends it; called at most once.
        """
        standing = Standing(self, caller, needs, end)
        self._standings.add(standing)
        standing.look()
        try:
            yield standing
        finally:
            self._standings.discard(standing)
            standing.close()


class Standing:
    """By whose authority something waits; made by `Authorities.watching`.

    Attributes:
        caller: whose.
    """

    def __init__(self, authorities: Authorities, caller: Caller, needs: Needs, end: Callable[[], None]) -> None:
        self.caller = caller
        self._authorities = authorities
        self._needs = needs
        self._end = end
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None

    def pass_to(self, authority: Authority, session: bytes) -> bool:
        """Go on by the authority of another token, if it reaches as far.

        Args:
            authority: of that token.
            session: the session that it has to come with, b"" for any or none.

        Returns:
            False if it is over, or that of somebody else.

        Raises:
            InsufficientScope: the token does not grant what this takes, or the session is another one.
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
        """End what waits if its time has come; else see to it that somebody looks when the token ends."""
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
        """Look no more by itself."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
