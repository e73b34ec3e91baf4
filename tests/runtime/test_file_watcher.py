"""Key files that change: which content is applied, when, and what the log may say about it."""
# ruff: noqa: ASYNC240 - the files of these tests are small and local

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import ConfigurationError
from gateway.runtime.file_watcher import MAX_FILE_BYTES, FileWatcher
from gateway.runtime.reread import read_again

SECRET = b"hunter2"


class Watched:
    """A file, its watcher, and the applied contents."""

    def __init__(self, path: Path, poll_seconds: float = 3600.0) -> None:
        self.taken: list[bytes] = []
        self.arrived = asyncio.Event()
        self.watcher = FileWatcher("GATEWAY_X_FILE", path, self.parse, self.take, poll_seconds)

    def parse(self, content: bytes) -> bytes:
        if content.startswith(b"broken"):
            raise ConfigurationError("GATEWAY_X_FILE: key 1 of 1 is no key")
        if content.startswith(b"bug"):
            raise ValueError(content)
        return content

    def take(self, content: bytes) -> None:
        self.taken.append(content)
        self.arrived.set()

    async def looks(self, times: int = 2) -> list[bytes]:
        for _ in range(times):
            await self.watcher.look()
        return self.taken


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_bytes(b"one")
    return path


def reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert all(record.levelno == logging.ERROR for record in caplog.records)
    assert all(vars(record)["setting"] == "GATEWAY_X_FILE" for record in caplog.records)
    assert SECRET.decode() not in caplog.text
    return [vars(record)["reason"] for record in caplog.records]


async def test_content_that_two_readings_agree_on_is_applied_once(path: Path) -> None:
    watched = Watched(path)
    assert await watched.looks(1) == []
    assert await watched.looks(1) == [b"one"]
    assert await watched.looks(5) == [b"one"]
    path.write_bytes(b"two")
    assert await watched.looks(1) == [b"one"]
    assert await watched.looks(1) == [b"one", b"two"]


async def test_a_file_that_is_being_written_is_left_alone_until_it_stays_the_same(path: Path) -> None:
    watched = Watched(path)
    await watched.looks()
    for content in (b"t", b"tw", b"two"):
        path.write_bytes(content)
        assert await watched.looks(1) == [b"one"]
    assert await watched.looks(1) == [b"one", b"two"]


async def test_a_change_that_is_reverted_at_once_has_no_effect(path: Path) -> None:
    watched = Watched(path)
    await watched.looks()
    path.write_bytes(b"two")
    await watched.looks(1)
    path.write_bytes(b"one")
    assert await watched.looks(3) == [b"one"]


async def test_content_that_changes_within_the_same_time_stamp_and_size_is_seen(path: Path) -> None:
    watched = Watched(path)
    await watched.looks()
    stamp = path.stat()
    path.write_bytes(b"eno")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert await watched.looks() == [b"one", b"eno"]


