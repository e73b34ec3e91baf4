"""The parts that replicas and workers share: the task store, the audit log, traces, and key files."""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.ensured import ensured
from gateway.errors import ConfigurationError, TaskStoreDown
from gateway.observability.audit import AuditLog
from gateway.observability.destinations import FollowedFile
from gateway.observability.line_writer import Lines, LineWriter, close_before_exit, closed_at_exit, stderr_writer
from gateway.observability.process_metrics import ProcessTelemetry
from gateway.process.preflight import not_appendable
from gateway.runtime.file_watcher import FileWatcher
from gateway.runtime.replaceable import Replaceable
from gateway.sealing.keyring import KeyRing
from gateway.settings.model import Settings
from gateway.tokens.key_holder import KeyHolder

if TYPE_CHECKING:
    from gateway.observability.tracing import Traces
    from gateway.process.upstreams import ServedUpstreams
    from gateway.storage import RedisTaskStore, RedisWorkQueue
    from gateway.upstreams.held.holder import Holder

log = logging.getLogger(__name__)

SEAL_KEYS_FILE = "GATEWAY_SEAL_KEYS_FILE"
REDIS_URL_FILE: Final = "GATEWAY_REDIS_URL_FILE"
AUDIT_LOG: Final = "GATEWAY_AUDIT_LOG"
_COLLECTORS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOL = "http/protobuf"
WHY_SET = "the checks of both kinds of process have seen it"
HOW_TO_ADD_TRACES = "run `pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http`"


def make_key_holder(settings: Settings) -> KeyHolder:
    """Return a holder for the seal keys in the settings; raise `ConfigurationError` if a key is wrong."""
    ring = KeyRing.parse(ensured(settings.seal_keys, WHY_SET).get_secret_value())
    return KeyHolder(ring, ensured(settings.audience, WHY_SET), clock=time.time, random_bytes=os.urandom)


def redis_url_of(settings: Settings) -> Replaceable[str] | None:
    """Return the URL of the task store that the settings name, for `watch_redis_url`; None if they name none."""
    return None if settings.redis_url is None else Replaceable(settings.redis_url.get_secret_value())


def make_task_store(
    settings: Settings, url: Replaceable[str] | None, keys: KeyHolder, telemetry: ProcessTelemetry
) -> RedisTaskStore | None:
    """Return the task store at a URL; None if there is none. It does not connect yet."""
    if url is None:
        return None
    from gateway.storage import RedisTaskStore, connect  # noqa: PLC0415 - it loads redis, which takes memory

    return RedisTaskStore(
        connect(url, telemetry),
        keys,
        partitions=settings.task_partitions,
        max_ttl_ms=settings.task_max_ttl_seconds * 1000,
        max_value_bytes=settings.task_max_result_bytes,
    )


def make_work_queue(
    settings: Settings, url: Replaceable[str] | None, keys: KeyHolder, telemetry: ProcessTelemetry
) -> RedisWorkQueue:
    """Return the task store's queue for a worker with the name of this process. It does not connect yet."""
    from gateway.storage import RedisWorkQueue, connect  # noqa: PLC0415 - the same

    return RedisWorkQueue(
        connect(ensured(url, WHY_SET), telemetry),
        keys,
        settings.replica_id,
        partitions=settings.task_partitions,
        max_ttl_ms=settings.task_max_ttl_seconds * 1000,
        max_value_bytes=settings.task_max_result_bytes,
        lease_ms=round(settings.task_lease_seconds * 1000),
    )


async def check(store: RedisTaskStore) -> None:
    """Check at the start that the task store is suitable.

    An unreachable store does not prevent the start. It is checked when it is first used, and tasks are refused until
    then.

    Raises:
        ConfigurationError: its version, eviction policy or number of partitions does not fit.
    """
    try:
        await store.check()
    except TaskStoreDown:
        log.warning("task store cannot be reached yet; tasks have to wait for it")


def make_tracing(replica_id: str, environ: Mapping[str, str] = os.environ) -> Traces | None:
    """Return the maker of traces if the environment asks for traces, otherwise None. Only then import OpenTelemetry.

    Traces never prevent the start: if their configuration is wrong, the log says so.
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
    return Traces(replica_id)


def make_upstreams(
    settings: Settings,
    telemetry: ProcessTelemetry,
    tracing: Traces | None,
    announce: Callable[[str], None] | None = None,
    hold: Callable[[], Holder] | None = None,
) -> ServedUpstreams | None:
    """Return the upstreams that the settings name; None if they name none.

    `hold` makes the holder of their calls, see `ServedUpstreams`.

    Raises:
        ConfigurationError: the file that names them is wrong.
    """
    if settings.upstreams is None:
        return None
    from gateway.process.upstreams import ServedUpstreams  # noqa: PLC0415 - most processes have no upstreams

    return ServedUpstreams(settings, telemetry.registry, announce, tracing, None if hold is None else hold())


def asks_for_traces(environ: Mapping[str, str]) -> bool:
    """Return whether OpenTelemetry's own variables ask for traces, by naming a collector or an exporter."""
    exporter = _wanted(environ, "OTEL_TRACES_EXPORTER")
    if _wanted(environ, "OTEL_SDK_DISABLED") == "true" or exporter == "none":
        return False
    return any(environ.get(name) for name in ("OTEL_TRACES_EXPORTER", *_COLLECTORS))


