"""The limits on what one caller may use of this replica, and the definition of a caller."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Final

from gateway.admission.bodies import BodyBudget, HeldBody
from gateway.admission.rate_limiter import RateLimiter
from gateway.admission.streams import StreamLimiter
from gateway.settings.rates import Rate

_SITE_PREFIX_BITS: Final = 64


class CallerLimits:
    """The limits that apply to each caller separately.

    A caller is a principal, or an address if the caller is anonymous. There is no limit if `rate` is None. `clock`
    returns seconds that never go back.
    """

    def __init__(self, rate: Rate | None, streams: int, clock: Callable[[], float], bodies: BodyBudget) -> None:
        self._bodies = bodies
        self._requests = None if rate is None else RateLimiter(rate, clock)
        self._streams = StreamLimiter(streams)

    def admit(self, principal: Hashable | None, address: str) -> None:
        """Count one request; raise `RateLimited` if the caller has sent too many."""
        if self._requests is not None:
            self._requests.admit(_caller(principal, address))

    def stream(self, principal: Hashable | None, address: str) -> AbstractContextManager[None]:
        """Count one stream as open while the context lasts.

        Raises:
            TooManyStreams: on entering the context, if the caller has as many open as allowed.
        """
        return self._streams.stream(_caller(principal, address))

    def body(self, principal: Hashable | None, address: str) -> HeldBody:
        """Return a context manager that counts the bytes of one body while it is open. It begins with none."""
        return self._bodies.hold(_caller(principal, address))

    def share_connections(self, connections: int) -> None:
        """Reserve half of this replica's connections for others: a stream holds one, and does not end to free it."""
        self._streams.limit = min(self._streams.limit, max(1, connections // 2))


def _caller(principal: Hashable | None, address: str) -> Hashable:
    if principal is not None:
        return principal
    return _site(address) if ":" in address else address


def _site(address: str) -> str:
    """Return the network of an IPv6 address: a user with one of its addresses usually has all of them."""
    try:
        ip = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.IPv6Network((ip, _SITE_PREFIX_BITS), strict=False))
