"""Builds the services of a worker from its settings."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.authoring.asyncio_host import AsyncioHost
from gateway.ensured import ensured
from gateway.observability.process_metrics import ProcessTelemetry
from gateway.process.services import (
    OpenAuditLog,
    check,
    make_audit_log,
    make_key_holder,
    make_task_store,
    make_tracing,
    make_upstreams,
    make_work_queue,
    redis_url_of,
)
from gateway.registry.registry import Registry, load_registry
from gateway.runtime.replaceable import Replaceable
from gateway.sealing.hop import BOOT_BYTES, Process, Role
from gateway.settings.model import Settings
from gateway.tokens.key_holder import KeyHolder
from gateway.tokens.stream_sender import StreamSender

if TYPE_CHECKING:
    from gateway.observability.tracing import Traces
    from gateway.process.upstreams import ServedUpstreams
    from gateway.storage import RedisWorkQueue
    from gateway.upstreams.held.holder import Holder

TAKEOVER_SECONDS: Final = 30.0
"""How long after its lease has expired another worker may take to run a task."""


@dataclass(slots=True)
class WorkerServices:
    """The services of a worker, built once per process.

    While it works, only the keys in `keys` and the `redis_url` change.

    `host` runs legs without a time limit, since a task is limited by its time to live. `tracing` is None if tracing is
    off.
    """

    settings: Settings
    keys: KeyHolder
    registry: Registry
    host: AsyncioHost
    audit: OpenAuditLog
    tracing: Traces | None
    redis_url: Replaceable[str] | None

    def make_queue(self, telemetry: ProcessTelemetry) -> RedisWorkQueue:
        """Open a connection to the task store, for one event loop."""
        return make_work_queue(self.settings, self.redis_url, self.keys, telemetry)

    async def check_store(self, telemetry: ProcessTelemetry) -> None:
        """Check at the start that the store is suitable; if it cannot be reached yet, only log that.

        Raises:
            ConfigurationError: its version, eviction policy or number of partitions does not fit.
        """
        store = ensured(
            make_task_store(self.settings, self.redis_url, self.keys, telemetry), "`check_working` has checked it"
        )
        try:
            await check(store)
        finally:
            await store.aclose()

    def make_upstreams(self, telemetry: ProcessTelemetry) -> ServedUpstreams | None:
        """Return the upstreams whose tools this worker runs; see `gateway.process.services.make_upstreams`."""
        return make_upstreams(self.settings, telemetry, self.tracing, hold=lambda: self._hold(telemetry))

    def _hold(self, telemetry: ProcessTelemetry) -> Holder:
        """Return what sends requests to the holders, if there are any. No call is held in a worker."""
        from gateway.upstreams.held.holder import Holder  # noqa: PLC0415 - most processes have no upstreams
        from gateway.upstreams.held.holders import Holders  # noqa: PLC0415 - the same

        if not self.settings.holders:
            return Holder()
        sender = StreamSender(self.keys, Process(Role.WORKER, os.urandom(BOOT_BYTES)), telemetry)
        alone = self.settings.task_lease_seconds + TAKEOVER_SECONDS
        return Holder(sender=sender, holders=Holders(self.settings.holders, sender), unattended_seconds=alone)


def build_worker(settings: Settings) -> WorkerServices:
    """Build the services of one worker.

    Raises:
        ConfigurationError: a setting, a key or a tool module is wrong. The message says what to change.
    """
    settings.check_working()
    keys = make_key_holder(settings)
    return WorkerServices(
        settings=settings,
        keys=keys,
        registry=load_registry(settings.tools),
        host=AsyncioHost(None, settings.replica_id),
        audit=make_audit_log(settings),
        tracing=make_tracing(settings.replica_id),
        redis_url=redis_url_of(settings),
    )
