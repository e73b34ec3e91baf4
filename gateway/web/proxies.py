"""What proxies in front of a replica tell about a request, as far as they are trusted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from gateway.web.endpoint import ARRIVAL, Arrival

REQUEST_ID: Final = b"x-gateway-request-id"


class TrustedProxies(ProxyHeadersMiddleware):
    """Takes the address of the client, the scheme and the id of a request from those proxies that are trusted.

    Args:
        app: the application.
        trusted: addresses and networks of the proxies.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], trusted: Sequence[str]) -> None:
        super().__init__(app, trusted_hosts=list(trusted))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        client = scope.get("client")
        if client and client[0] in self.trusted_hosts:
            ids = [value for name, value in scope["headers"] if name == REQUEST_ID]
            arrival: Arrival | None = scope.get(ARRIVAL)
            if arrival is not None and len(ids) == 1:  # with two of them, one may be the client's own
                arrival.forwarded_id = ids[0].decode("latin-1")
        await super().__call__(scope, receive, send)
