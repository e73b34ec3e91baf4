"""Processes behind one port deliver answers to each other, or say that they cannot."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.workers import DONE, LATE, Users, Workers, folders, too_long

pytestmark = pytest.mark.slow


@pytest.fixture
def directory() -> Iterator[Path]:
    """A folder whose path leaves room for the names of sockets."""
    with tempfile.TemporaryDirectory(prefix="gw-") as folder:
        yield Path(folder)


async def test_an_answer_reaches_its_call_in_whichever_process_of_the_port_it_waits(directory: Path) -> None:
    with Workers(directory, "uvicorn", 2) as workers:
        users = await Users().call(workers.url, users=4, calls=5)
        assert users.texts == {DONE: 20}
        assert users.crossed > 0
        assert users.refused == 0
    assert folders(directory) == [], workers.log_text()


async def test_without_the_folder_each_call_ends_in_time_and_the_log_names_the_cure(directory: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": too_long(directory), "GATEWAY_ANSWER_SECONDS": "1"}
    with Workers(directory, "uvicorn", 2, **environ) as workers:
        users = await Users().call(workers.url, users=4, calls=3)
        assert users.refused == users.crossed > 0
        assert users.texts.total() == 12
        assert set(users.texts) <= {DONE, LATE}
        assert users.texts[LATE] == users.refused
        log = workers.log_text()
        assert log.count("cannot deliver answers to each other") == workers.count
        assert log.count("answer not delivered: ") == users.refused
        assert "has no GATEWAY_REPLICA_URL; set it on each replica" in log
