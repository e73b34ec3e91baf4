"""Everything beside `/mcp`, on FastAPI: the health checks and the protected-resource metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse

from gateway.errors import GatewayError
from gateway.http.asgi import Receive, Scope, Send
from gateway.observability.audit import AuditLog
from gateway.observability.metrics import RefusalReason, Telemetry
from gateway.protocol.headers import Headers
from gateway.web.errors import to_http
from gateway.web.origins import OriginPolicy

HEALTH_PATHS = frozenset({"/healthz", "/readyz"})

Metadata = Callable[[], dict[str, Any]]


def create_site(
    why_not_ready: Callable[[], str | None],
    clock_offsets: Callable[[], dict[str, float]],
    *,
    metadata: Metadata | None = None,
    metadata_paths: Iterable[str] = (),
) -> FastAPI:
    """Return the FastAPI application.

    Args:
        why_not_ready: returns why this replica takes no new work, None if it does.
        clock_offsets: returns by how many seconds this replica's clock is ahead of others.
        metadata: gives the protected-resource metadata (RFC 9728), where there is some.
        metadata_paths: where it is served.
    """
    site = FastAPI(
        title="Sealed Gateway",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would name whatever host the client has named
        telemetry={"tracing": False, "metrics": False, "logs": False},  # where traces are on, probes are none
    )

    @site.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "alive"}

    @site.get("/readyz")
    async def readyz(response: Response) -> dict[str, Any]:
        reason = why_not_ready()
        if reason is not None:
            response.status_code = 503
        # A wrong clock is told and no reason to leave: if it is the other one's, all replicas would.
        return {"status": reason or "ready", "clock": clock_offsets()}

    if metadata is not None:
        for path in metadata_paths:
            site.add_api_route(path, _metadata_endpoint(metadata), methods=["GET", "HEAD"])
    return site


def _metadata_endpoint(metadata: Metadata) -> Callable[[], Any]:
    async def protected_resource_metadata() -> JSONResponse:
        return JSONResponse(metadata())

    return protected_resource_metadata


class GuardedSite:
    """Lets only requests for our hosts, and from allowed origins, through to the site; health checks always.

    Args:
        site: what serves them.
        origins: tells which hosts and web pages may call.
        telemetry: counts refusals.
        audit: notes refusals.
    """

    def __init__(self, site: FastAPI, origins: OriginPolicy, telemetry: Telemetry, audit: AuditLog) -> None:
        self._site = site
        self._origins = origins
        self._telemetry = telemetry
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event of ASGI."""
        if scope["type"] != "http" or scope["path"] in HEALTH_PATHS:
            await self._site(scope, receive, send)
            return
        try:
            headers = Headers(scope["headers"])
            cors = self._origins.check(headers)
        except GatewayError as error:
            client = scope.get("client")
            self._audit.refused(error, client=client[0] if client else "")
            self._telemetry.request_refused(RefusalReason.of(error))
            await _answer(send, *to_http(error, None))
            return
        if cors and scope["method"] == "OPTIONS":
            await _answer(send, 204, [*cors, *self._origins.preflight(headers, b"GET")], b"")
            return
        await self._site(scope, receive, _adding(cors, send) if cors else send)


def _adding(headers: list[tuple[bytes, bytes]], send: Send) -> Send:
    """Return a `send` that adds headers to the answer."""

    async def send_more(event: Any) -> None:
        if event["type"] == "http.response.start":
            event = {**event, "headers": [*event.get("headers", ()), *headers]}
        await send(event)

    return send_more


async def _answer(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    if status != 204:
        headers = [*headers, (b"content-length", str(len(body)).encode("ascii"))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
