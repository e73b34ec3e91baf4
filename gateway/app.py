"""The ASGI application, and the process that serves it."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket

from gateway.bootstrap import Services, build
from gateway.settings import Settings
from gateway.telemetry import start_metrics_server
from gateway.web.endpoint import McpEndpoint, Receive, Scope, Send
from gateway.web.server import ReplicaServer
from gateway.web.site import create_site

log = logging.getLogger(__name__)

MCP_PATH = "/mcp"


class GatewayApp:
    """The outermost ASGI callable: serves `/mcp` itself and hands every other path to the FastAPI site."""

    def __init__(self, services: Services) -> None:
        settings = services.settings
        self.leaving = False
        self._services = services
        self._site = create_site(lambda: not self.leaving)
        self._endpoint = McpEndpoint(
            services.dispatcher,
            services.authenticator,
            services.telemetry,
            max_body_bytes=settings.max_body_bytes,
            replica_id=settings.replica_id if settings.replica_header else None,
            close_connections=settings.connection_close,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event of ASGI."""
        if scope["type"] == "http" and scope["path"] == MCP_PATH:
            await self._endpoint(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await self._site(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        try:
            while (await receive())["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
        except asyncio.CancelledError:
            log.debug("forced exit: no orderly shutdown")
        finally:
            self._services.host.close()


def create_app(settings: Settings | None = None) -> GatewayApp:
    """Return the ASGI application, configured from the environment unless `settings` are given.

    Raises:
        ConfigurationError: the process cannot serve as configured; the message says what to change.
    """
    return GatewayApp(build(settings or Settings.load()))


def serve(settings: Settings, sock: socket.socket) -> int:
    """Serve on a bound socket until told to stop; return the exit code: 0 clean, 1 forced.

    Raises:
        ConfigurationError: the process cannot serve as configured; the message says what to change.
    """
    services = build(settings)
    app = GatewayApp(services)
    server = ReplicaServer(app, settings.drain_seconds)
    metrics = None
    if settings.metrics_port is not None:
        metrics = start_metrics_server(services.telemetry.registry, sock.getsockname()[0], settings.metrics_port)
        log.info("metrics", extra={"url": f"http://{metrics.host}:{metrics.port}/metrics"})
    # What start-up made lives as long as the process: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    try:
        server.run(sockets=[sock])
    finally:
        if metrics is not None:
            metrics.stop()
    return 1 if server.force_exit else 0
