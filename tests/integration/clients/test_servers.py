"""Clients with sessions are asked twice by processes behind one port, whichever server starts these."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.workers import DONE, LATE, SERVERS, Users, Workers, folders, too_long


@pytest.fixture
def directory() -> Iterator[Path]:
    """A folder whose path leaves room for the names of sockets."""
    with tempfile.TemporaryDirectory(prefix="gw-") as folder:
        yield Path(folder)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("server", SERVERS)
async def test_all_calls_of_several_clients_complete(server: str, count: int, directory: Path) -> None:
    with Workers(directory, server, count, GATEWAY_REPLICA_URL="http://127.0.0.1:9/tools") as workers:
        users = await Users().call(workers.url, users=10, calls=10)
        assert users.texts == {DONE: 100}
        assert users.crossed > 0
        assert users.refused == 0
    assert folders(directory) == [], workers.log_text()


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("server", SERVERS)
async def test_without_the_folder_all_calls_end_in_time(server: str, count: int, directory: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": too_long(directory), "GATEWAY_ANSWER_SECONDS": "1"}
    with Workers(directory, server, count, **environ) as workers:
        users = await Users().call(workers.url, users=10, calls=2)
        assert users.texts.keys() <= {DONE, LATE}
        assert users.texts[LATE] == users.refused == users.crossed > 0
        assert users.texts.total() == 20
