"""Settings change what a worker does. Only its loop and its connections are replaced."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from gateway.engine.leg_policy import LegPolicy
from gateway.process.exit import Ending
from gateway.process.signals import Hangups
from gateway.settings.model import Settings
from gateway_workers import __main__ as command
from gateway_workers import process, services
from gateway_workers.metrics import WorkerTelemetry
from gateway_workers.worker import Worker
from loadtest.cluster import new_key
from tests.calls.policies import POLICY

pytestmark = pytest.mark.slow

TOOLS = "tests.workers.tools"
ENVIRON = {
    "GATEWAY_TOOLS": TOOLS,
    "GATEWAY_SEAL_KEYS": new_key(),
    "GATEWAY_AUDIENCE": "tests",
    "GATEWAY_REDIS_URL": "redis://127.0.0.1:1",
    "GATEWAY_AUDIT_LOG": "off",
}


def built(**environ: str) -> services.WorkerServices:
    return services.build_worker(Settings.load({**ENVIRON, **environ}))


class Noted:
    """Stands for the parts of a worker, and notes what they were made with."""

    def __init__(self) -> None:
        self.work: Any = None
        self.lease_seconds = 0.0
        self.concurrency = 0
        self.drains: list[float] = []
        self.reloaded: Any = None

    def heart(self, _make_queue: object, lease_seconds: float, _loop: object) -> Any:
        self.lease_seconds = lease_seconds
        return SimpleNamespace(start=lambda _end: None, stop=lambda: asyncio.sleep(0))

    def worker(self, work: object, _heart: object, concurrency: int) -> Any:
        self.work, self.concurrency = work, concurrency
        return SimpleNamespace(end=None, run=self.run)

    async def run(self, drain_seconds: float) -> bool:
        self.drains.append(drain_seconds)
        return True

    @contextlib.contextmanager
    def signals(self, _worker: object, _loop: object, drain_seconds: float, _ending: object) -> Iterator[None]:
        self.drains.append(drain_seconds)
        yield

    def reloader(self, entries: object, load: Any, _serve: object) -> Any:
        self.reloaded = (entries, sorted(load().tools))
        return SimpleNamespace(running=contextlib.AsyncExitStack)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Noted:
    noted = Noted()
    for name, stand_in in {
        "Heart": noted.heart,
        "Worker": noted.worker,
        "_signals": noted.signals,
        "Reloader": noted.reloader,
    }.items():
        monkeypatch.setattr(process, name, stand_in)
    return noted


async def work(*, reload: bool = False, **environ: str) -> None:
    made = built(**environ)
    telemetry = WorkerTelemetry((), 1)
    assert await process._work(made, telemetry, Ending(), Hangups(), counts_tasks=False, reload=reload)


@pytest.mark.setting("worker_concurrency", "task_lease_seconds", "drain_seconds")
async def test_a_worker_runs_as_it_is_set(noted: Noted) -> None:
    await work(
        GATEWAY_WORKER_CONCURRENCY="7",
        GATEWAY_TASK_LEASE_SECONDS="8",
        GATEWAY_DRAIN_SECONDS="9",
    )
    assert (noted.concurrency, noted.lease_seconds, noted.drains) == (7, 8, [9, 9])


async def test_legs_of_a_worker_keep_to_the_policy_of_its_operator(
    noted: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that sets one part of it for itself is noticed, whatever the part."""
    monkeypatch.setattr(LegPolicy, "of", lambda _settings: POLICY)
    await work()
    assert noted.work.policy is POLICY


@pytest.mark.setting("drain_seconds")
async def test_a_leaving_worker_gives_its_tasks_the_time_to_drain_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    async def drain(_worker: object, seconds: float) -> bool:
        given.append(seconds)
        return True

    async def nothing() -> None: ...

    queue = SimpleNamespace(partitions=0, leave=nothing)
    work: Any = SimpleNamespace(tools={}, queue=queue, policy=POLICY)
    heart: Any = None
    monkeypatch.setattr(Worker, "_drain", drain)
    monkeypatch.setattr(Worker, "_listen", lambda _worker: nothing())
    assert await Worker(work, heart, 1).run(7)
    assert given == [7]


@pytest.mark.setting("tools")
async def test_a_worker_loads_its_tools_and_watches_them(noted: Noted) -> None:
    await work(reload=True)
    assert noted.work.tools
    assert noted.reloaded == ((TOOLS,), sorted(noted.work.tools))


@pytest.mark.setting("upstreams")
def test_a_worker_serves_its_upstreams(tmp_path: Path) -> None:
    file = tmp_path / "upstreams.json"
    file.write_text('{"mcpServers": {"bugs": {"url": "http://127.0.0.1:9/mcp"}}}')
    upstreams = built(GATEWAY_UPSTREAMS=str(file)).make_upstreams(WorkerTelemetry((), 1))
    assert upstreams is not None
    assert [part.name for part in upstreams.parts] == ["bugs"]
    assert built().make_upstreams(WorkerTelemetry((), 1)) is None


@pytest.mark.setting("holders", "task_lease_seconds")
def test_a_worker_sends_requests_to_the_holders() -> None:
    holder = built(GATEWAY_HOLDERS="http://h-0", GATEWAY_TASK_LEASE_SECONDS="7")._hold(WorkerTelemetry((), 1))
    assert holder.holders is not None
    assert holder.holders.urls == ("http://h-0",)
    assert holder.unattended_seconds == 7 + services.TAKEOVER_SECONDS
    assert not holder.can_hold
    assert built()._hold(WorkerTelemetry((), 1)).holders is None


@pytest.mark.setting("replica_id")
def test_a_worker_has_its_name_in_legs_and_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "make_tracing", lambda replica_id: replica_id)
    made = built(GATEWAY_REPLICA_ID="w7")
    assert (made.host.replica_id, str(made.tracing)) == ("w7", "w7")


@pytest.mark.setting("metrics_host", "metrics_port", "worker_concurrency")
@pytest.mark.parametrize("port", ["9091", "off"])
def test_a_worker_serves_metrics_where_it_is_set(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[tuple[float | None, str, int]] = []

    def start(registry: Any, host: str, number: int) -> Any:
        served.append((registry.get_sample_value("gateway_worker_concurrency"), host, number))
        return SimpleNamespace(url="", stop=lambda: None)

    def run(coroutine: Any) -> bool:
        coroutine.close()
        return True

    monkeypatch.setattr(process, "start_metrics_server", start)
    monkeypatch.setattr(uvloop, "run", run)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    environ = {"GATEWAY_METRICS_HOST": "127.0.0.2", "GATEWAY_METRICS_PORT": port, "GATEWAY_WORKER_CONCURRENCY": "7"}
    assert process.run(Settings.load({**ENVIRON, **environ})) == 0
    assert served == ([] if port == "off" else [(7, "127.0.0.2", 9091)])


@pytest.mark.setting("log_level", "log_format", "replica_id")
def test_a_worker_logs_as_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[str, ...]] = []
    monkeypatch.setattr(command, "configure_logging", lambda *how: given.append(how))
    for name, value in (("LOG_LEVEL", "error"), ("LOG_FORMAT", "json"), ("REPLICA_ID", "w7")):
        monkeypatch.setenv(f"GATEWAY_{name}", value)
    assert command.main([]) == 2
    assert given == [("error", "json", "w7")]
