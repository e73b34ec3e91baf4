"""Opens the upstreams that a replica or a worker serves, and follows the file that names them."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from prometheus_client import CollectorRegistry

from gateway.children.children import Children, Program
from gateway.children.environment import environment
from gateway.ensured import ensured
from gateway.errors import ConfigurationError
from gateway.http_client.client import HttpClient
from gateway.http_client.target import proxy_of_environment
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.protocol.upstream.requests import session_capabilities
from gateway.registry.parts import Hidden, Part
from gateway.registry.registry import Registry
from gateway.runtime.turns import Turns
from gateway.runtime.version import __version__
from gateway.settings.model import Settings, secret_values
from gateway.upstreams.bulkhead import Bulkhead
from gateway.upstreams.client.connections import ConnectionPool, MakeConnection
from gateway.upstreams.client.dialects import Sessionless
from gateway.upstreams.client.eras import EraClient
from gateway.upstreams.client.in_process import ADDRESS, ServerObjects
from gateway.upstreams.client.programs import UpstreamProgram
from gateway.upstreams.client.session import SessionClient
from gateway.upstreams.client.session_http import HttpSession
from gateway.upstreams.client.stateless import StatelessClient, places_of_cancels
from gateway.upstreams.client.stdio import ChildConnection
from gateway.upstreams.config.checks import object_problems, setting_problems
from gateway.upstreams.config.definition import Definition, UpstreamFile
from gateway.upstreams.config.options import ENVIRONMENT
from gateway.upstreams.config.reading import UpstreamReader
from gateway.upstreams.credentials import CredentialHeaders, credentials_of
from gateway.upstreams.guarded import GuardedClient, UpstreamClient
from gateway.upstreams.held.calls import MAX_HELD
from gateway.upstreams.held.client import HoldingClient
from gateway.upstreams.held.holder import Holder
from gateway.upstreams.lists.listing import readings_of_lists
from gateway.upstreams.live import Live
from gateway.upstreams.readings import Readings, readings_of_answers
from gateway.upstreams.relay import UpstreamRelay
from gateway.upstreams.served_entries import PartMaker
from gateway.upstreams.upstreams import Upstreams
from gateway.upstreams.watching import UpstreamWatcher, log_file

if TYPE_CHECKING:  # a process without traces never loads OpenTelemetry, which takes memory
    from gateway.observability.tracing import Traces

log = logging.getLogger(__name__)

T = TypeVar("T")

_SPARE_CONNECTIONS: Final = (0, MAX_HELD, 0, 0)
"""How many connections there are beside `max_connections`: for requests without a session, for those in sessions, for
streams of sessions, and for the answers to questions. Calls that wait for their users take none from the others.
"""

CLIENT_NAME = "sealed-gateway"
"""The name with which the gateway introduces itself to upstreams."""


@dataclass(frozen=True, slots=True)
class UpstreamConnection:
    """The client of one upstream, and what it holds open.

    `client` sends requests without any limits; `credentials` prove who asks. `program` is one that the gateway runs.
    """

    client: EraClient | HoldingClient
    credentials: CredentialHeaders
    sessions: SessionClient
    https: Sequence[HttpClient] = ()
    program: UpstreamProgram | None = None

    async def aclose(self) -> None:
        """End all sessions and connections that are not in use, and the others as soon as their responses end."""
        await self.sessions.aclose()
        for http in self.https:
            await http.aclose()


def children_shared_by_callers(most: int) -> Children:
    """Return the children of this process, at most so many, which callers share as they share places."""
    children = Children(most)
    children.room = Bulkhead(most, None, lambda _count: None, common=lambda: children.common)
    return children


@dataclass(frozen=True, slots=True)
class Connecting:
    """What the clients of all upstreams of one process share; see `StatelessClient` for `turns` and `readings`.

    `secrets` are values that no program gets. `file` names the file of upstreams in messages.
    """

    telemetry: UpstreamMetrics
    file: str
    children: Children
    secrets: frozenset[str] = frozenset()
    tracing: Traces | None = None
    turns: Turns = field(default_factory=Turns)
    readings: Readings = field(default_factory=readings_of_answers)
    objects: ServerObjects = field(default_factory=ServerObjects)
    holder: Holder = field(default_factory=Holder)

    def connect(self, definition: Definition) -> UpstreamConnection:
        """Return the client of an upstream. It does not connect yet, and no program is started.

        Raises:
            ConfigurationError: its address, proxy or certificates cannot be used.
        """
        if definition.transport == "stdio":
            program = self._program_of(definition)
            sessions = self._sessions(definition, self._children_of(definition, program))
            credentials = credentials_of(definition)
            holding = self._holding(definition, sessions, credentials)
            return UpstreamConnection(holding, credentials, sessions, program=program)
        try:
            https = [self._http_client(definition, spare) for spare in _SPARE_CONNECTIONS]
        except ValueError as error:
            raise ConfigurationError(f"{self.file}: {definition.name}: {error}") from None
        credentials = credentials_of(definition)
        client, sessions = self._over_http(definition, credentials, https)
        return UpstreamConnection(client, credentials, sessions, https)

    def _over_http(
        self,
        definition: Definition,
        credentials: CredentialHeaders,
        https: Sequence[HttpClient],
    ) -> tuple[EraClient | HoldingClient, SessionClient]:
        """Return the client of an upstream over HTTP, and that of its sessions. See `_SPARE_CONNECTIONS`."""
        http, calls, streams, answers = https
        cancels = places_of_cancels(definition.max_connections)

        def made(kind: Callable[..., T], http: HttpClient, /, **options: object) -> T:
            common = {"readings": self.readings, "cancels": cancels, **self._common()}
            return kind(definition.name, http, credentials, **common, **options)

        is_of_one_caller, dialect = _is_of_one_caller(definition), Sessionless()
        sessions = self._sessions(
            definition,
            lambda subscribers: made(
                HttpSession,
                calls,
                streams=streams,
                answers=answers,
                subscribers=subscribers,
                is_of_one_caller=is_of_one_caller,
                capabilities=self._capabilities(definition),
            ),
        )
        is_object_elsewhere = definition.transport == "python" and self.holder.holders is not None
        in_sessions = sessions if is_object_elsewhere else self._holding(definition, sessions, credentials)
        clients = made(StatelessClient, http), made(StatelessClient, http, dialect=dialect), in_sessions
        eras = EraClient(definition.name, definition.era, *clients, dialect=dialect)
        return self._holding(definition, eras, credentials) if is_object_elsewhere else eras, sessions

    def _sessions(self, definition: Definition, make: MakeConnection) -> SessionClient:
        pool = ConnectionPool(
            definition.name,
            make,
            self.telemetry,
            max_connections=definition.max_connections,
            idle_seconds=definition.idle_seconds,
            hears_all=definition.transport == "python",
            on_idle=self.children.offer,
        )
        if definition.transport == "stdio":
            self.children.lenders.add(pool)
        is_program = definition.transport == "stdio"
        return SessionClient(definition.name, pool, definition.session_scope, is_program=is_program)

    def _holding(self, definition: Definition, client: UpstreamClient, credentials: CredentialHeaders) -> HoldingClient:
        return HoldingClient(definition, client, self.holder, self.telemetry, credentials)

    def _capabilities(self, definition: Definition) -> dict[str, Any]:
        """Return what sessions declare: all that users can be asked for, or nothing if nobody is asked."""
        is_asked = self.holder.can_hold and any(rule != "refuse" for rule in definition.ask.values)
        return session_capabilities() if is_asked else {}

    def _program_of(self, definition: Definition) -> UpstreamProgram:
        variables = environment(os.environ, definition.variables, self.secrets)
        cwd = None if definition.cwd is None else str(definition.cwd)
        command = Program((definition.command, *definition.args), variables, cwd)
        return UpstreamProgram(definition.name, command, self.children, self.telemetry)

    def _children_of(self, definition: Definition, program: UpstreamProgram) -> MakeConnection:
        return lambda subscribers: ChildConnection(
            definition.name,
            program,
            subscribers=subscribers,
            max_line_bytes=definition.max_result_bytes,
            is_of_one_caller=_is_of_one_caller(definition),
            roots=definition.roots,
            capabilities=self._capabilities(definition),
            readings=self.readings,
            **self._common(),
        )

    def _common(self) -> dict[str, Any]:
        return {
            "telemetry": self.telemetry,
            "client_info": {"name": CLIENT_NAME, "version": __version__},
            "tracing": self.tracing,
            "turns": self.turns,
        }

    def _http_client(self, definition: Definition, spare: int) -> HttpClient:
        proxy, hosted = definition.proxy, None
        if definition.transport == "python":
            hosted = self.objects.hosted(definition.python)
        return HttpClient(
            definition.url if hosted is None else f"{ADDRESS}{definition.path}",
            tls=definition.tls,
            proxy=proxy_of_environment(definition.url) if proxy == ENVIRONMENT else proxy,
            max_connections=definition.max_connections + spare,
            idle_seconds=definition.idle_seconds,
            connect=None if hosted is None else hosted.connect,
        )


class ServedUpstreams:
    """The upstreams of one process.

    `announce` is called with the URI of a resource that may have changed. It is None in a worker, which has no streams.
    A worker exchanges no tokens either: tasks bring theirs. Calls are held by the `holder`; without it, none is held.

    Raises:
        ConfigurationError: the file is wrong, or needs settings that are not set. The message says what to change.
    """

    def __init__(
        self,
        settings: Settings,
        registry: CollectorRegistry,
        announce: Callable[[str], None] | None = None,
        tracing: Traces | None = None,
        holder: Holder | None = None,
    ) -> None:
        self._settings = settings
        self._path = ensured(settings.upstreams, "callers check it")
        self._announce = announce
        self._metrics = UpstreamMetrics(registry)
        self._readings = readings_of_lists()
        self._turns = Turns()
        self._children = children_shared_by_callers(settings.max_children)
        self._metrics.show_children(self._children)
        self._connecting = Connecting(
            self._metrics,
            self._path,
            self._children,
            secret_values(settings),
            tracing,
            self._turns,
            holder=holder or Holder(),
        )
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

    @property
    def holder(self) -> Holder:
        """The part that holds calls."""
        return self._connecting.holder

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Read the lists of all upstreams, and follow changes, while the context is open."""
        log_file(self._found)
        try:
            async with self._upstreams.running(), self._watcher.running():
                yield
        finally:
            await self._connecting.holder.calls.aclose()
            await self._children.aclose()
            await self._connecting.objects.aclose()

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
        problems += object_problems(found, self._path)
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
        connection = self._connecting.connect(definition)
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


def _is_of_one_caller(definition: Definition) -> bool:
    return definition.session_scope != "shared"
