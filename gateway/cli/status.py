"""`gateway status`: what the processes of a fleet do, from their metrics, and how many tasks there are."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from gateway.auth.fetch import FetchFailed, fetch
from gateway.cli.failures import CommandFailed
from gateway.cli.tables import duration, plain, table
from gateway.cli.tasks import as_map, open_store
from gateway.settings.model import Settings
from gateway.storage.all_tasks import UNFINISHED, AllTasks, TaskFacts

PATH: Final = "/metrics"
_LOOPBACK_OF: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - it is not bound
_SECONDS: Final = 5.0
_MAX_BYTES: Final = 16 << 20
_COUNTED: Final = {
    "gateway_legs_in_flight": "running",
    "gateway_tasks_running": "running",
    "gateway_draining": "draining",
    "gateway_worker_concurrency": "places",
    "gateway_calls_waiting": "held",
    "gateway_legs_total": "legs",
    "gateway_task_legs_total": "legs",
    "gateway_requests_refused_total": "refused",
}
"""The metrics that are shown, summed over their labels, by what they are called here."""


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """The state of a process.

    Attributes:
        process: the host and port of its metrics.
        problem: why its metrics cannot be read, "" if they can.
        running: legs, or tasks of a worker.
        places: how many tasks a worker may run at once.
        held: calls of a replica that wait for an answer of their clients.
        draining: 1 of a replica that shuts down.
        legs, refused: since the start of the process.
    """

    process: str
    kind: str = ""
    version: str = ""
    up_seconds: float = 0.0
    running: int = 0
    places: int | None = None
    held: int | None = None
    draining: int = 0
    legs: int = 0
    refused: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """The tasks of a deployment: how many there are in each phase, and the oldest unfinished one."""

    server: str
    phases: Mapping[str, int]
    oldest: TaskFacts | None


def own_metrics(settings: Settings) -> list[str]:
    """Return the URL of the metrics of a process with these settings on this machine, in a list; [] if it has none."""
    if not settings.metrics_port:
        return []
    host = _LOOPBACK_OF.get(settings.metrics_host, settings.metrics_host)
    return [f"http://{f'[{host}]' if ':' in host else host}:{settings.metrics_port}"]


async def show(settings: Settings, urls: Sequence[str], *, as_json: bool) -> tuple[str, bool]:
    """Return the status of the processes at these URLs and of the tasks, and whether everything could be read.

    A name with several addresses stands for a process at each of them. Without a task store, only processes are shown.
    """
    reading = asyncio.create_task(_store_status(settings))
    places = await asyncio.gather(*(_places(url) for url in urls))
    processes = await asyncio.gather(*(_process_status(place) for each in places for place in each))
    store, problem = await reading
    well = not problem and not any(process.problem for process in processes)
    text = _as_json(processes, store, problem) if as_json else "\n".join(_as_text(processes, store, problem))
    return text, well


async def _store_status(settings: Settings) -> tuple[StoreStatus | None, str]:
    """Return the status of the store, None if there is none; and why it cannot be read, "" if it can."""
    if settings.redis_url is None:
        return None, ""
    try:
        async with open_store(settings) as store:
            phases = await store.tasks.totals()
            counts = {phase.value: count for phase, count in phases.items()}
            return StoreStatus(store.server, counts, await _oldest(store.tasks)), ""
    except CommandFailed as problem:
        return None, str(problem)


async def _oldest(tasks: AllTasks) -> TaskFacts | None:
    oldest = None
    async for task in tasks.walk(UNFINISHED):
        if oldest is None or task.created_ms < oldest.created_ms:
            oldest = task
    return oldest


async def _places(url: str) -> list[tuple[str, str]]:
    """Return the processes that a URL stands for: what each is called, and the URL of its metrics."""
    parts = urlsplit(url if "//" in url else f"//{url}", "http")
    path = parts.path if parts.path.strip("/") else PATH
    given = parts._replace(path=path)
    try:
        port, host = parts.port, parts.hostname or ""
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError, UnicodeError):
        return [(parts.netloc, given.geturl())]  # reading it says what is wrong
    # A process with addresses of both families would be counted twice.
    family = min(each[0] for each in found)  # that of IPv4 comes first
    addresses = list(dict.fromkeys(str(address[0]) for each, *_, address in found if each == family))
    if len(addresses) == 1 or parts.scheme != "http":  # a certificate is for the name
        return [(parts.netloc, given.geturl())]
    return [_place(given, address, port) for address in addresses]


def _place(parts: SplitResult, address: str, port: int | None) -> tuple[str, str]:
    host = f"[{address}]" if ipaddress.ip_address(address.partition("%")[0]).version == 6 else address
    netloc = host if port is None else f"{host}:{port}"
    return netloc, parts._replace(netloc=netloc).geturl()


async def _process_status(place: tuple[str, str]) -> ProcessStatus:
    process, url = place
    try:
        fetched = await fetch(url, seconds=_SECONDS, max_bytes=_MAX_BYTES)
        families = text_string_to_metric_families(fetched.body.decode())
        return _read(process, [sample for family in families for sample in family.samples])
    except FetchFailed as failure:
        return ProcessStatus(process, problem=str(failure))
    except (ValueError, OverflowError):
        return ProcessStatus(process, problem="the answer is not metrics")


def _read(process: str, samples: Iterable[Sample]) -> ProcessStatus:
    counts: dict[str, Any] = {}
    version, started = "", int(time.time())
    for sample in samples:
        if sample.name in _COUNTED:
            name = _COUNTED[sample.name]
            counts[name] = counts.get(name, 0) + round(sample.value)
        elif sample.name == "gateway_build_info":
            version = sample.labels.get("version", "")
        elif sample.name == "process_start_time_seconds":
            started = int(sample.value)
    if not version or "running" not in counts:
        return ProcessStatus(process, problem="these are not the metrics of a replica or a worker")
    kind = "worker" if "places" in counts else "replica"
    return ProcessStatus(process, kind, version, up_seconds=max(0.0, round(time.time() - started, 1)), **counts)


def _as_json(processes: Sequence[ProcessStatus], store: StoreStatus | None, problem: str) -> str:
    tasks: dict[str, Any] | None = None
    if store is not None:
        oldest = None if store.oldest is None else as_map(store.oldest)
        tasks = {"server": store.server, "phases": store.phases, "oldest": oldest}
    report = {"processes": [asdict(each) for each in processes], "tasks": tasks, "problem": problem}
    return json.dumps(report, indent=2)


_HEADINGS: Final = ("PROCESS", "KIND", "VERSION", "UP", "RUNNING", "HELD", "LEGS", "REFUSED")


def _as_text(processes: Sequence[ProcessStatus], store: StoreStatus | None, problem: str) -> Iterator[str]:
    answering = [each for each in processes if not each.problem]
    if answering:
        yield from table(_HEADINGS, *map(_row, answering))
    for each in processes:
        if each.problem:
            yield f"{plain(each.process)}: {each.problem}"
    yield "\n" + "; ".join(_summary(answering))
    if problem:
        yield f"tasks: {problem}"
    elif store is None:
        yield "tasks: GATEWAY_REDIS_URL is not set"
    else:
        yield from _tasks(store)


def _row(status: ProcessStatus) -> tuple[object, ...]:
    running = f"{status.running}" if status.places is None else f"{status.running} of {status.places}"
    return (
        status.process,
        f"{status.kind}, draining" if status.draining else status.kind,
        status.version,
        duration(status.up_seconds),
        running,
        "-" if status.held is None else f"{status.held:,}",
        f"{status.legs:,}",
        "-" if status.refused is None else f"{status.refused:,}",
    )


def _summary(answering: Sequence[ProcessStatus]) -> Iterator[str]:
    """Yield how many processes of each kind answer, and of which versions they are."""
    for kind in ("replica", "worker"):
        of_kind = [plain(each.version) for each in answering if each.kind == kind]
        versions = sorted(set(of_kind))
        counted = versions if len(versions) == 1 else [f"{of_kind.count(version)} of {version}" for version in versions]
        named = f" ({', '.join(counted)})" if counted else ""
        yield f"{len(of_kind)} {kind}{'' if len(of_kind) == 1 else 's'}{named}"


def _tasks(store: StoreStatus) -> Iterator[str]:
    counts = ", ".join(f"{count:,} {phase}" for phase, count in store.phases.items())
    yield f"tasks: {counts} ({store.server})"
    oldest = store.oldest
    if oldest is not None:
        age = duration((oldest.now_ms - oldest.created_ms) / 1000)
        unchanged = duration((oldest.now_ms - oldest.updated_ms) / 1000)
        yield (
            f"oldest unfinished task: {plain(oldest.task_id)} of {plain(oldest.tool) or 'an unknown tool'}, {age} old, "
            f"{oldest.phase}, unchanged for {unchanged}"
        )
