"""A file of upstreams that changes: what is taken, what is refused, and what is logged."""
# ruff: noqa: ASYNC240 - the files of these tests are small and local

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from gateway.upstreams.config.definition import UpstreamFile
from gateway.upstreams.config.pins import ToPin, lock_file_of, write_lock
from gateway.upstreams.config.reading import UpstreamReader
from gateway.upstreams.watching import UpstreamWatcher, log_file

REFUSED = "file of upstreams rejected; the current upstreams stay in use"
URL = "https://bugs.example.com/mcp"


class Watched:
    """A file of upstreams, its watcher, and what was taken."""

    def __init__(self, path: Path, document: Any, poll_seconds: float = 3600) -> None:
        self.path = path
        self.taken: list[UpstreamFile] = []
        self.arrived = asyncio.Event()
        self.write(document)
        reader = UpstreamReader(path, {})
        self.watcher = UpstreamWatcher(reader, reader.read(), self.take, poll_seconds)

    def write(self, document: Any) -> None:
        self.path.write_text(document if isinstance(document, str) else json.dumps({"mcpServers": document}))

    def take(self, found: UpstreamFile) -> None:
        self.taken.append(found)
        self.arrived.set()

    async def looks(self) -> list[list[str]]:
        for _ in range(2):
            await self.watcher.look()
        return [[definition.name for definition in found.definitions] for found in self.taken]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "upstreams.json"


async def test_only_a_change_of_what_the_file_says_is_taken(path: Path) -> None:
    watched = Watched(path, {"bugs": {"url": URL}})
    assert await watched.looks() == []
    watched.write('{"mcpServers": {"bugs": {"url": "' + URL + '"}}} // the same')
    assert await watched.looks() == []
    watched.write({"bugs": {"url": URL}, "more": {"url": URL}})
    assert await watched.looks() == [["bugs", "more"]]
    watched.write({"bugs": {"url": URL}})
    assert await watched.looks() == [["bugs", "more"], ["bugs"]]


async def test_an_upstream_that_did_not_change_is_equal_to_itself(path: Path) -> None:
    watched = Watched(path, {"bugs": {"url": URL}, "a": {"url": URL}})
    before = UpstreamReader(path, {}).read().definitions
    watched.write({"bugs": {"url": URL}, "a": {"url": URL, "gateway": {"timeout_seconds": 9}}})
    await watched.looks()
    after = watched.taken[0].definitions
    assert (after[0] == before[0], after[1] == before[1]) == (True, False)


async def test_a_broken_file_is_refused_once_and_the_log_says_why(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(path, {"bugs": {"url": URL}})
    watched.write({"bugs": {"url": "ftp://hunter2"}})
    assert await watched.looks() == await watched.looks() == []
    [record] = caplog.records
    assert (record.levelno, record.message, vars(record)["setting"]) == (logging.ERROR, REFUSED, "GATEWAY_UPSTREAMS")
    assert "bugs: url: not an http or https URL" in vars(record)["reason"]
    assert "hunter2" not in vars(record)["reason"]
    watched.write({"bugs": {"url": URL, "gateway": {"pin": "off", "rate": "5/s"}}})
    assert await watched.looks() == [["bugs"]]


async def test_a_file_that_disappears_changes_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(path, {"bugs": {"url": URL}})
    path.unlink()
    assert await watched.looks() == []
    assert [record.message for record in caplog.records] == [REFUSED]


async def test_a_new_secret_in_a_file_is_taken(path: Path) -> None:
    token = path.with_name("token")
    token.write_text("one")
    watched = Watched(path, {"bugs": {"url": URL, "headers": {"X-Token": "${file:token}"}}})
    assert await watched.looks() == []
    token.write_text("two\n")
    assert await watched.looks() == [["bugs"]]
    assert watched.taken[0].definitions[0].headers == (("X-Token", "two"),)


async def test_a_secret_that_was_missing_is_taken_when_it_is_there(path: Path) -> None:
    watched = Watched(path, {"bugs": {"url": URL}})
    watched.write({"bugs": {"url": URL, "headers": {"X-Token": "${file:token}"}}})
    assert await watched.looks() == []
    path.with_name("token").write_text("one")
    assert await watched.looks() == [["bugs"]]


async def test_new_pins_are_taken(path: Path) -> None:
    write_lock(lock_file_of(path), {"bugs": ToPin()})
    watched = Watched(path, {"bugs": {"url": URL, "gateway": {"pin": "warn"}}})
    assert await watched.looks() == []
    write_lock(lock_file_of(path), {"bugs": ToPin([{"name": "search"}])})
    assert await watched.looks() == [["bugs"]]
    assert len(watched.taken[0].definitions[0].pinned.digests) == 1


def test_a_lock_file_of_the_release_before_is_reported_for_each_upstream_that_it_pins(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lock_file_of(path).write_text('{"version": 1, "upstreams": {"bugs": {}, "free": {}}}')
    path.write_text(
        json.dumps({"mcpServers": {"bugs": {"url": URL, "gateway": {"pin": "refuse"}}, "free": {"url": URL}}})
    )
    log_file(UpstreamReader(path, {}).read())
    (line,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert (vars(line)["upstream"], vars(line)["pin"]) == ("bugs", "refuse")
    assert "run `gateway upstreams pin`" in line.message
    caplog.clear()
    write_lock(lock_file_of(path), {"bugs": ToPin()})
    log_file(UpstreamReader(path, {}).read())
    assert not caplog.records


async def test_a_running_watcher_looks_by_itself(path: Path) -> None:
    watched = Watched(path, {"bugs": {"url": URL}}, poll_seconds=0.01)
    async with watched.watcher.running(), asyncio.timeout(30):
        watched.write({"other": {"url": URL}})
        await watched.arrived.wait()
    assert watched.taken[0].definitions[0].name == "other"


def test_what_has_no_effect_is_one_line(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    path.write_text(json.dumps({"inputs": [], "mcpServers": {"b": {"python": "b:b", "args": ["x"]}}}))
    log_file(UpstreamReader(path, {}).read())
    assert [(record.levelname, record.message) for record in caplog.records] == [("INFO", "file of upstreams")]
