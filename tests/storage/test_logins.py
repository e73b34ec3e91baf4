"""A refused login is a wrong setting while a process starts, and an outage afterwards."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.errors import ConfigurationError, TaskStoreDown
from gateway.observability.process_metrics import ProcessTelemetry
from gateway.storage import connect
from loadtest.cluster import REPOSITORY, clean_environment, free_port
from tests import forkserver
from tests.storage.deployments import Deployment
from tests.storage.servers import SERVERS, Server

PASSWORD = "hunter2-hunter2"
WRONG = "swordfish-swordfish"


@pytest.fixture(scope="module", params=SERVERS)
def locked(request: pytest.FixtureRequest, short_directory: Path) -> Iterator[Server]:
    """A server with a password, and a user who may only read."""
    directory = short_directory / f"locked-{request.param}"
    directory.mkdir()
    server = Server(request.param, directory, "--appendonly", "yes")
    server.start()
    server.ask("ACL", "SETUSER", "guest", "on", f">{PASSWORD}", "~*", "+info")
    server.ask("ACL", "SETUSER", "half", "on", f">{PASSWORD}", "~*", "+info", "+eval", "+evalsha")
    server.ask("CONFIG", "SET", "requirepass", PASSWORD)
    server.password = PASSWORD
    yield server
    server.end()


@asynccontextmanager
async def deployment(server: Server, login: str, scheme: str = "redis") -> AsyncIterator[Deployment]:
    opened = Deployment(f"{scheme}://{login}127.0.0.1:{server.port}")
    yield opened
    await opened.aclose()


@pytest.mark.parametrize(
    ("login", "words"),
    [
        ("", "refused the login"),
        (f":{WRONG}@", "refused the login"),
        (f"nobody:{WRONG}@", "refused the login"),
        (f"guest:{PASSWORD}@", "denied the user a command or a key"),
        (f"half:{PASSWORD}@", "denied the user a command or a key"),
    ],
    ids=["no password", "a wrong password", "an unknown user", "a user without rights", "scripts without rights"],
)
async def test_a_refused_login_at_the_start_is_a_wrong_setting_and_no_outage(
    locked: Server, login: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with deployment(locked, login) as here:
        with pytest.raises(ConfigurationError) as caught:
            await here.store().check()
    (problem,) = caught.value.problems
    assert problem.startswith("GATEWAY_REDIS_URL: ")
    assert words in problem
    assert PASSWORD not in problem
    assert WRONG not in problem
    assert caplog.records == []


async def test_the_right_password_works(locked: Server) -> None:
    async with deployment(locked, f":{PASSWORD}@") as here:
        await here.store().check()
    locked.ask("FLUSHALL")


@pytest.mark.parametrize("login", ["", f":{WRONG}@"], ids=["no password", "a wrong password"])
async def test_a_node_of_a_cluster_that_refuses_the_login_is_a_wrong_setting_too(locked: Server, login: str) -> None:
    async with deployment(locked, login, "redis+cluster") as here:
        with pytest.raises(ConfigurationError, match="GATEWAY_REDIS_URL: the server refused the login"):
            await here.store().check()


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
async def test_a_server_that_cannot_be_reached_stays_an_outage(scheme: str) -> None:
    opened = Deployment(f"{scheme}://:{WRONG}@127.0.0.1:{free_port()}")
    with pytest.raises(TaskStoreDown):
        await opened.store().check()
    await opened.aclose()


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
@pytest.mark.parametrize("size", [10, 2**21], ids=["small", "large"])
async def test_a_value_for_a_server_that_cannot_be_reached_meets_an_outage_whatever_its_size(
    scheme: str, size: int
) -> None:
    client = connect(f"{scheme}://127.0.0.1:{free_port()}", ProcessTelemetry())
    with pytest.raises(TaskStoreDown):
        await client.command("SET", "key", b"x" * size)
    await client.aclose()


async def test_a_password_that_changes_later_is_an_outage_whose_log_line_says_what_it_is(
    locked: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with deployment(locked, f":{PASSWORD}@") as here:
        store = here.store()
        await store.check()
        locked.ask("CONFIG", "SET", "requirepass", WRONG)
        locked.password = WRONG
        try:
            locked.ask("CLIENT", "KILL", "TYPE", "normal")
            for _ in range(3):  # the first command may only see that its connection is closed
                with pytest.raises(TaskStoreDown):
                    await store.create(here.new(), 10)
        finally:
            locked.ask("CONFIG", "SET", "requirepass", PASSWORD)
            locked.password = PASSWORD
        await store.create(here.new(), 10)
    locked.ask("FLUSHALL")
    assert {record.message for record in caplog.records} == {"task store is not available"}
    assert len(caplog.records) <= 2
    assert vars(caplog.records[-1])["reason"] == (
        "PermissionError: GATEWAY_REDIS_URL: the server refused the login; check the user and the password"
    )


@pytest.mark.parametrize("arguments", [("serve", "--port", "0", "--metrics-port", "off"), ("worker",)], ids=str)
def test_a_process_with_a_wrong_password_ends_at_once_with_one_line(locked: Server, arguments: tuple[str, ...]) -> None:
    settings = {
        "GATEWAY_TOOLS": "gateway.demo",
        "GATEWAY_SEAL_KEYS": "1f" * 32,
        "GATEWAY_AUDIENCE": "here",
        "GATEWAY_AUTH": "none",
        "GATEWAY_PEERS": "http://127.0.0.1:1",
        "GATEWAY_REPLICA_URL": "http://127.0.0.1:1",
        "GATEWAY_REDIS_URL": f"redis://:{WRONG}@127.0.0.1:{locked.port}/0",
    }
    command = [sys.executable, "-m", "gateway", *arguments]
    result = forkserver.run(command, env=clean_environment(settings), cwd=REPOSITORY)
    assert result.returncode == 2, result.stderr
    assert (
        result.stderr == "gateway: GATEWAY_REDIS_URL: the server refused the login; check the user and the password\n"
    )
