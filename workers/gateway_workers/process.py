"""The process around a worker: its event loop, signals and exit code."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Final

import uvloop

from gateway.authoring.lifespans import open_at_start
from gateway.engine.leg_policy import LegPolicy
from gateway.observability.metrics_server import start_metrics_server
from gateway.observability.task_totals import TaskTotals
from gateway.process.exit import Ending, exit_now
from gateway.process.reload import Reloader
from gateway.process.services import watch_key_file, watch_redis_url
from gateway.process.signals import End, Hangups
from gateway.registry.registry import Registry, load_registry
from gateway.runtime.compilation import is_compiled
from gateway.runtime.reread import rereading
from gateway.runtime.version import __version__
from gateway.settings.model import Settings
from gateway.storage import RedisWorkQueue
from gateway_workers.heartbeats import Heart
from gateway_workers.metrics import WorkerTelemetry
from gateway_workers.services import WorkerServices, build_worker
from gateway_workers.worker import LAST_WRITES_SECONDS, Work, Worker

log = logging.getLogger(__name__)

REPEATED_SIGNAL_SECONDS: Final = 0.5
"""Supervisors often signal a process and its group. Signals within this time count as one."""

GRACE_SECONDS: Final = 3 * LAST_WRITES_SECONDS
"""How long a worker may take after its drain time to hand back the tasks that it cut off."""


def run(settings: Settings, *, reload: bool = False) -> int:
    """Work until asked to stop; return the exit code: 0 clean, 1 if tasks had to be cut off.

    The worker serves metrics only if the settings name a port explicitly.

    Raises:
        ConfigurationError: the process cannot work as configured. The message says what to change.
    """
    with Hangups().caught() as hangups:
        return _run(settings, hangups, reload=reload)


def _run(settings: Settings, hangups: Hangups, *, reload: bool) -> int:
    ending = Ending()
    services = build_worker(settings)
    if services.tracing is not None:
        services.tracing.serve_libraries()
    telemetry = WorkerTelemetry(services.registry.names, services.settings.worker_concurrency)
    telemetry.build_info(__version__, compiled=is_compiled())
    telemetry.audit_lines_lost = services.audit.lost
    metrics = None
    if settings.metrics_port is not None and "metrics_port" in settings.model_fields_set:
        metrics = start_metrics_server(telemetry.registry, settings.metrics_host, settings.metrics_port)
        log.info("metrics", extra={"url": metrics.url})
    # The objects made so far live as long as the process, so the garbage collector need not examine them again.
    gc.collect()
    gc.freeze()
    try:
        clean = uvloop.run(_work(services, telemetry, ending, hangups, counts_tasks=metrics is not None, reload=reload))
    finally:
        if metrics is not None:
            metrics.stop()
    return ending.stopped(0 if clean else 1, services.host.busy_threads)


def _make_work(
    services: WorkerServices, telemetry: WorkerTelemetry, queue: RedisWorkQueue, registry: Callable[[], Registry]
) -> Work:
    return Work(
        tools=registry().tools,
        find=lambda name: registry().find_tool(name),
        queue=queue,
        host=services.host,
        telemetry=telemetry,
        audit=services.audit.log,
        policy=LegPolicy.of(services.settings),
        tracing=services.tracing,
    )


async def _open(
    services: WorkerServices, telemetry: WorkerTelemetry, queue: RedisWorkQueue, stack: contextlib.AsyncExitStack
) -> None:
    """Open what tools need, and close everything with the stack, the audit log last."""
    stack.callback(services.audit.close)
    stack.enter_context(rereading(services.audit.reopen))
    if services.tracing is not None:
        stack.push_async_callback(services.tracing.close)
    stack.callback(services.host.close)
    stack.push_async_callback(queue.aclose)
    await open_at_start(services.registry.lifespans, stack)
    services.keys.show(telemetry.seal_keys)
    for watcher in watch_key_file(services.settings, services.keys):
        await stack.enter_async_context(watcher.running())
    for url_watcher in watch_redis_url(services.settings, services.redis_url):
        await stack.enter_async_context(url_watcher.running())


async def _work(
    services: WorkerServices,
    telemetry: WorkerTelemetry,
    ending: Ending,
    hangups: Hangups,
    *,
    counts_tasks: bool,
    reload: bool,
) -> bool:
    settings = services.settings
    await services.check_store(telemetry)
    loop = asyncio.get_running_loop()
    queue = services.make_queue(telemetry)
    upstreams = services.make_upstreams(telemetry)
    registry = services.registry if upstreams is None else services.registry.arranged(upstreams.parts)
    work = _make_work(services, telemetry, queue, lambda: registry)
    heart = Heart(partial(services.make_queue, telemetry), settings.task_lease_seconds, loop)
    worker = Worker(work, heart, settings.worker_concurrency)

    def serve(newer: Registry) -> Registry:
        nonlocal registry
        registry = newer
        telemetry.serve(registry.names)
        worker.serve(registry.tools)
        return registry

    async with contextlib.AsyncExitStack() as stack:
        await _open(services, telemetry, queue, stack)
        if counts_tasks:
            await stack.enter_async_context(TaskTotals(queue.totals).running(telemetry.registry))
        if reload:
            reloader = Reloader(
                settings.tools,
                lambda: load_registry(settings.tools),
                lambda local: serve(local.arranged(registry.parts)),
            )
            await stack.enter_async_context(reloader.running())
        if upstreams is not None:
            telemetry.serve(registry.names)
            upstreams.serve_with(lambda parts: serve(registry.arranged(parts)))
            await stack.enter_async_context(upstreams.running())
        heart.start(worker.end)
        stack.push_async_callback(heart.stop)
        with _signals(worker, loop, settings.drain_seconds, ending) as end, hangups.obeyed(end):
            hangups.ready()
            log.info("working", extra={"worker": settings.replica_id, "concurrency": settings.worker_concurrency})
            return await worker.run(settings.drain_seconds)


@contextlib.contextmanager
def _signals(worker: Worker, loop: asyncio.AbstractEventLoop, drain_seconds: float, ending: Ending) -> Iterator[End]:
    """Stop gracefully at the first SIGTERM or SIGINT and at once at the second, even if the event loop is blocked.

    Yield the handler of both.
    """
    first_at: float | None = None

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal first_at
        name = signal.Signals(number).name
        if first_at is None:
            first_at = time.monotonic()
            ending.signalled()
            _exit_later(drain_seconds + GRACE_SECONDS, ending)
            _schedule(loop, worker.leave)
            log.info("leaving", extra={"signal": name})
        elif time.monotonic() - first_at > REPEATED_SIGNAL_SECONDS:
            _exit_later(GRACE_SECONDS, ending)
            _schedule(loop, worker.hurry)
            log.warning("leaving at once", extra={"signal": name})

    originals = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield handle
    finally:
        for number, handler in originals.items():
            signal.signal(number, handler)


def _schedule(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    loop.call_soon_threadsafe(callback)


def _exit_later(seconds: float, ending: Ending) -> None:
    """End the process after some seconds, even if a tool blocks its event loop."""

    def give_up() -> None:
        log.error("the worker did not stop in time; its leases will expire")
        exit_now(ending.stopped(1))

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
