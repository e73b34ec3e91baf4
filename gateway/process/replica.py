"""Builds what a process is made of from its settings."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.admission.callers import CallerLimits
from gateway.admission.inflight import InFlight
from gateway.admission.limit import AdaptiveLimit, FixedLimit
from gateway.auth import ResourceMetadata, make_verifier
from gateway.authoring.asyncio_host import AsyncioHost
from gateway.authoring.registry import Registry, load_registry
from gateway.calls.authority import Authorities
from gateway.calls.changes import ChangeHub
from gateway.calls.ports import Tracing
from gateway.calls.runner import CallRunner
from gateway.calls.task_creation import TaskCalls, TaskLimits
from gateway.errors import ConfigurationError, TaskStoreDown
from gateway.observability.audit import AuditLog
from gateway.observability.line_writer import Lines, LineWriter, closed_at_exit, stderr_writer
from gateway.observability.metrics import Telemetry
from gateway.observability.process_metrics import ProcessTelemetry
from gateway.process.preflight import load_tools, not_appendable
from gateway.protocol.challenges import Challenges
from gateway.runtime.compilation import is_compiled
from gateway.runtime.file_watcher import FileWatcher
from gateway.runtime.version import __version__
from gateway.sealing.envelope import Sealer
from gateway.sealing.keyring import KeyRing
from gateway.sealing.return_address import ID_BYTES
from gateway.settings.model import Settings
from gateway.tasks.ports import TaskStore
from gateway.tokens.request_state import FlowLimits, SealedCarrier
from gateway.web.hop import HopClient
from gateway.web.peers import Peers
from gateway.web.ports import Authenticator
from gateway.wires.assembly import Parts, Wires
from gateway.wires.legacy.pending_answers import WaitingCalls
from gateway.wires.ports import Carrier

if TYPE_CHECKING:  # a process without a task store never loads redis: it takes memory
    from gateway.storage import RedisTaskStore, RedisWorkQueue

log = logging.getLogger(__name__)

SEAL_KEYS_FILE = "GATEWAY_SEAL_KEYS_FILE"
_COLLECTORS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOL = "http/protobuf"
HOW_TO_ADD_TRACES = "run `pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http`"
SERVER_INFO = {"name": "sealed-gateway", "version": __version__}


@dataclass(slots=True)
class Services:
    """What a replica serves with; made once per process.

    Only the key ring changes while it serves, and what is made of it: see `take_ring`.
    """

    settings: Settings
    ring: KeyRing
    registry: Registry
    authenticator: Authenticator
    calls: CallRunner
    wires: Wires
    telemetry: Telemetry
    changes: ChangeHub
    waiting: WaitingCalls
    host: AsyncioHost
    callers: CallerLimits
    load: InFlight
    audit: AuditLog
    store: RedisTaskStore | None
    metadata: ResourceMetadata | None
    challenges: Challenges
    tracing: Tracing | None

    def take_ring(self, ring: KeyRing) -> None:
        """Seal and open with other keys from now on; a leg that runs goes on with those it began with."""
        if ring == self.ring:
            return
        self.ring = ring
        self.calls.replace_carrier(_carrier(self.settings, ring, self.telemetry))
        if self.store is not None:
            self.store.replace_sealer(Sealer(ring, os.urandom))
        self.wires.take_ring(ring)
        self.telemetry.seal_keys(_log_ring(ring))

    def key_files(self) -> Iterator[FileWatcher[KeyRing]]:
        """Give what watches the file of the seal keys, if they come from one."""
        yield from _key_files(self.settings, self.take_ring)


def build(settings: Settings) -> Services:
    """Build the services of one replica.

    Raises:
        ConfigurationError: a setting, a key or a tool module is wrong; the message says what to change.
    """
    settings.check_serving()
    assert settings.seal_keys is not None  # noqa: S101 - check_serving has seen to it
    assert settings.audience is not None  # noqa: S101 - the same
    ring = KeyRing.parse(settings.seal_keys.get_secret_value())
    registry = load_tools(settings)
    telemetry = Telemetry(registry.names)
    telemetry.build_info(__version__, compiled=is_compiled())
    changes = ChangeHub()
    host = AsyncioHost(settings.leg_seconds, settings.replica_id, on_change=changes.announce)
    load = _load(settings)
    telemetry.watch_load(load)
    telemetry.watch_threads(lambda: host.waiting_for_threads)
    telemetry.seal_keys(_key_ids(ring))
    metadata = ResourceMetadata.of(settings)
    if metadata is not None and not metadata.authorization_servers:
        log.warning("clients are not told where to get tokens; set GATEWAY_AUTHORIZATION_SERVERS")
    if metadata is not None and metadata.resource not in settings.token_audiences:
        log.info(
            "clients ask for tokens for the resource, but only those for GATEWAY_JWT_AUDIENCE count",
            extra={"resource": metadata.resource, "audience": settings.jwt_audience},
        )
    challenges = Challenges(None if metadata is None else metadata.url, settings.login_scopes)
    audit, audit_lost = _audit_log(settings)
    telemetry.audit_lines_lost = audit_lost
    tracing = make_tracing(settings.replica_id)
    store = make_task_store(settings, ring, telemetry)
    calls = CallRunner(
        carrier=_carrier(settings, ring, telemetry),
        host=host,
        telemetry=telemetry,
        audience=settings.audience,
        random_bytes=os.urandom,
        audit=audit,
        max_answers=settings.max_answers,
        tasks=None if store is None else TaskCalls(store, _task_limits(settings), os.urandom),
        strict_asks=settings.strict_asks,
        shedding=load,
        tracing=tracing,
    )
    authenticator = make_verifier(settings, telemetry, challenges)
    authorities = Authorities(registry, time.time, authenticator.has_left)
    authenticator.on_change(authorities.review)
    waiting = WaitingCalls(os.urandom(ID_BYTES), os.urandom, authorities)
    telemetry.watch_waiting(waiting)
    client = HopClient()
    parts = Parts(
        audience=settings.audience,
        server_info=SERVER_INFO,
        session_ttl_seconds=settings.session_ttl_seconds,
        answer_seconds=settings.state_ttl_seconds,
        replica_url=settings.replica_url or "",
        immediate_seconds=settings.immediate_wait_ms / 1000,
        callers_are_known=settings.auth != "none",
        hides_task_tools=settings.hide_task_tools,
        empty_requests=settings.shed_input_requests,
        max_json_depth=settings.max_json_depth,
        calls=calls,
        host=host,
        store=store,
        changes=changes,
        audit=audit,
        telemetry=telemetry,
        clock=time.time,
        random_bytes=os.urandom,
        waiting=waiting,
        post=client.post,
        carriers=_carriers(settings, store, client, telemetry),
        max_body_bytes=settings.max_body_bytes,
        authorities=authorities,
        tracing=tracing,
    )
    return Services(
        settings=settings,
        ring=ring,
        registry=registry,
        authenticator=authenticator,
        calls=calls,
        wires=Wires(parts, registry, ring),
        telemetry=telemetry,
        changes=changes,
        waiting=waiting,
        host=host,
        callers=CallerLimits(settings.rate_limit, settings.streams_per_principal, time.monotonic),
        load=load,
        audit=audit,
        store=store,
        metadata=metadata,
        challenges=challenges,
        tracing=tracing,
    )


def _carriers(
    settings: Settings, store: RedisTaskStore | None, client: HopClient, telemetry: Telemetry
) -> list[Carrier]:
    """Return what delivers messages to all other replicas: the store first, then the network."""
    carriers: list[Carrier] = []
    if store is not None:
        carriers.append(store.replica_channel())
    if settings.peers:
        carriers.append(Peers(settings.peers, settings.replica_url, client, telemetry, clock=time.monotonic))
    return carriers


def _load(settings: Settings) -> InFlight:
    target_seconds = settings.queue_target_ms / 1000
    fixed = settings.max_inflight
    limit = AdaptiveLimit(target_seconds) if fixed is None else FixedLimit(fixed)
    return InFlight(limit, target_seconds, time.monotonic)


def _task_limits(settings: Settings) -> TaskLimits:
    return TaskLimits(
        ttl_ms=int(settings.task_max_ttl_seconds * 1000),
        per_principal=settings.tasks_per_principal,
        bytes_per_principal=settings.task_bytes_per_principal,
        max_argument_bytes=settings.task_max_argument_bytes,
        leg_ms=int(settings.leg_seconds * 1000),
    )


@dataclass(slots=True)
class WorkerServices:
    """What a worker works with; made once per process.

    Only the key ring changes while it works.

    Attributes:
        settings: the settings.
        ring: the seal keys.
        registry: what the tool modules define.
        host: runs legs, without a time limit: a task is limited by its time to live.
        audit: notes each leg.
        audit_lost: reads how many lines of it were lost.
        tracing: traces legs, or None.
        queues: what `make_queue` has made.
    """

    settings: Settings
    ring: KeyRing
    registry: Registry
    host: AsyncioHost
    audit: AuditLog
    audit_lost: Callable[[], int]
    tracing: Tracing | None
    queues: list[RedisWorkQueue] = field(default_factory=list)

    def make_queue(self, telemetry: ProcessTelemetry) -> RedisWorkQueue:
        """Open a connection to the task store, for one event loop."""
        queue = make_work_queue(self.settings, self.ring, telemetry)
        self.queues.append(queue)
        return queue

    async def check_store(self, telemetry: ProcessTelemetry) -> None:
        """Check at the start that the store can be relied on; one that cannot be reached yet is told in the log.

        Raises:
            ConfigurationError: its version, its eviction policy or its number of partitions does not fit.
        """
        store = make_task_store(self.settings, self.ring, telemetry)
        assert store is not None  # noqa: S101 - `check_working` has seen to it
        try:
            await check(store)
        finally:
            await store.aclose()

    def key_files(self, tell: Callable[[Sequence[str]], None]) -> Iterator[FileWatcher[KeyRing]]:
        """Give what watches the file of the seal keys, if they come from one.

        Args:
            tell: told the ids of the keys in use, the sealing one first: now, and when they have changed.
        """

        def take(ring: KeyRing) -> None:
            if ring != self.ring:
                self.take_ring(ring)
                tell(_log_ring(ring))

        tell(_key_ids(self.ring))
        yield from _key_files(self.settings, take)

    def take_ring(self, ring: KeyRing) -> None:
        """Seal and open with other keys from now on."""
        self.ring = ring
        for queue in self.queues:
            queue.replace_sealer(Sealer(ring, os.urandom))


def build_worker(settings: Settings) -> WorkerServices:
    """Build the services of one worker.

    Raises:
        ConfigurationError: a setting, a key or a tool module is wrong; the message says what to change.
    """
    settings.check_working()
    assert settings.seal_keys is not None  # noqa: S101 - check_working has seen to it
    ring = KeyRing.parse(settings.seal_keys.get_secret_value())
    audit, audit_lost = _audit_log(settings)
    return WorkerServices(
        settings=settings,
        ring=ring,
        registry=load_registry(settings.tools),
        host=AsyncioHost(None, settings.replica_id),
        audit=audit,
        audit_lost=audit_lost,
        tracing=make_tracing(settings.replica_id),
    )


def make_task_store(settings: Settings, ring: KeyRing, telemetry: ProcessTelemetry) -> RedisTaskStore | None:
    """Return the task store that the settings name, or None if they name none. Connects to nothing yet."""
    if settings.redis_url is None or settings.audience is None:
        return None
    from gateway.storage import RedisTaskStore, connect  # noqa: PLC0415 - it loads redis, which takes memory

    return RedisTaskStore(
        connect(settings.redis_url.get_secret_value(), telemetry),
        Sealer(ring, os.urandom),
        settings.audience,
        partitions=settings.task_partitions,
        max_ttl_ms=settings.task_max_ttl_seconds * 1000,
        max_value_bytes=settings.task_max_result_bytes,
    )


def make_work_queue(settings: Settings, ring: KeyRing, telemetry: ProcessTelemetry) -> RedisWorkQueue:
    """Return the queue of the task store, for a worker named like this process. Connects to nothing yet."""
    assert settings.redis_url is not None  # noqa: S101 - check_working has seen to it
    assert settings.audience is not None  # noqa: S101 - the same
    from gateway.storage import RedisWorkQueue, connect  # noqa: PLC0415 - the same

    return RedisWorkQueue(
        connect(settings.redis_url.get_secret_value(), telemetry),
        Sealer(ring, os.urandom),
        settings.audience,
        settings.replica_id,
        partitions=settings.task_partitions,
        max_ttl_ms=settings.task_max_ttl_seconds * 1000,
        max_value_bytes=settings.task_max_result_bytes,
        lease_ms=round(settings.task_lease_seconds * 1000),
    )


async def check(store: TaskStore) -> None:
    """Check at the start that the task store can be relied on.

    A store that cannot be reached yet stops nothing: it is checked by its first use, and tasks are refused until then.

    Raises:
        ConfigurationError: its version, its eviction policy or its number of partitions does not fit.
    """
    try:
        await store.check()
    except TaskStoreDown:
        log.warning("task store cannot be reached yet; tasks wait for it")


def make_tracing(replica_id: str, environ: Mapping[str, str] = os.environ) -> Tracing | None:
    """Return what makes traces if the environment asks for them, or None. OpenTelemetry is imported only then.

    No trace is a reason not to serve: what is wrong with the environment goes to the log.
    """
    if not asks_for_traces(environ):
        return None
    problem = trace_problem(environ)
    if problem is None:
        try:
            from gateway.observability.tracing import Traces  # noqa: PLC0415 - it is an extra, and takes memory
        except ImportError:
            problem = f"OpenTelemetry is not installed; {HOW_TO_ADD_TRACES}"
    if problem is not None:
        log.warning("no traces", extra={"reason": problem})
        return None
    traces = Traces(replica_id)
    traces.serve_libraries()
    return traces


def asks_for_traces(environ: Mapping[str, str]) -> bool:
    """Tell whether OpenTelemetry's own variables ask for traces: by naming a collector, or an exporter."""
    exporter = _wanted(environ, "OTEL_TRACES_EXPORTER")
    if _wanted(environ, "OTEL_SDK_DISABLED") == "true" or exporter == "none":
        return False
    return any(environ.get(name) for name in ("OTEL_TRACES_EXPORTER", *_COLLECTORS))


