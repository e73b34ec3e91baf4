"""A gateway that is mounted in another FastAPI application."""

from __future__ import annotations

import contextlib
import functools
import logging
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.routing import BaseRoute, Match

from gateway.auth.metadata import WELL_KNOWN_PATH, ResourceMetadata
from gateway.errors import ConfigurationError
from gateway.http.asgi import Receive, Scope, Send
from gateway.process.app import GatewayApp
from gateway.process.preflight import warn_of_unknown
from gateway.process.replica import build
from gateway.settings.model import ENDPOINT_PATH, Settings, make_replica_id
from gateway.web.mounted_body_time import TimedBody
from gateway.web.site import HEALTH_PATHS, METRICS_PATH, Endpoint, either_slash, refuse_not_running

log = logging.getLogger(__name__)

_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~-]+)+")

_NO_SETTINGS: Final = frozenset({"environ", "host", "metrics_port", "named", "port", "problems"})
"""Arguments of `Settings.load` that a mounted gateway does not have, since it listens on no port itself."""


def add(app: FastAPI, prefix: str, *, health: bool, metrics: bool, settings: Mapping[str, Any]) -> None:
    """Mount a gateway; see `gateway.mount`."""
    if not _PREFIX.fullmatch(prefix):
        raise ConfigurationError(f"cannot mount at {prefix!r}; use a path such as '/tools'")
    for name in sorted(_NO_SETTINGS & settings.keys()):
        raise ConfigurationError(f"{name!r} is not a setting of a mounted gateway")
    read = Settings.load(named="{}=".format, **settings, metrics_port="off")
    mounted = Mounted(app, prefix, read, health=health, metrics=metrics)
    wanted = [("POST", prefix + path) for path in either_slash(ENDPOINT_PATH)]
    wanted += [("GET", prefix + path) for path in _paths_below(health=health, metrics=metrics)]
    metadata_paths = [form for known in sorted(mounted.metadata_paths) for form in either_slash(known)]
    _refuse_taken(app, prefix, [*wanted, *(("GET", path) for path in metadata_paths)])
    app.mount(prefix, mounted)
    # Clients look for the metadata at the root, followed by the path of the endpoint (RFC 9728 section 3.1).
    app.router.routes.extend(Endpoint(path, mounted) for path in metadata_paths)
    app.router.lifespan_context = mounted.lifespan


def _paths_below(*, health: bool, metrics: bool) -> list[str]:
    """Return the paths besides the endpoint that are served below the prefix."""
    return sorted({*(HEALTH_PATHS if health else ()), *({METRICS_PATH} if metrics else ())})


def _refuse_taken(app: FastAPI, prefix: str, wanted: Iterable[tuple[str, str]]) -> None:
    for method, path in wanted:
        if any(_serves(route, method, path) for route in app.routes):
            raise ConfigurationError(
                f"cannot mount at {prefix!r}: another route of the application serves {path}; use another path, or "
                "mount the gateway before that route is added"
            )


def _serves(route: BaseRoute, method: str, path: str) -> bool:
    scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
    return route.matches(scope)[0] is Match.FULL


class Mounted:
    """A gateway below a path. It is built each time its host starts, so none of it outlives an event loop or a fork.

    Attributes:
        metadata_paths: the host's paths that serve the protected-resource metadata.

    Raises:
        ConfigurationError: settings are missing or contradict each other.
    """

    def __init__(self, host: FastAPI, prefix: str, settings: Settings, *, health: bool, metrics: bool) -> None:
        settings.check_serving()
        settings = _without_programs(_below(prefix, settings))
        warn_of_unknown(settings)
        _warn_of_urls(settings, prefix)
        self._host_lifespan = host.router.lifespan_context
        self._settings = settings
        self._health = health
        self._metrics = metrics
        self._gateway: GatewayApp | None = None
        metadata = ResourceMetadata.of(settings)
        self.metadata_paths: frozenset[str] = frozenset()
        if metadata is not None:
            self.metadata_paths = frozenset({WELL_KNOWN_PATH + prefix + ENDPOINT_PATH, urlsplit(metadata.url).path})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event of ASGI."""
        if self._gateway is not None and scope["type"] == "http":
            request = TimedBody(receive, send, self._settings.body_seconds)
            await self._gateway.site(scope, request.receive, request.send)
            await request.refuse_late(functools.partial(self._gateway.origins.readable, scope["headers"]))
        elif self._gateway is not None:
            await self._gateway.site(scope, receive, send)
        elif scope["type"] == "http":
            await refuse_not_running(send)
        else:
            await send({"type": "websocket.close"})

    @contextlib.asynccontextmanager
    async def lifespan(self, host: Any) -> AsyncIterator[Any]:
        """Run the gateway inside the host's lifespan, so tools can use what the host has opened."""
        async with self._host_lifespan(host) as state:
            settings = self._settings
            if "replica_id" not in settings.model_fields_set:
                settings = settings.model_copy(update={"replica_id": make_replica_id()})
            gateway = GatewayApp(
                build(settings),
                health=self._health,
                metrics=self._metrics,
                metadata_paths=self.metadata_paths,
            )
            async with gateway.running():
                self._gateway = gateway
                try:
                    yield state
                finally:
                    self._gateway = None


def _below(prefix: str, settings: Settings) -> Settings:
    """Return the settings for a prefix that ends in `/mcp` itself, which was taken for the endpoint's own path."""

    def whole(url: str) -> str:
        is_cut = not url.endswith(prefix) and f"{url}{ENDPOINT_PATH}".endswith(prefix)
        return f"{url}{ENDPOINT_PATH}" if is_cut else url

    if not prefix.endswith(ENDPOINT_PATH):
        return settings
    own = None if settings.replica_url is None else whole(settings.replica_url)
    others = {"peers": tuple(map(whole, settings.peers)), "holders": tuple(map(whole, settings.holders))}
    return settings.model_copy(update={"replica_url": own, **others})


def _without_programs(settings: Settings) -> Settings:
    """Let upstreams run programs only if the settings say so: a program can read the variables of this process."""
    return settings if "max_children" in settings.model_fields_set else settings.model_copy(update={"max_children": 0})


def _warn_of_urls(settings: Settings, prefix: str) -> None:
    """Warn about URLs without the mount path, which do not reach the gateway unless a proxy rewrites paths."""
    public = settings.resource and settings.resource.removesuffix(ENDPOINT_PATH)
    for name, url in {"GATEWAY_PUBLIC_URL": public, "GATEWAY_REPLICA_URL": settings.replica_url}.items():
        if url is not None and not url.endswith(prefix):
            log.warning("the URL does not end with the path of the gateway", extra={"setting": name, "path": prefix})