async def test_a_broken_file_changes_nothing_and_is_logged_once_for_each_content(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched(path)
    await watched.looks()
    path.write_bytes(b"broken " + SECRET)
    assert await watched.looks(5) == [b"one"]
    assert reasons(caplog) == ["GATEWAY_X_FILE: key 1 of 1 is no key"]
    path.write_bytes(b"broken again " + SECRET)
    assert await watched.looks(5) == [b"one"]
    assert len(reasons(caplog)) == 2
    path.write_bytes(b"two")
    assert await watched.looks() == [b"one", b"two"]
    assert len(reasons(caplog)) == 2


async def test_an_error_that_might_quote_the_content_is_logged_only_by_name(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(b"bug " + SECRET)
    assert await Watched(path).looks() == []
    assert reasons(caplog) == ["ValueError"]


async def test_a_missing_file_is_logged_once_it_stays_missing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(path)
    await watched.looks()
    path.unlink()
    await watched.looks(1)
    assert reasons(caplog) == []
    await watched.looks(5)
    assert reasons(caplog) == ["cannot be read: No such file or directory"]
    path.write_bytes(b"two")
    assert await watched.looks() == [b"one", b"two"]


async def test_a_file_that_comes_back_as_it_was_is_taken_over_again(path: Path) -> None:
    watched = Watched(path)
    await watched.looks()
    path.unlink()
    await watched.looks()
    path.write_bytes(b"one")
    assert await watched.looks() == [b"one", b"one"]


async def test_a_folder_a_loop_and_a_huge_file_are_rejected(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.unlink()
    path.mkdir()
    watched = Watched(path)
    await watched.looks()
    path.rmdir()
    path.symlink_to(path)
    await watched.looks()
    path.unlink()
    path.write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    assert await watched.looks() == []
    folder, loop, huge = reasons(caplog)
    assert folder == "cannot be read: Is a directory"
    assert loop.startswith("cannot be read: ")
    assert huge == f"larger than {MAX_FILE_BYTES} bytes"


def mount(folder: Path, version: str, content: bytes) -> None:
    """Put a new version of a mounted secret in place, as the kubelet does: one rename swaps all files at once."""
    (folder / version).mkdir()
    (folder / version / "keys").write_bytes(content)
    (folder / "..data_tmp").symlink_to(version)
    (folder / "..data_tmp").rename(folder / "..data")
    if not (folder / "keys").is_symlink():
        (folder / "keys").symlink_to("..data/keys")


async def test_a_secret_that_kubernetes_swaps_by_symlink_is_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mount(tmp_path, "..2026_01", b"one")
    watched = Watched(tmp_path / "keys")
    assert await watched.looks() == [b"one"]
    mount(tmp_path, "..2026_02", b"two")
    (tmp_path / "..2026_01" / "keys").unlink()
    assert await watched.looks() == [b"one", b"two"]
    mount(tmp_path, "..2026_03", b"three")
    await watched.looks(1)
    mount(tmp_path, "..2026_04", b"three")
    await watched.looks(1)
    assert watched.taken == [b"one", b"two"], "two readings of different files do not agree"
    assert await watched.looks(1) == [b"one", b"two", b"three"]
    assert reasons(caplog) == []


async def test_it_looks_by_itself_while_it_runs_and_not_afterwards(path: Path) -> None:
    watched = Watched(path, poll_seconds=0.001)
    async with watched.watcher.running():
        await watched.arrived.wait()
        watched.arrived.clear()
        path.write_bytes(b"two")
        await watched.arrived.wait()
    assert watched.taken == [b"one", b"two"]
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def test_the_event_loop_keeps_running_while_a_file_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    watched = Watched(pipe)
    looking = asyncio.create_task(watched.watcher.look())
    # Opening a pipe waits for a writer. This line is reached only because a thread waits, and not the loop.
    writer = await asyncio.to_thread(os.open, pipe, os.O_WRONLY)
    os.close(writer)
    await looking


async def test_a_file_is_read_at_once_when_everything_is_read_again(path: Path) -> None:
    watched = Watched(path)
    async with watched.watcher.running():
        await read_again()
        assert watched.taken == [b"one"]
        path.write_bytes(b"two")
        await read_again()
        assert watched.taken == [b"one", b"two"]
    path.write_bytes(b"three")
    await read_again()
    assert watched.taken == [b"one", b"two"]


async def test_a_file_that_keeps_changing_is_left_to_the_next_polls(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.runtime.file_watcher.SETTLE_SECONDS", 0.0)
    watched = Watched(path)
    contents = iter(range(100))
    read = FileWatcher._read

    def read_once(watcher: FileWatcher[bytes]) -> Any:
        path.write_bytes(b"%d" % next(contents))
        return read(watcher)

    monkeypatch.setattr(FileWatcher, "_read", read_once)
    await watched.watcher.look_now()
    assert watched.taken == []


async def test_a_reading_of_before_does_not_confirm_one_that_was_asked_for(path: Path) -> None:
    """Between the two, less time may have passed than it takes to write a file."""
    watched = Watched(path)
    await watched.looks(1)
    readings = 0
    read = FileWatcher._read

    def counted(watcher: FileWatcher[bytes]) -> Any:
        nonlocal readings
        readings += 1
        return read(watcher)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileWatcher, "_read", counted)
        await watched.watcher.look_now()
    assert readings == 2
    assert watched.taken == [b"one"]
