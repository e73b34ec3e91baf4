"""The security headers of the playground."""

from __future__ import annotations

from typing import Any, Final

from starlette.types import ASGIApp

from gateway.http.asgi import Receive, Scope, Send

CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "media-src data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
"""The policy of the page: it loads only files of this server, and nothing turns text into code."""

HEADERS: Final = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
)


_CORS: Final = b"access-control-"


class SecurityHeaders:
    """Adds the headers to every response of an application, refusals included.

    A page of another origin can read none of them, also where it may call `/mcp`. Responses of the exempt paths, which
    are other endpoints, stay as they are. `closes` also closes each connection, so a balancer chooses a replica for
    every request.
    """

    def __init__(self, app: ASGIApp, *, exempt: frozenset[str] = frozenset(), closes: bool = False) -> None:
        self._app = app
        self._exempt = exempt
        self._headers = (*HEADERS, *([(b"connection", b"close")] if closes else ()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event of ASGI."""

        async def send_more(event: Any) -> None:
            if event["type"] == "http.response.start":
                kept = [header for header in event.get("headers", ()) if not header[0].startswith(_CORS)]
                event = {**event, "headers": [*kept, *self._headers]}
            await send(event)

        is_ours = scope["type"] == "http" and scope["path"].removeprefix(scope.get("root_path", "")) not in self._exempt
        await self._app(scope, receive, send_more if is_ours else send)
