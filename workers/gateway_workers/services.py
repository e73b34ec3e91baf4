"""What a worker works with, made of its settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.authoring.asyncio_host import AsyncioHost
from gateway.authoring.registry import Registry, load_registry
from gateway.calls.ports import Tracing
from gateway.observability.audit import AuditLog
from gateway.observability.process_metrics import ProcessTelemetry
from gateway.process.services import (
    check,
    ids_of_keys,
    log_ring,
    make_audit_log,
    make_task_store,
    make_tracing,
    make_work_queue,
    watch_key_file,
)
from gateway.runtime.file_watcher import FileWatcher
from gateway.sealing.envelope import Sealer
from gateway.sealing.keyring import KeyRing
from gateway.settings.model import Settings

if TYPE_CHECKING:
    from gateway.storage import RedisWorkQueue


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
                tell(log_ring(ring))

        tell(ids_of_keys(self.ring))
        yield from watch_key_file(self.settings, take)

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
    audit, audit_lost = make_audit_log(settings)
    return WorkerServices(
        settings=settings,
        ring=ring,
        registry=load_registry(settings.tools),
        host=AsyncioHost(None, settings.replica_id),
        audit=audit,
        audit_lost=audit_lost,
        tracing=make_tracing(settings.replica_id),
    )