def trace_problem(environ: Mapping[str, str]) -> str | None:
    """Return why the requested traces cannot be sent; None if they can."""
    exporter = _wanted(environ, "OTEL_TRACES_EXPORTER")
    if exporter not in ("", "otlp"):
        return "OTEL_TRACES_EXPORTER must be otlp or none"
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if environ.get(name):
            return None if _wanted(environ, name) == _PROTOCOL else f"{name} must be {_PROTOCOL}"
    return None


def _wanted(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip().lower()


def watch_key_file(settings: Settings, keys: KeyHolder) -> Iterator[FileWatcher[KeyRing]]:
    """Yield a watcher that replaces the seal keys when their file changes, if they come from a file."""
    path = settings.file_of("seal_keys")
    if path is not None:
        yield FileWatcher(SEAL_KEYS_FILE, path, _parse_ring, keys.replace)


def _parse_ring(content: bytes) -> KeyRing:
    return KeyRing.parse(_text(content, SEAL_KEYS_FILE), setting=SEAL_KEYS_FILE)


def watch_redis_url(settings: Settings, url: Replaceable[str] | None) -> Iterator[FileWatcher[str]]:
    """Yield a watcher that replaces the URL of the task store when its file changes, if it comes from a file."""
    path = settings.file_of("redis_url")
    if path is None or url is None:
        return
    from gateway.storage import check_url  # noqa: PLC0415 - it loads redis, which takes memory

    def parse(content: bytes) -> str:
        text = _text(content, REDIS_URL_FILE).strip()
        check_url(text)
        return text

    def take(newer: str) -> None:
        if newer != url.value:
            url.value = newer
            log.info("task store has another URL", extra={"setting": REDIS_URL_FILE})

    yield FileWatcher(
        REDIS_URL_FILE, path, parse, take, refusal="file of the Redis URL rejected; the current one is used"
    )


def _text(content: bytes, setting: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{setting} names a file that is not UTF-8 text") from None


REFUSED_SHARE: Final = 0.4
"""How full refused requests may make the queue of audit lines: nothing limits them while the log cannot be written."""


def _nothing() -> None:
    """Do nothing: standard error stays open."""


@dataclass(frozen=True, slots=True)
class OpenAuditLog:
    """An audit log and its destination.

    `close` writes the queued lines and closes the file; later lines are lost. It also happens when the process ends.
    `look` makes the writer check at once whether its file was moved. `flush` waits until the queued lines are written
    or lost, and returns whether that was soon.
    """

    log: AuditLog
    lost: Callable[[], int] = int
    close: Callable[[], None] = _nothing
    look: Callable[[], None] = _nothing
    flush: Callable[[], bool] = bool

    async def reopen(self) -> None:
        """Open the file again if it was moved."""
        self.look()


def make_audit_log(settings: Settings) -> OpenAuditLog:
    """Open the audit log that the settings describe; raise `ConfigurationError` if its file cannot be written."""
    as_json = settings.log_format == "json"
    if settings.audit_log == "off":
        return OpenAuditLog(AuditLog(len, settings.replica_id, time.time, as_json=as_json), flush=lambda: True)
    to_stderr = settings.audit_log == "stderr"
    writer = stderr_writer() if to_stderr else _file_writer(settings.audit_log)
    writer.keeps = settings.audit_log_required
    lines = Lines(writer)
    is_writable = (lambda: lines.is_writable) if settings.audit_log_required else None
    refused = Lines(writer, share=REFUSED_SHARE)
    audit = AuditLog(
        lines.write,
        settings.replica_id,
        time.time,
        as_json=as_json,
        is_writable=is_writable,
        write_refused=refused.write,
    )
    close = _nothing if to_stderr else functools.partial(close_before_exit, writer)
    return OpenAuditLog(audit, lambda: lines.lost + refused.lost, close, writer.look, writer.flush)


def _file_writer(path: str) -> LineWriter:
    try:
        file = FollowedFile(path, AUDIT_LOG)
    except OSError as error:
        raise not_appendable(path, error.errno or 0) from None
    return closed_at_exit(LineWriter(file, name=AUDIT_LOG))
