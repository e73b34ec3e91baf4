"""Reads the headers that trusted proxies add to a request."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from gateway.web.endpoint import ARRIVAL, Arrival

REQUEST_ID: Final = b"x-gateway-request-id"

_ONE_ID: Final = re.compile(rb"[!-+\--~]{16,64}")
"""Visible ASCII without a comma, which separates two values (RFC 9110, 5.3). Shorter ids might not be unique."""


class TrustedProxies(ProxyHeadersMiddleware):
    """Takes the client's address, the scheme and the id of a request from trusted proxies.

    A request has an id if it has exactly one, of 16 to 64 visible characters. `trusted` are addresses and networks.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], trusted: Sequence[str]) -> None:
        super().__init__(app, trusted_hosts=list(trusted))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        client = scope.get("client")
        if client and client[0] in self.trusted_hosts:
            ids = [value for name, value in scope["headers"] if name == REQUEST_ID]
            arrival: Arrival | None = scope.get(ARRIVAL)
            # Of two ids, one may come from the client.
            if arrival is not None and len(ids) == 1 and _ONE_ID.fullmatch(ids[0]):
                arrival.forwarded_id = ids[0].decode("latin-1")
        await super().__call__(scope, receive, send)
