"""The FastAPI application of a replica: `/mcp`, health checks, metrics and metadata."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Container, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from fastapi import FastAPI, Header, Request, Response
from fastapi.exception_handlers import http_exception_handler
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from gateway.errors import GatewayError, HttpRefusal, InternalError
from gateway.http.asgi import Receive, Scope, Send
from gateway.observability.audit import AuditLog
from gateway.observability.metrics import RefusalReason, Telemetry
from gateway.protocol.headers import Headers
from gateway.settings.hosts import is_loopback
from gateway.settings.model import ENDPOINT_PATH
from gateway.web.errors import to_http
from gateway.web.origins import OriginPolicy

HEALTH_PATHS: Final = frozenset({"/healthz", "/readyz"})
METRICS_PATH: Final = "/metrics"

NOT_RUNNING: Final = "The gateway is not running: the lifespan of the application that it is mounted in has not run"

NotReady: TypeAlias = Literal["leaving", "audit_log_down"]
"""The reason why a replica accepts no new work."""

log = logging.getLogger(__name__)


class Liveness(BaseModel):
    """The response of `/healthz`."""

    status: Literal["alive"] = "alive"


class Readiness(BaseModel):
    """The response of `/readyz`."""

    status: Literal["ready"] | NotReady
    clock: Annotated[
        dict[str, float], Field(description="By how many seconds this replica's clock is ahead of each other clock.")
    ]


class ProtectedResource(BaseModel):
    """The metadata of a protected resource (RFC 9728 section 2). Members without a value are omitted."""

    resource: str
    authorization_servers: list[str] | None = None
    scopes_supported: list[str] | None = None
    bearer_methods_supported: list[str]
    resource_name: str | None = None


@dataclass(frozen=True, slots=True)
class Metadata:
    """The metadata of a protected resource, and the paths where clients look for it."""

    read: Callable[[], dict[str, Any]]
    paths: frozenset[str]


class Endpoint(Route):
    """An exact path that an ASGI application serves, for all methods. The framework does not read the request."""

    def __init__(self, path: str, app: ASGIApp) -> None:
        super().__init__(path, app)
        self.path_regex = re.compile(re.escape(path) + r"\Z")  # Starlette's `$` also matches before a line break


def either_slash(path: str) -> tuple[str, str]:
    """Return a path without and with a slash at its end, which many guides and clients add."""
    return path, path + "/"


def create_site(
    endpoints: Mapping[str, ASGIApp],
    why_not_ready: Callable[[], NotReady | None],
    telemetry: Telemetry,
    *,
    health: bool = True,
    metrics: bool = False,
    metadata: Metadata | None = None,
    endpoint: str | None = None,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None,
) -> FastAPI:
    """Return the FastAPI application, with these endpoints by their paths.

    `why_not_ready` returns why this replica accepts no new work. `health` serves `/healthz` and `/readyz`, `metrics`
    serves `/metrics`. `metadata` is that of the protected resource (RFC 9728). `endpoint` is the URL of the MCP
    endpoint that errors name, None for its path.
    """
    site = FastAPI(
        title="Sealed Gateway",
        routes=[Endpoint(path, app) for path, app in endpoints.items()],
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would repeat any host that the client names
        telemetry={"tracing": False, "metrics": False, "logs": False},  # health checks must not appear in traces
    )
    if health:
        _add_health(site, why_not_ready, telemetry.clocks.offsets)
    if metrics:
        _add_metrics(site, telemetry.registry)
    if metadata is not None:
        _add_metadata(site, metadata)
    _add_directions(site, endpoint)
    return site


def _add_health(
    site: FastAPI, why_not_ready: Callable[[], NotReady | None], clock_offsets: Callable[[], dict[str, float]]
) -> None:
    @site.get("/healthz")
    async def healthz() -> Liveness:
        return Liveness()

    @site.get("/readyz")
    async def readyz(response: Response) -> Readiness:
        reason = why_not_ready()
        if reason is not None:
            response.status_code = 503
        # A wrong clock is reported, but the replica stays ready: if the other clock is wrong, all would stop.
        return Readiness(status=reason or "ready", clock=clock_offsets())


def _add_metrics(site: FastAPI, registry: CollectorRegistry) -> None:
    @site.get(METRICS_PATH, response_class=Response)
    def metrics(accept: Annotated[str, Header()] = "") -> Response:  # runs in a thread: it takes some milliseconds
        encode, content_type = choose_encoder(accept)
        return Response(encode(registry), headers={"content-type": content_type})


def _add_metadata(site: FastAPI, metadata: Metadata) -> None:
    async def protected_resource_metadata() -> dict[str, Any]:
        return metadata.read()

    for path in [form for known in metadata.paths for form in either_slash(known)]:
        site.add_api_route(
            path,
            protected_resource_metadata,
            methods=["GET", "HEAD"],
            response_model=ProtectedResource,
            response_model_exclude_unset=True,
        )


def _add_directions(site: FastAPI, endpoint: str | None) -> None:
    """Answer requests that nothing serves with the place of the endpoint, and in a form that clients of MCP show."""

    async def not_served(request: Request, error: Any) -> Response:
        place = endpoint or request.scope.get("root_path", "") + ENDPOINT_PATH
        told = f"This path does not serve {request.method} requests; the MCP endpoint is POST {place}"
        if request.method == "POST":
            status, headers, body = to_http(HttpRefusal(error.status_code, told), None)
            raw = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
            return Response(body, status, {**raw, **(error.headers or {})})
        return await http_exception_handler(request, HTTPException(error.status_code, told, error.headers))

    for status in (404, 405):
        site.add_exception_handler(status, not_served)


@dataclass(frozen=True, slots=True)
class Guard:
    """Passes only allowed requests to the site.

    `local_only` serves only connections to a loopback address. The endpoints in `judges` check hosts and origins
    themselves. Everyone may call the health checks.
    """

    app: ASGIApp
    _: KW_ONLY
    is_running: Callable[[], bool]
    local_only: bool
    judges: Container[str]
    origins: OriginPolicy
    telemetry: Telemetry
    audit: AuditLog

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event of ASGI."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if not self.is_running():
            await refuse_not_running(send)
            return
        scope["path"] = _encoded_path(scope)
        try:
            cors = self._check(scope)
        except GatewayError as error:
            client = scope.get("client")
            self.audit.refused(error, client=client[0] if client else "")
            self.telemetry.request_refused(RefusalReason.of(error))
            status, headers, body = to_http(error, None)
            await _answer(send, status, [*headers, *self.origins.readable(scope["headers"])], body)
            return
        if cors and scope["method"] == "OPTIONS":
            await _answer(send, 204, [*cors, *self.origins.preflight(Headers(scope["headers"]))], b"")
            return
        await self.app(scope, receive, _adding(cors, send) if cors else send)

    def _check(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        """Return the headers with which a web page of another origin may read the response.

        Raises:
            HttpRefusal: the request is not for an address, a host or an origin that is served.
        """
        if self.local_only and not _is_local(scope):
            raise HttpRefusal(403, "Without identity, only connections to a loopback address are served")
        return [] if self._is_open(scope) else self.origins.check(Headers(scope["headers"]))

    def _is_open(self, scope: Scope) -> bool:
        """Return whether the request is a health check, or is for an endpoint that checks hosts and origins itself."""
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        return path in HEALTH_PATHS or path in self.judges


async def refuse_not_running(send: Send) -> None:
    """Answer a request to a gateway that is not running."""
    log.error("request refused: the gateway is not running; give `gateway.mount` the application that the server runs")
    await _answer(send, *to_http(InternalError(NOT_RUNNING), None))


def _encoded_path(scope: Scope) -> str:
    """Return the path as sent, still encoded, so that no path can stand for another one that a proxy blocks."""
    raw_path: bytes = scope.get("raw_path") or b""
    path: str = scope["path"]
    return raw_path.partition(b"?")[0].decode("latin-1") if b"%" in raw_path else path


def _is_local(scope: Scope) -> bool:
    """Return whether a connection was made to a loopback address, or has no address, such as a Unix socket."""
    server = scope.get("server")
    return server is None or server[1] is None or is_loopback(server[0])


def _adding(headers: list[tuple[bytes, bytes]], send: Send) -> Send:
    """Return a `send` that adds headers to the response."""

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
