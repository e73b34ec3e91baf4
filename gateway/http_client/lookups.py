"""Resolves names to the addresses that the gateway may connect to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import TypeAlias

from gateway.errors import GatewayError
from gateway.http_client.addresses import AddressRule, is_allowed, literal

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Return the addresses of a name, in the order in which they are to be tried. Raise `OSError` if there is none."""


class AddressRefused(GatewayError):
    """The gateway does not connect to an address of this host."""


async def resolve_with_system(host: str, port: int) -> list[str]:
    """Resolve a name as the system does, with its hosts file and its order of addresses."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class SharedLookups:
    """Looks each name up once at a time, however many connections wait for it.

    A lookup takes a thread until the system gives up, also when nobody waits any more. A name whose servers do not
    answer would otherwise take all threads, and keep other upstreams from being found.
    """

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._running: dict[tuple[str, int], asyncio.Task[Sequence[str]]] = {}

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of a name, or raise `OSError` if it has none."""
        place = host, port
        lookup = self._running.get(place)
        if lookup is None:
            lookup = self._running[place] = asyncio.create_task(self._look_up(host, port))
            lookup.add_done_callback(_noticed)
        return await asyncio.shield(lookup)

    async def _look_up(self, host: str, port: int) -> Sequence[str]:
        try:
            return await self._resolve(host, port)
        finally:
            del self._running[host, port]


def _noticed(lookup: asyncio.Task[Sequence[str]]) -> None:
    """Read the error of a lookup that nobody may wait for any more, so asyncio does not log it."""
    if not lookup.cancelled():
        lookup.exception()


async def allowed_addresses(host: str, port: int, rule: AddressRule, resolve: Resolve) -> list[str]:
    """Return the addresses of a host, each of which may be connected to.

    The caller connects to these addresses and does not resolve the name again, since the next answer may differ.

    Raises:
        AddressRefused: the rule excludes an address. One is enough: an owner of a name who adds such an address has
            no good reason for it.
        OSError: the name has no address.
    """
    written = literal(host)
    if written is not None:
        if rule is not AddressRule.OPERATOR and not is_allowed(written, rule):
            raise AddressRefused(f"{written} is not a global address")
        return [host]
    try:
        addresses = await resolve(host, port)
    except UnicodeError:
        raise OSError("not a valid host name") from None
    for address in addresses:
        if not is_allowed(ip_address(address), rule):
            raise AddressRefused(f"{host} resolves to {address}, which is not allowed for a name")
    if not addresses:
        raise OSError("the name has no address")
    return list(addresses)