def trace_problem(environ: Mapping[str, str]) -> str | None:
    """Return why the traces that are asked for cannot be sent, None if they can."""
    exporter = _wanted(environ, "OTEL_TRACES_EXPORTER")
    if exporter not in ("", "otlp"):
        return "OTEL_TRACES_EXPORTER must be otlp or none"
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if environ.get(name):
            return None if _wanted(environ, name) == _PROTOCOL else f"{name} must be {_PROTOCOL}"
    return None


def _wanted(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip().lower()


def _carrier(settings: Settings, ring: KeyRing, telemetry: Telemetry) -> SealedCarrier:
    limits = FlowLimits(settings.state_ttl_seconds, settings.flow_max_seconds, settings.state_max_bytes)
    return SealedCarrier(Sealer(ring, os.urandom), limits, telemetry, time.time, os.urandom)


def _key_ids(ring: KeyRing) -> list[str]:
    """Return the ids of the keys, the sealing one first."""
    return [key.key_id.hex() for key in ring.keys]


def _log_ring(ring: KeyRing) -> list[str]:
    """Note that the keys are others now, and return their ids."""
    key_ids = _key_ids(ring)
    log.info("seal keys replaced", extra={"key_ids": ", ".join(key_ids)})
    return key_ids


def _key_files(settings: Settings, take: Callable[[KeyRing], None]) -> Iterator[FileWatcher[KeyRing]]:
    path = settings.file_of("seal_keys")
    if path is not None:
        yield FileWatcher(SEAL_KEYS_FILE, path, _parse_ring, take)


def _parse_ring(content: bytes) -> KeyRing:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{SEAL_KEYS_FILE} names a file that is not UTF-8 text") from None
    return KeyRing.parse(text, setting=SEAL_KEYS_FILE)


def _audit_log(settings: Settings) -> tuple[AuditLog, Callable[[], int]]:
    """Return the audit log that the settings ask for, and what reads how many of its lines were lost.

    Raises:
        ConfigurationError: its file cannot be written.
    """
    as_json = settings.log_format == "json"
    if settings.audit_log == "off":
        return AuditLog(len, settings.replica_id, time.time, as_json=as_json), lambda: 0
    writer = stderr_writer() if settings.audit_log == "stderr" else _file_writer(settings.audit_log)
    writer.keeps = settings.audit_log_required
    lines = Lines(writer)
    is_writable = (lambda: lines.is_writable) if settings.audit_log_required else None
    audit = AuditLog(lines.write, settings.replica_id, time.time, as_json=as_json, is_writable=is_writable)
    return audit, lambda: lines.lost


def _file_writer(path: str) -> LineWriter:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
    except OSError as error:
        raise not_appendable(path, error.errno or 0) from None
    return closed_at_exit(LineWriter(descriptor, name="GATEWAY_AUDIT_LOG"))
