"""The ASGI application, and the process that serves it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.types import ASGIApp

from gateway.authoring.lifespans import open_at_start
from gateway.calls.task_access import TaskAccess
from gateway.errors import ConfigurationError
from gateway.http.asgi import AsgiApp, Receive, Scope, Send
from gateway.http.descriptors import make_room
from gateway.http.draining_server import DrainingServer
from gateway.http.limits import Limits
from gateway.observability.metrics_server import MetricsServer, start_metrics_server
from gateway.observability.task_totals import TaskTotals
from gateway.process.exit import Ending
from gateway.process.preflight import load_tools
from gateway.process.reload import Reloader
from gateway.process.replica import Services, build
from gateway.process.services import check, watch_key_file, watch_redis_url
from gateway.process.signals import Hangups
from gateway.process.supervisor import notify_ready
from gateway.process.watchdog import watchdog
from gateway.protocol.caller import Caller
from gateway.registry.registry import Registry
from gateway.runtime.large_blocks import return_large_blocks
from gateway.runtime.reread import rereading
from gateway.runtime.version import __version__
from gateway.settings.hosts import is_loopback
from gateway.settings.model import ENDPOINT_PATH, Settings
from gateway.tasks.model import TaskView
from gateway.tokens.hop_messages import HOP_PATH, max_message_bytes
from gateway.tokens.stream_receiver import MAX_RUNNING, max_stream_request_bytes
from gateway.web.endpoint import ARRIVAL, Arrival, McpEndpoint
from gateway.web.hop_endpoint import HopEndpoint
from gateway.web.origins import OriginPolicy
from gateway.web.playground.headers import SecurityHeaders
from gateway.web.playground.readings import ReadingTurns
from gateway.web.playground.routes import MAX_TASKS, Config, Playground, Upstream, add_playground
from gateway.web.proxies import TrustedProxies
from gateway.web.server_callbacks import server_callbacks
from gateway.web.site import Guard, Metadata, NotReady, create_site, either_slash

log = logging.getLogger(__name__)

running_apps: Final[dict[GatewayApp, asyncio.AbstractEventLoop]] = {}
"""The running gateways of this process, each with its event loop."""

SILENT_SECONDS = 12.0
"""How long a client may acknowledge nothing of a stream. A quiet stream gets a comment every 15 seconds, so a client
that is gone is noticed within 30."""


IDLE_SECONDS = 75.0
"""How long idle connections stay open: longer than in common load balancers, so the balancer closes them first."""


_ENDPOINT_PATHS: Final = either_slash(ENDPOINT_PATH)


class GatewayApp:
    """One replica as an ASGI application: that of FastAPI, except that `/mcp` and replicas' messages bypass its router.

    Args:
        metrics: whether it serves its metrics itself, in addition to a separate port.
        metadata_paths: the paths of the protected-resource metadata; None for the usual ones.

    Attributes:
        site: the FastAPI application. It serves everything, including `/mcp`.
        origins: which hosts are served, and which pages may call.
        is_running: whether `running` is open.
    """

    def __init__(
        self,
        services: Services,
        *,
        bound_to: str = "127.0.0.1",
        reload: bool = False,
        health: bool = True,
        metrics: bool = False,
        metadata_paths: frozenset[str] | None = None,
    ) -> None:
        settings = services.settings
        self._built_in = os.getpid()
        self.is_running = False
        self.leaving = False
        self.startup_problem: ConfigurationError | None = None
        self._services = services
        self._counts_tasks = metrics or settings.metrics_port is not None
        self._reloader = Reloader(settings.tools, self._load_again, services.wires.reload) if reload else None
        self.origins = origins = _origin_policy(settings, bound_to)
        self._endpoint = _make_endpoint(services, origins)
        self._hop_endpoint = HopEndpoint(
            services.wires.hops.receive,
            services.stream_receiver.receive,
            origins,
            services.telemetry,
            max_bytes=max_message_bytes(settings.max_body_bytes),
            max_stream_bytes=max_stream_request_bytes(settings.max_body_bytes),
        )
        self._endpoints: dict[str, ASGIApp] = {
            **dict.fromkeys(_ENDPOINT_PATHS, self._endpoint),
            HOP_PATH: self._hop_endpoint,
        }
        self.site = create_site(
            self._endpoints,
            self._why_not_ready,
            services.telemetry,
            health=health,
            metrics=metrics,
            metadata=self._metadata(metadata_paths),
            endpoint=settings.resource,
            lifespan=self._lifespan,
        )
        if settings.playground != "off":
            add_playground(self.site, self._playground())
        self._guard(origins)

    def _guard(self, origins: OriginPolicy) -> None:
        services, settings = self._services, self._services.settings
        self.site.add_middleware(
            Guard,
            is_running=lambda: self.is_running,
            local_only=settings.auth == "none",
            judges=self._endpoints,
            origins=origins,
            telemetry=services.telemetry,
            audit=services.audit,
        )
        if settings.playground != "off":
            self.site.add_middleware(
                SecurityHeaders, exempt=frozenset(self._endpoints), closes=settings.connection_close
            )

    def _playground(self) -> Playground:
        services, wires = self._services, self._services.wires
        settings, access = services.settings, wires.access
        readings = ReadingTurns()

        def config() -> Config:
            return Config(
                name=wires.identity_of(wires.dispatcher.registry).display_name or "Sealed Gateway",
                version=__version__,
                auth="none" if settings.auth == "none" else "bearer",
                fleet=settings.playground == "dev",
                tasks=access is not None,
            )

        async def authenticate(authorization: str | None) -> Caller:
            known = services.authenticator.known(authorization)
            caller = await services.authenticator.authenticate(authorization) if known is None else known
            if caller.principal is not None:  # anonymous ones are told apart by their address, which is not known here
                services.callers.admit(caller.principal, "")
            return caller

        async def upstreams(authorization: str | None) -> list[Upstream]:
            await authenticate(authorization)
            parts = wires.dispatcher.registry.parts
            return [Upstream(name=part.name, prefix=part.prefix) for part in parts if part.name]

        async def tasks(access: TaskAccess, authorization: str | None) -> Sequence[TaskView]:
            caller = await authenticate(authorization)
            async with readings.turn():
                return await access.newest(MAX_TASKS, caller, wires.dispatcher.registry)

        return Playground(config, upstreams, None if access is None else functools.partial(tasks, access))

    def _metadata(self, paths: frozenset[str] | None) -> Metadata | None:
        metadata, wires = self._services.metadata, self._services.wires
        if metadata is None:
            return None

        def read() -> dict[str, Any]:
            registry = wires.dispatcher.registry
            return metadata.document(registry.scopes, wires.identity_of(registry).display_name)

        return Metadata(read, paths or metadata.paths)

    def _load_again(self) -> Registry:
        """Load the tools from their current files; raise if anything is wrong with them."""
        registry = load_tools(self._services.settings)
        self._services.wires.check(registry)
        return registry

    def _why_not_ready(self) -> NotReady | None:
        if self.leaving:
            return "leaving"
        return None if self._services.audit.may_run else "audit_log_down"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event of ASGI."""
        serve = self._endpoints.get(scope["path"], self.site) if scope["type"] == "http" else self.site
        await serve(scope, receive, send)

    def arrived(self, scope: Scope) -> None:
        """Count a request whose headers are complete, if it is for `/mcp`."""
        if scope["path"] in _ENDPOINT_PATHS:
            self._endpoint.arrived(scope)

    def still_arriving(self, scope: Scope) -> None:
        """Let a request give up its place while its body arrives."""
        arrival: Arrival | None = scope.get(ARRIVAL)
        if arrival is not None:
            arrival.step_aside()

    def drain(self) -> None:
        """Start draining: report not ready, shed legs at their checkpoints, and close connections after responses."""
        if not self.leaving:
            self.leaving = True
            if self._services.upstreams is not None:
                self._services.upstreams.holder.drain()
            self._services.load.shedding.drain()
            self._endpoint.close_connections()

    def leave(self) -> None:
        """Accept no new work, shed the rest, and end the streams that would otherwise stay open."""
        self._endpoint.takes_on = False
        self._services.load.shedding.end_notice()
        self._services.changes.close()
        self._services.waiting.close()
        if self._services.upstreams is not None:
            self._services.upstreams.holder.calls.drain()

    def is_needed(self) -> bool:
        """Return whether calls that are held here can continue, or other processes wait for this one."""
        upstreams = self._services.upstreams
        return upstreams is not None and bool(upstreams.holder.calls.open or self._services.stream_receiver.running)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _site: FastAPI) -> AsyncIterator[None]:
        try:
            async with self.running():
                yield
        except asyncio.CancelledError:
            log.debug("forced exit: no orderly shutdown")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run background work while the context is open. It can be opened once.

        Raises:
            ConfigurationError: when the context is entered, if the replica cannot start as configured.
        """
        async with contextlib.AsyncExitStack() as stack:
            stack.push(self._close_audit)
            if self._services.tracing is not None:
                stack.push_async_callback(self._services.tracing.close)
            stack.push_async_callback(self._services.stream_sender.aclose)
            stack.callback(self._services.host.close)
            if self._services.store is not None:
                stack.push_async_callback(self._services.store.aclose)
            try:
                await self._start(stack)
            except ConfigurationError as problem:
                self.startup_problem = problem
                raise
            self.is_running = True
            running_apps[self] = asyncio.get_running_loop()
            try:
                yield
            finally:
                del running_apps[self]
                self.is_running = False

    def _close_audit(self, error: type[BaseException] | None, *_: object) -> None:
        """Close the audit log, except at a forced exit, which cuts off requests that still have lines to write."""
        if error is not asyncio.CancelledError:
            self._services.audit_file.close()

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        if os.getpid() != self._built_in:  # processes with one boot id would take each other's answers for their own
            raise ConfigurationError(
                "the gateway was built before this process was forked; build it in each process: do not preload the "
                "application, or use gateway.mount, which does so"
            )
        stack.enter_context(watchdog())
        for url_watcher in watch_redis_url(self._services.settings, self._services.redis_url):
            await stack.enter_async_context(url_watcher.running())
        stack.enter_context(rereading(self._services.audit_file.reopen))
        if self._services.store is not None:
            await check(self._services.store)
            if self._counts_tasks:
                totals = TaskTotals(self._services.store.totals)
                await stack.enter_async_context(totals.running(self._services.telemetry.registry))
        await open_at_start(self._services.registry.lifespans, stack)
        await stack.enter_async_context(self._services.authenticator.running())
        for watcher in watch_key_file(self._services.settings, self._services.keys):
            await stack.enter_async_context(watcher.running())
        take, answer = self._services.wires.hops.take, self._services.stream_receiver.take
        await stack.enter_async_context(self._services.neighbours.listening(take, answer))
        await stack.enter_async_context(self._services.wires.broadcasts.running())
        if self._services.upstreams is not None:
            await stack.enter_async_context(self._services.upstreams.running())
        if self._reloader is not None:
            await stack.enter_async_context(self._reloader.running())
        if self._services.settings.replica_url is None:
            log.info("GATEWAY_REPLICA_URL is not set, so answers of 2025-11-25 clients must reach this host")
        if self._services.settings.redis_url is None and not self._services.settings.peers:
            log.info("GATEWAY_PEERS is not set, so a request can be cancelled only at the replica that runs it")


def _make_endpoint(services: Services, origins: OriginPolicy) -> McpEndpoint:
    settings = services.settings
    return McpEndpoint(
        services.wires.dispatcher,
        services.authenticator,
        origins,
        services.telemetry,
        services.audit,
        callers=services.callers,
        admission=services.load,
        max_body_bytes=settings.max_body_bytes,
        replica_id=settings.replica_id if settings.replica_header else None,
        challenges=services.challenges,
        close_connections=settings.connection_close,
    )


def _origin_policy(settings: Settings, bound_to: str) -> OriginPolicy:
    loopback = is_loopback(bound_to)
    hosts = settings.allowed_hosts if settings.allowed_hosts or loopback else None
    if hosts is None:
        log.warning("requests for any Host are accepted; list your hosts in GATEWAY_ALLOWED_HOSTS")
    else:  # requests of other replicas name these
        own = () if settings.replica_url is None else (settings.replica_url,)
        hosts = (*hosts, *(urlsplit(url).netloc for url in (*own, *settings.peers)))
    return OriginPolicy(hosts, settings.allowed_origins, loopback=loopback)


def _connection_limits(settings: Settings) -> Limits:
    return Limits(
        max_connections=make_room(settings.max_connections, beside=MAX_RUNNING),
        max_header_bytes=settings.max_header_bytes,
        max_headers=settings.max_headers,
        # The framing of a chunked body may take as much as the body itself, but no more. Other processes send a little
        # more beside a body, without chunks.
        max_message_bytes=settings.max_header_bytes
        + max(2 * settings.max_body_bytes, max_stream_request_bytes(settings.max_body_bytes)),
        head_seconds=settings.head_seconds,
        body_seconds=settings.body_seconds,
        unread_seconds=settings.unread_seconds,
        silent_seconds=SILENT_SECONDS,
        max_unread_bytes=settings.max_unread_bytes,
        idle_seconds=IDLE_SECONDS,
        max_exempt_connections=MAX_RUNNING,
    )


def create_app(settings: Settings | None = None) -> FastAPI:
    """Return the FastAPI application, configured from the environment unless `settings` are given.

    Raises:
        ConfigurationError: the process cannot serve as configured. The message says what to change.
    """
    return GatewayApp(build(settings or Settings.load())).site


def make_server(
    services: Services,
    app: GatewayApp,
    *,
    answers_checks: bool = False,
    on_signal: Callable[[], None] = lambda: None,
    hangups: Hangups | None = None,
) -> DrainingServer:
    """Return the server of one replica, with the connection limits of its settings. It does not run yet."""
    settings = services.settings
    limits = _connection_limits(settings)
    if settings.auth != "none":
        services.callers.share_connections(limits.max_connections)
    replica_id = settings.replica_id if settings.replica_header else None
    served: AsgiApp = TrustedProxies(app, settings.trusted_proxies) if settings.trusted_proxies else app
    return DrainingServer(
        served,
        limits=limits,
        callbacks=server_callbacks(
            services.telemetry, app.arrived, app.still_arriving, app.origins, replica_id=replica_id
        ),
        notice_seconds=settings.drain_notice_seconds,
        drain_seconds=settings.drain_seconds,
        path=ENDPOINT_PATH,
        answers_checks=answers_checks,
        is_needed=app.is_needed,
        on_notice=app.drain,
        on_leaving=app.leave,
        on_signal=on_signal,
        on_ready=notify_ready if hangups is None else hangups.ready,
        further_signals=None if hangups is None else hangups.obeyed,
    )


def _serve_metrics(services: Services, listener: socket.socket | None) -> MetricsServer | None:
    settings = services.settings
    if settings.metrics_port is None:
        return None
    metrics = start_metrics_server(services.telemetry.registry, settings.metrics_host, settings.metrics_port, listener)
    log.info("metrics", extra={"url": metrics.url})
    return metrics


def serve(
    settings: Settings,
    sock: socket.socket,
    *,
    inherited: bool = False,
    reload: bool = False,
    metrics_sock: socket.socket | None = None,
) -> int:
    """Serve on a listening socket until asked to stop; return the exit code: 0 clean, 1 forced.

    Both sockets are closed at the end. Connections wait in an `inherited` socket for the next process, because it
    outlives this one. If `metrics_sock` is None, one is opened from the settings.

    Raises:
        ConfigurationError: the process cannot serve as configured. The message says what to change.
    """
    with Hangups().caught() as hangups:
        return _serve(settings, sock, hangups, inherited=inherited, reload=reload, metrics_sock=metrics_sock)


def _serve(
    settings: Settings,
    sock: socket.socket,
    hangups: Hangups,
    *,
    inherited: bool,
    reload: bool,
    metrics_sock: socket.socket | None,
) -> int:
    ending = Ending()
    return_large_blocks()
    services = build(settings)
    if services.tracing is not None:
        services.tracing.serve_libraries()
    app = GatewayApp(services, bound_to=sock.getsockname()[0], reload=reload)
    server = make_server(services, app, answers_checks=not inherited, on_signal=ending.signalled, hangups=hangups)
    metrics = _serve_metrics(services, metrics_sock)
    # The objects made so far live as long as the process, so the garbage collector need not examine them again.
    gc.collect()
    gc.freeze()
    try:
        with _own_words(app):
            server.run(sockets=[sock])
        exit_code = 1 if server.force_exit else 0
    except SystemExit as error:  # uvicorn could not start
        if app.startup_problem is not None:
            raise app.startup_problem from None
        exit_code = error.code if isinstance(error.code, int) else 1
    finally:
        if metrics is not None:
            metrics.stop()
    return ending.stopped(exit_code, services.host.busy_threads)


@contextlib.contextmanager
def _own_words(app: GatewayApp) -> Iterator[None]:
    """Keep uvicorn from also logging a problem at start-up, which the caller of `serve` reports in one line."""
    logger = logging.getLogger("uvicorn.error")

    def is_news(_record: logging.LogRecord) -> bool:
        return app.startup_problem is None

    logger.addFilter(is_news)
    try:
        yield
    finally:
        logger.removeFilter(is_news)
