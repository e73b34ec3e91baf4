"""Opens the upstreams that a replica or a worker serves, and follows the file that names them."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from prometheus_client import CollectorRegistry

from gateway.ensured import ensured
from gateway.errors import ConfigurationError
from gateway.http_client.client import HttpClient
from gateway.http_client.target import proxy_of_environment
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.registry.parts import Hidden, Part
from gateway.registry.registry import Registry
from gateway.runtime.turns import Turns
from gateway.runtime.version import __version__
from gateway.settings.model import Settings
from gateway.upstreams.client.connections import ConnectionPool
from gateway.upstreams.client.dialects import Sessionless
from gateway.upstreams.client.eras import EraClient
from gateway.upstreams.client.session import SessionClient
from gateway.upstreams.client.session_http import HttpSession
from gateway.upstreams.client.stateless import StatelessClient, readings_of_answers
from gateway.upstreams.config.checks import setting_problems
from gateway.upstreams.config.definition import Definition, UpstreamFile
from gateway.upstreams.config.options import ENVIRONMENT
from gateway.upstreams.config.reading import UpstreamReader
from gateway.upstreams.credentials import CredentialHeaders, credentials_of
from gateway.upstreams.guarded import GuardedClient
from gateway.upstreams.lists.listing import readings_of_lists
from gateway.upstreams.live import Live
from gateway.upstreams.readings import Readings
from gateway.upstreams.relay import UpstreamRelay
from gateway.upstreams.served_entries import PartMaker
from gateway.upstreams.upstreams import Upstreams
from gateway.upstreams.watching import UpstreamWatcher, log_file

if TYPE_CHECKING:  # a process without traces never loads OpenTelemetry, which takes memory
    from gateway.observability.tracing import Traces

log = logging.getLogger(__name__)

T = TypeVar("T")

CLIENT_NAME = "sealed-gateway"
"""The name with which the gateway introduces itself to upstreams."""


@dataclass(frozen=True, slots=True)
class UpstreamConnection:
    """The client of one upstream, and what it holds open.

    `client` sends requests without any limits; `credentials` prove who asks.
    """

    client: EraClient
    credentials: CredentialHeaders
    sessions: SessionClient
    https: Sequence[HttpClient]

    async def aclose(self) -> None:
        """End all sessions and connections that are not in use, and the others as soon as their responses end."""
        await self.sessions.aclose()
        for http in self.https:
            await http.aclose()


def connect(
    definition: Definition,
    telemetry: UpstreamMetrics,
    file: str,
    tracing: Traces | None = None,
    *,
    turns: Turns | None = None,
    readings: Readings | None = None,
) -> UpstreamConnection:
    """Return the client of an upstream. It does not connect yet. See `StatelessClient` for `turns` and `readings`.

    Raises:
        ConfigurationError: its address, proxy or certificates cannot be used.
    """
    try:
        http = _http_client(definition)
    except ValueError as error:
        raise ConfigurationError(f"{file}: {definition.name}: {error}") from None
    credentials = credentials_of(definition)

    def made(kind: Callable[..., T], /, **options: object) -> T:
        return kind(
            definition.name,
            http,
            credentials,
            telemetry,
            client_info={"name": CLIENT_NAME, "version": __version__},
            tracing=tracing,
            turns=turns,
            readings=readings,
            **options,
        )

    streams, scope = _http_client(definition), definition.session_scope
    sessionless = Sessionless()
    sessions = SessionClient(
        definition.name,
        ConnectionPool(
            definition.name,
            lambda subscribers: made(
                HttpSession, streams=streams, subscribers=subscribers, is_of_one_caller=scope != "shared"
            ),
            max_connections=definition.max_connections,
            idle_seconds=definition.idle_seconds,
        ),
        scope,
    )
    clients = made(StatelessClient), made(StatelessClient, dialect=sessionless), sessions
    eras = EraClient(definition.name, definition.era, *clients, dialect=sessionless)
    return UpstreamConnection(eras, credentials, sessions, (http, streams))


def _http_client(definition: Definition) -> HttpClient:
    proxy = definition.proxy
    return HttpClient(
        definition.url,
        tls=definition.tls,
        proxy=proxy_of_environment(definition.url) if proxy == ENVIRONMENT else proxy,
        max_connections=definition.max_connections,
        idle_seconds=definition.idle_seconds,
    )


class ServedUpstreams:
    """The upstreams of one process.

    `announce` is called with the URI of a resource that may have changed. It is None in a worker, which has no streams.
    A worker exchanges no tokens either: tasks bring theirs.

    Raises:
        ConfigurationError: the file is wrong, or needs settings that are not set. The message says what to change.
    """

    def __init__(
        self,
        settings: Settings,
        registry: CollectorRegistry,
        announce: Callable[[str], None] | None = None,
        tracing: Traces | None = None,
    ) -> None:
        self._settings = settings
        self._path = ensured(settings.upstreams, "callers check it")
        self._announce = announce
        self._tracing = tracing
        self._metrics = UpstreamMetrics(registry)
        self._readings = readings_of_lists()
        self._answers = readings_of_answers()
        self._turns = Turns()
        self._hidden: frozenset[Hidden] = frozenset()
        reader = UpstreamReader(Path(self._path))
        self._found = reader.read()
        self._check(self._found)
        self._upstreams = Upstreams(self._found.definitions, self._make, self._metrics.forget)
        self._watcher = UpstreamWatcher(reader, self._found, self._replace)

    @property
    def parts(self) -> Sequence[Part]:
        """The parts of all upstreams, in the order of the file."""
        return self._upstreams.parts

    def serve_with(self, serve: Callable[[Sequence[Part]], Registry]) -> None:
        """Call `serve` with all parts whenever one of them is another one. It returns the registry that has them."""

        def changed(parts: Sequence[Part]) -> None:
            self._report_hidden(serve(parts).hidden)

        self._upstreams.on_change = changed

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Read the lists of all upstreams, and follow changes, while the context is open."""
        log_file(self._found)
        async with self._upstreams.running(), self._watcher.running():
            yield

    def _report_hidden(self, hidden: Sequence[Hidden]) -> None:
        """Count and log each entry that an earlier one of the same name hides, once."""
        known, self._hidden = self._hidden, frozenset(hidden)
        for entry in self._hidden - known:
            self._metrics.dropped(entry.part, "collision")
            log.warning(
                "entry of an upstream not served: another one has its name",
                extra={"upstream": entry.part, "list": entry.kind, "entry": entry.name},
            )

    def _check(self, found: UpstreamFile) -> None:
        """Check that a replica has the settings that the upstreams need."""
        problems = [] if self._announce is None else list(setting_problems(found, self._settings, self._path))
        if problems:
            raise ConfigurationError(*problems)

    def _replace(self, found: UpstreamFile) -> None:
        """Serve what a changed file says, if all of it can be served."""
        try:
            self._check(found)
            self._upstreams.replace(found.definitions)
        except ConfigurationError as error:
            log.exception(
                "file of upstreams rejected; the current upstreams stay in use",
                extra={"file": self._path, "reason": str(error)},
                exc_info=None,  # the operator needs the reason, not a traceback
            )

    def _make(self, definition: Definition, changed: Callable[[], None]) -> Live:
        """Make an upstream. It does not connect yet.

        Raises:
            ConfigurationError: its address, proxy or certificates cannot be used.
        """
        connection = connect(
            definition, self._metrics, self._path, self._tracing, turns=self._turns, readings=self._answers
        )
        return Live(
            definition,
            connection,
            self._metrics,
            make_parts=functools.partial(self._make_parts, definition, connection.credentials),
            changed=changed,
            announce=self._announce,
        )

    def _make_parts(self, definition: Definition, credentials: CredentialHeaders, client: GuardedClient) -> PartMaker:
        relay = UpstreamRelay(definition, client, credentials, self._metrics, turns=self._turns)
        return PartMaker(definition, client, relay, self._metrics, self._readings)
