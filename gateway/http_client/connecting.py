"""Opens connections to a server: name, address guard, TCP, proxy, TLS."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from dataclasses import KW_ONLY, dataclass
from typing import Final

from gateway.http_client.addresses import AddressRule
from gateway.http_client.connection import HttpConnection
from gateway.http_client.failures import HttpFailure, HttpReason
from gateway.http_client.lookups import AddressRefused, Resolve, allowed_addresses
from gateway.http_client.target import Proxy, Target, authority_of
from gateway.http_client.tls import TlsContexts

CONNECT_SECONDS: Final = 10.0
"""The time limit for a new connection, with its name, proxy and TLS."""

ADDRESS_SECONDS: Final = 2.0
"""The time limit for one of several addresses, before the next one is tried."""


@dataclass(frozen=True, slots=True)
class Connector:
    """Opens connections to one target, perhaps by a proxy. Only https needs TLS contexts.

    The rule says which addresses the target may have. The proxy's are always the operator's own.
    """

    target: Target
    _: KW_ONLY
    tls: TlsContexts | None
    proxy: Proxy | None
    proxy_tls: TlsContexts | None
    rule: AddressRule
    resolve: Resolve

    async def connect(self, deadline: float) -> HttpConnection:
        """Return a new connection, ready for a request.

        The deadline is a time of the event loop. If there is no connection in time, or an address is refused, this
        raises `HttpFailure`, and nothing was sent.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(min(deadline, loop.time() + CONNECT_SECONDS)):
                return await self._open()
        except AddressRefused as error:
            raise HttpFailure(HttpReason.REFUSED_ADDRESS, sent=False, detail=str(error)) from None
        except TimeoutError:
            raise HttpFailure(HttpReason.UNREACHABLE, sent=False, detail="no connection in time") from None
        except OSError as error:  # TLS and name resolution too
            nobody_listens = isinstance(error, ConnectionRefusedError)
            raise HttpFailure(
                HttpReason.UNREACHABLE, sent=False, detail=_described(error), nobody_listens=nobody_listens
            ) from None

    async def _open(self) -> HttpConnection:
        target, proxy = self.target, self.proxy
        if proxy is None:
            addresses = await allowed_addresses(target.host, target.port, self.rule, self.resolve)
            return await self._dial(addresses, target.port, self.tls, target.host)
        addresses = await allowed_addresses(proxy.host, proxy.port, AddressRule.OPERATOR, self.resolve)
        connection = await self._dial(addresses, proxy.port, self.proxy_tls, proxy.host)
        return connection if self.tls is None else await self._tunnel(connection, proxy, self.tls.context())

    async def _dial(self, addresses: list[str], port: int, tls: TlsContexts | None, name: str) -> HttpConnection:
        """Connect to the first address that can be reached; with TLS, its certificate must be for the name."""
        context = None if tls is None else tls.context()
        for address in addresses[:-1]:
            try:
                async with asyncio.timeout(ADDRESS_SECONDS):
                    return await self._dial_one(address, port, context, name)
            except ssl.SSLError:
                raise
            except OSError:  # a TimeoutError too
                continue
        return await self._dial_one(addresses[-1], port, context, name)

    async def _dial_one(self, address: str, port: int, context: ssl.SSLContext | None, name: str) -> HttpConnection:
        _, connection = await asyncio.get_running_loop().create_connection(
            HttpConnection,
            address,
            port,
            ssl=context,
            server_hostname=None if context is None else name,
        )
        return connection

    async def _tunnel(self, connection: HttpConnection, proxy: Proxy, context: ssl.SSLContext) -> HttpConnection:
        """Ask the proxy to pass bytes on, and begin TLS with the target (RFC 9110 section 9.3.6)."""
        loop = asyncio.get_running_loop()
        try:
            await self._ask_for_tunnel(connection, proxy)
            encrypted = HttpConnection()
            transport = await loop.start_tls(connection.transport, encrypted, context, server_hostname=self.target.host)
        except BaseException:
            connection.abort()
            raise
        if transport is None:
            raise OSError("the connection was closed")
        encrypted.connection_made(transport)
        return encrypted

    async def _ask_for_tunnel(self, connection: HttpConnection, proxy: Proxy) -> None:
        authority = await self._tunnel_end()
        lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
        if proxy.authorization is not None:
            lines.append(f"Proxy-Authorization: {proxy.authorization}")
        request = "\r\n".join((*lines, "", "")).encode()
        # The time limit is that of the whole connection.
        incoming = connection.send(request, b"", asyncio.get_running_loop().time() + CONNECT_SECONDS)
        try:
            await incoming.head()
        except HttpFailure as failure:
            raise OSError(f"the proxy: {failure.detail}") from None
        if not 200 <= incoming.status < 300:
            raise OSError(f"the proxy refuses the connection with status {incoming.status}")
        connection.detach()

    async def _tunnel_end(self) -> str:
        """Return where the tunnel ends. The proxy resolves a name itself, unless its addresses have to be checked."""
        target = self.target
        if self.rule is AddressRule.OPERATOR:
            return authority_of(target.host, target.port)
        addresses = await allowed_addresses(target.host, target.port, self.rule, self.resolve)
        return authority_of(addresses[0], target.port)


def _described(error: OSError) -> str:
    """Describe an error in words that do not come from the server."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or type(error).__name__}"
    if isinstance(error, socket.gaierror):
        return f"the name cannot be resolved: {error.strerror}"
    return (os.strerror(error.errno) if error.errno else str(error)) or type(error).__name__
