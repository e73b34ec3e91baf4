"""A server that may lose tasks is reported, also if it was configured so while it runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.observability.redis_watch import risks_of
from gateway.storage import deployment
from tests.storage.deployments import Deployment, eventually
from tests.storage.servers import Server, own_redis


@pytest.fixture
def server() -> Iterator[Server]:
    with own_redis() as server:
        server.ask("CONFIG", "SET", "appendonly", "yes")
        yield server


def at_risk(here: Deployment, risk: str) -> float | None:
    return here.telemetry.registry.get_sample_value("gateway_redis_at_risk", {"risk": risk})


@pytest.mark.parametrize(
    ("risk", "setting", "wrong", "right", "message"),
    [
        ("eviction", "maxmemory-policy", "allkeys-lru", "noeviction", "task store may evict tasks"),
        ("persistence", "appendonly", "no", "yes", "task store keeps no append-only file"),
    ],
)
async def test_what_is_set_while_the_server_runs_is_reported_once_until_it_is_right_again(  # noqa: PLR0917
    server: Server,
    risk: str,
    setting: str,
    wrong: str,
    right: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(deployment, "INSPECT_SECONDS", 0.0)
    monkeypatch.setattr(deployment, "LOOK_SECONDS", 0.0)
    here = Deployment(server.url)
    store = here.store()
    await store.check()
    assert at_risk(here, risk) == 0

    async def is_at_risk(value: int) -> bool:
        await store.owner(None)
        return at_risk(here, risk) == value

    server.ask("CONFIG", "SET", setting, wrong)
    await eventually(lambda: is_at_risk(1))
    await store.owner(None)
    server.ask("CONFIG", "SET", setting, right)
    await eventually(lambda: is_at_risk(0))
    assert [record.getMessage() for record in caplog.records].count(message) == 1
    await here.aclose()


async def test_a_server_that_keeps_nothing_is_reported_at_the_start(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.ask("CONFIG", "SET", "appendonly", "no")
    here = Deployment(server.url)
    await here.store().check()
    assert at_risk(here, "persistence") == 1
    assert "task store keeps no append-only file" in caplog.text
    assert not (await here.store().inspect()).keeps_tasks
    await here.aclose()


def test_a_server_of_this_machine_alone_need_not_keep_anything() -> None:
    assert risks_of({"maxmemory_policy": "noeviction", "aof_enabled": 0, "tcp_port": 0}) == []
