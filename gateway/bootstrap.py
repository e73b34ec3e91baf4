"""Builds what a process is made of from its settings."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from gateway import __version__
from gateway.audit import AuditLog, Write, to_file_descriptor
from gateway.auth import make_verifier
from gateway.authoring.host import AsyncioHost
from gateway.authoring.registry import Registry, load_registry
from gateway.calls import CallRunner
from gateway.carrier import FlowLimits, SealedCarrier
from gateway.catalogue import Catalogue
from gateway.dispatch import Dispatcher
from gateway.errors import ConfigurationError, TaskStoreDown
from gateway.ports import Authenticator, TaskStore, WorkQueue
from gateway.protocol.released.results import ResultWriter
from gateway.sealing.cursor import CursorMaker
from gateway.sealing.envelope import Sealer
from gateway.sealing.keyring import KeyRing
from gateway.settings import Settings
from gateway.storage import RedisTaskStore, RedisWorkQueue, connect
from gateway.subscriptions import ChangeHub
from gateway.task_calls import TaskCalls, TaskLimits
from gateway.task_methods import TaskMethods
from gateway.telemetry import Telemetry

log = logging.getLogger(__name__)

SERVER_INFO = {"name": "sealed-gateway", "version": __version__}


@dataclass(frozen=True, slots=True)
class Services:
    """What a replica serves with; made once per process."""

    settings: Settings
    registry: Registry
    results: ResultWriter
    cursors: CursorMaker
    authenticator: Authenticator
    dispatcher: Dispatcher
    telemetry: Telemetry
    changes: ChangeHub
    host: AsyncioHost
    audit: AuditLog
    store: TaskStore | None

    def catalogue_of(self, registry: Registry) -> Catalogue:
        """Return what this process tells of a registry."""
        return Catalogue(registry, self.results, self.cursors, tasks=self.store is not None)


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
    changes = ChangeHub()
    host = AsyncioHost(settings.leg_seconds, settings.replica_id, on_change=changes.announce)
    results = ResultWriter(SERVER_INFO)
    cursors = CursorMaker(ring)
    limits = FlowLimits(settings.state_ttl_seconds, settings.flow_max_seconds, settings.state_max_bytes)
    audit = _audit_log(settings)
    store = make_task_store(settings, ring)
    calls = CallRunner(
        carrier=SealedCarrier(Sealer(ring, os.urandom), limits, telemetry, time.time, os.urandom),
        host=host,
        telemetry=telemetry,
        results=results,
        audience=settings.audience,
        random_bytes=os.urandom,
        audit=audit,
        tasks=None if store is None else TaskCalls(store, settings.audience, _task_limits(settings), os.urandom),
        strict_asks=settings.strict_asks,
    )
    dispatcher = Dispatcher(
        catalogue=Catalogue(registry, results, cursors, tasks=store is not None),
        calls=calls,
        host=host,
        results=results,
        changes=changes,
        audit=audit,
        tasks=None if store is None else TaskMethods(store, results, settings.audience),
    )
    return Services(
        settings=settings,
        registry=registry,
        results=results,
        cursors=cursors,
        authenticator=make_verifier(settings),
        dispatcher=dispatcher,
        telemetry=telemetry,
        changes=changes,
        host=host,
        audit=audit,
        store=store,
    )


def _task_limits(settings: Settings) -> TaskLimits:
    return TaskLimits(ttl_ms=int(settings.task_max_ttl_seconds * 1000), per_principal=settings.tasks_per_principal)


@dataclass(frozen=True, slots=True)
class WorkerServices:
    """What a worker works with; made once per process.

    Attributes:
        settings: the settings.
        registry: what the tool modules define.
        host: runs legs, without a time limit: a task is limited by its time to live.
        audit: notes each leg.
        make_queue: opens a connection to the task store, for one event loop.
        check_store: checks that the store can be relied on; one that cannot be reached yet is told in the log.
    """

    settings: Settings
    registry: Registry
    host: AsyncioHost
    audit: AuditLog
    make_queue: Callable[[], WorkQueue]
    check_store: Callable[[], Awaitable[None]]


def build_worker(settings: Settings) -> WorkerServices:
    """Build the services of one worker.

    Raises:
        ConfigurationError: a setting, a key or a tool module is wrong; the message says what to change.
    """
    settings.check_working()
    assert settings.seal_keys is not None  # noqa: S101 - check_working has seen to it
    ring = KeyRing.parse(settings.seal_keys.get_secret_value())
    return WorkerServices(
        settings=settings,
        registry=load_registry(settings.tools),
        host=AsyncioHost(None, settings.replica_id),
        audit=_audit_log(settings),
        make_queue=partial(make_work_queue, settings, ring),
        check_store=partial(check_store, settings, ring),
    )


def make_task_store(settings: Settings, ring: KeyRing) -> RedisTaskStore | None:
    """Return the task store that the settings name, or None if they name none. Connects to nothing yet."""
    if settings.redis_url is None or settings.audience is None:
        return None
    return RedisTaskStore(
        connect(settings.redis_url.get_secret_value()),
        Sealer(ring, os.urandom),
        settings.audience,
        partitions=settings.task_partitions,
        max_ttl_ms=settings.task_max_ttl_seconds * 1000,
    )


def make_work_queue(settings: Settings, ring: KeyRing) -> WorkQueue:
    """Return the queue of the task store, for a worker named like this process. Connects to nothing yet."""
    assert settings.redis_url is not None  # noqa: S101 - check_working has seen to it
    assert settings.audience is not None  # noqa: S101 - the same
    return RedisWorkQueue(
        connect(settings.redis_url.get_secret_value()),
        Sealer(ring, os.urandom),
        settings.audience,
        settings.replica_id,
        partitions=settings.task_partitions,
        max_ttl_ms=settings.task_max_ttl_seconds * 1000,
        lease_ms=round(settings.task_lease_seconds * 1000),
    )


async def check_store(settings: Settings, ring: KeyRing) -> None:
    """Check at the start that the task store can be relied on, if there is one.

    A store that cannot be reached yet stops nothing: it is checked by its first use, and tasks are refused until then.

    Raises:
        ConfigurationError: its version, its eviction policy or its number of partitions does not fit.
    """
    store = make_task_store(settings, ring)
    if store is None:
        return
    try:
        await check(store)
    finally:
        await store.aclose()


async def check(store: TaskStore) -> None:
    """Check a task store, see `check_store`.

    Raises:
        ConfigurationError: it does not fit.
    """
    try:
        await store.check()
    except TaskStoreDown:
        log.warning("task store cannot be reached yet; tasks wait for it")


def load_tools(settings: Settings) -> Registry:
    """Load what the settings name.

    Raises:
        ConfigurationError: a module is wrong, or one of its tools needs a task store and the settings name none.
    """
    registry = load_registry(settings.tools)
    if settings.redis_url is None:
        for tool in registry.tools.values():
            if tool.needs_store:
                why = "may be used once only" if tool.single_use else "runs as a task only"
                raise ConfigurationError(
                    f"the tool {tool.name!r} {why}, which needs a task store; set GATEWAY_REDIS_URL"
                )
    return registry


def _audit_log(settings: Settings) -> AuditLog:
    """Return the audit log that the settings ask for.

    Raises:
        ConfigurationError: its file cannot be written.
    """
    write: Write
    if settings.audit_log == "off":
        write = len
    elif settings.audit_log == "stderr":
        write = to_file_descriptor(sys.stderr.fileno())
    else:
        try:
            descriptor = os.open(settings.audit_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
        except OSError as error:
            raise ConfigurationError(
                f"GATEWAY_AUDIT_LOG is {settings.audit_log!r}, which cannot be written: {error.strerror}"
            ) from None
        write = to_file_descriptor(descriptor)
    return AuditLog(write, settings.replica_id, time.time, as_json=settings.log_format == "json")
