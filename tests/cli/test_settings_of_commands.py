"""Settings change what commands do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.cli import dev
from gateway.cli.check import examine
from gateway.cli.main import main
from gateway.errors import ConfigurationError
from gateway.observability import logs
from gateway.process.preflight import find_problems, find_tool_problems, find_upstream_problems
from gateway.settings.model import Settings
from gateway.settings.problems import Problems
from gateway.web.listener import listen

REQUIRED = '{"mcpServers": {"bugs": {"url": "http://127.0.0.1:9/mcp", "gateway": {"task": "required"}}}}'


@pytest.mark.setting("log_level", "log_format", "replica_id")
def test_a_replica_logs_as_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[str, ...]] = []
    monkeypatch.setattr(logs, "configure_logging", lambda *how: given.append(how))
    for name, value in (("LOG_LEVEL", "error"), ("LOG_FORMAT", "json"), ("REPLICA_ID", "r7")):
        monkeypatch.setenv(f"GATEWAY_{name}", value)
    assert main(["serve"]) == 2
    assert given == [("error", "json", "r7")]


class Run:
    """A run of `gateway dev` that starts nothing, and what it would have started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **environ: str) -> None:
        self.metrics: list[Any] = []
        self.added: Any = None
        self.made_stores = 0
        self.workers = 0
        self.drain_seconds = 0.0
        self.has_page = False
        monkeypatch.setattr(dev, "_make_store", self._make_store)
        monkeypatch.setattr(dev, "Fleet", self._fleet)
        monkeypatch.setattr(dev, "Front", lambda _fleet, _listener: None)
        monkeypatch.setattr(dev, "FleetApi", lambda _fleet, **_: SimpleNamespace(page_of=lambda _origin: "page"))
        monkeypatch.setattr(dev, "_Supervisor", self._supervisor)
        monkeypatch.setattr(dev, "_metrics_listeners", self._listeners)
        made = {**environ, "GATEWAY_AUDIT_LOG": "off"}
        assert dev.run(replicas=1, workers=1, host="127.0.0.1", port=0, environ=made, reload=False) == 0

    def _make_store(self, _environ: object, _stack: object, _console: object) -> None:
        self.made_stores += 1

    def _listeners(self, first: int | None, count: int, _stack: object, _console: object) -> list[None]:
        self.metrics.append(first)
        return [None] * count

    def _fleet(self, members: dict[str, Any], _environ: object, make: Any, _keys: object, **_: object) -> Any:
        self.workers = sum(name.startswith("w") for name in members)
        self.added = make("replica", 2)
        return SimpleNamespace()

    def _supervisor(
        self, _fleet: object, _store: object, _front: object, seconds: float, _console: object, page: str
    ) -> Any:
        self.drain_seconds, self.has_page = seconds, bool(page)

        async def run(_url: str) -> int:
            return 0

        return SimpleNamespace(run=run)


@pytest.mark.setting("drain_seconds", "metrics_port", "playground", "redis_url")
def test_dev_starts_its_processes_as_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"GATEWAY_DRAIN_SECONDS": "7", "GATEWAY_METRICS_PORT": "9321", "GATEWAY_PLAYGROUND": "dev"}
    run = Run(monkeypatch, **environ, GATEWAY_REDIS_URL="redis://127.0.0.1:1")
    assert (run.drain_seconds, run.metrics, run.has_page, run.workers, run.made_stores) == (7, [9321], True, 1, 0)
    without = Run(monkeypatch, GATEWAY_METRICS_PORT="off", GATEWAY_PLAYGROUND="off")
    assert (without.metrics, without.has_page, without.workers, without.made_stores) == ([None], False, 0, 1)
    assert len(run.added.child.command) > len(without.added.child.command)


@pytest.mark.setting("drain_seconds")
async def test_dev_gives_its_processes_the_time_to_drain_that_is_set() -> None:
    kept: list[Any] = []
    ended = asyncio.Event()
    ended.set()

    async def stopped() -> list[Exception]:
        return []

    fleet: Any = SimpleNamespace(environ={}, members={}, keep=kept.append, ended=ended, stopped=stopped)
    front: Any = SimpleNamespace(stop_listening=lambda: None)
    console: Any = SimpleNamespace(say=lambda _line: None)
    await dev._Supervisor(fleet, None, front, 7, console, "")._run_fleet("http://127.0.0.1:9/mcp")
    assert [nursery._drain_seconds for nursery in kept] == [7]


@pytest.mark.setting("host", "port")
def test_dev_listens_where_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    with listen("127.0.0.2", 0) as free:
        port = free.getsockname()[1]
    listening: list[Any] = []

    def supervise(
        _fleet: object, _settings: object, listener: Any, _console: object, *, origin: str, **_: object
    ) -> int:
        listening.append((listener.getsockname(), origin))
        return 0

    monkeypatch.setattr(dev, "_supervise", supervise)
    environ = {"GATEWAY_HOST": "127.0.0.2", "GATEWAY_PORT": str(port), "GATEWAY_METRICS_PORT": "off"}
    assert dev.run(1, 0, environ=environ) == 0
    assert listening == [(("127.0.0.2", port), f"http://127.0.0.2:{port}")]


@pytest.mark.setting("auth", "host", "tools")
@pytest.mark.parametrize(
    ("environ", "says"),
    [({"GATEWAY_AUTH": "none"}, "GATEWAY_AUTH"), ({"GATEWAY_TOOLS": "./no_such_file.py"}, "no_such_file")],
)
def test_dev_checks_its_address_and_its_tool_files(environ: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        dev.run(replicas=1, workers=0, host="0.0.0.0", port=0, environ=environ, reload=False)


@pytest.mark.setting("tools")
def test_the_tool_modules_of_a_worker_are_checked_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("same_one", "same_two"):
        (tmp_path / f"{name}.py").write_text("from gateway import tool\n\n@tool\nasync def same() -> None: ...\n")
    problems = Problems()
    find_tool_problems(Settings.load({}, tools="same_one,same_two"), problems, serves=False)
    assert len(problems.lines) == 1


@pytest.mark.setting("upstreams", "redis_url")
def test_a_problem_of_an_upstream_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "upstreams.json"
    file.write_text(REQUIRED)
    environ = {"GATEWAY_UPSTREAMS": str(file)}
    problems = Problems()
    find_upstream_problems(Settings.load(environ), problems)
    (finding,) = (each for each in examine(None, environ).findings if each.subject == "upstreams")
    for lines in (problems.lines, finding.wrong):
        assert [line.partition(": ")[0] for line in lines] == [str(file)]
    problems = Problems()
    find_upstream_problems(Settings.load({**environ, "GATEWAY_REDIS_URL": "redis://127.0.0.1:1"}), problems)
    assert problems.lines == []


@pytest.mark.setting("auth")
def test_without_identity_no_file_of_keys_is_read(tmp_path: Path) -> None:
    problems = Problems()
    find_problems(Settings.load({"GATEWAY_AUTH": "none", "GATEWAY_JWKS_FILE": str(tmp_path / "none")}), problems)
    assert not any("GATEWAY_JWKS_FILE" in line for line in problems.lines)
