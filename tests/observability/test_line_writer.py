"""Lines are written whole, in order and from another thread. Lines that are not written are counted."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from gateway.observability.destinations import Destination, FollowedFile
from gateway.observability.line_writer import Lines, LineWriter, close_before_exit, closed_at_exit
from gateway.runtime.compilation import is_compiled
from loadtest.cluster import wait_until


class Disk:
    """Replaces `os.write`, and fails when a test wants it to."""

    def __init__(self) -> None:
        self.written = b""
        self.free_bytes = 1 << 30
        self.attempts = 0

    def write(self, _descriptor: int, data: bytes) -> int:
        self.attempts += 1
        taken = bytes(data[: self.free_bytes])
        if not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.free_bytes -= len(taken)
        self.written += taken
        return len(taken)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr("gateway.observability.destinations.os.write", disk.write)
    return disk


@pytest.fixture
def full_pipe() -> Iterator[tuple[int, int]]:
    """A pipe without room, whose write end blocks."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    yield reading, writing
    os.close(reading)


def read_all(reading: int) -> bytes:
    os.set_blocking(reading, False)
    read = b""
    while True:
        try:
            read += os.read(reading, 1 << 16)
        except BlockingIOError:
            return read


def open_files() -> set[str]:
    return {str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}


def eventually(condition: Callable[[], bool]) -> None:
    wait_until(condition, "the writer")


def test_lines_of_all_threads_are_written_whole_and_each_threads_in_order(tmp_path: Path) -> None:
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    writer = LineWriter(Destination(descriptor))
    lines = Lines(writer)

    def write(name: str) -> None:
        for number in range(2000):
            lines.write(f"{name} {number}\n".encode())

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    os.close(descriptor)
    written = [line.split() for line in path.read_text().splitlines()]
    for name in "abcd":
        assert [int(number) for writer_name, number in written if writer_name == name] == list(range(2000))
    assert lines.lost == 0


def test_what_a_full_disk_refuses_is_dropped_and_counted(disk: Disk) -> None:
    lines = Lines(LineWriter(Destination(0)))
    disk.free_bytes = 0
    lines.write(b"one\n")
    eventually(lambda: lines.lost == 1 and not lines.is_writable)
    disk.free_bytes = 1000
    lines.write(b"two\n")
    eventually(lambda: disk.written == b"two\n" and lines.is_writable)
    assert lines.lost == 1


def test_a_line_that_was_cut_short_does_not_run_into_the_next_one(disk: Disk) -> None:
    lines = Lines(LineWriter(Destination(0)))
    disk.free_bytes = 2
    lines.write(b"first\n")
    eventually(lambda: lines.lost == 1)
    disk.free_bytes = 1000
    lines.write(b"second\n")
    eventually(lambda: disk.written == b"fi\nsecond\n")


def test_required_lines_wait_for_the_disk_and_none_is_lost_or_doubled(disk: Disk) -> None:
    writer = LineWriter(Destination(0))
    writer.keeps = True
    lines = Lines(writer)
    disk.free_bytes = 2
    lines.write(b"first\n")
    lines.write(b"second\n")
    eventually(lambda: disk.attempts >= 3 and not lines.is_writable)
    disk.free_bytes = 1000
    eventually(lambda: disk.written == b"first\nsecond\n")
    eventually(lambda: lines.is_writable)
    assert lines.lost == 0


def test_the_end_does_not_wait_for_a_full_disk(disk: Disk) -> None:
    writer = LineWriter(Destination(0))
    writer.keeps = True
    lines = Lines(writer)
    disk.free_bytes = 0
    lines.write(b"one\n")
    eventually(lambda: disk.attempts >= 1)
    writer.close(seconds=30)
    assert lines.lost == 1


def test_a_pipe_that_nobody_reads_holds_nobody_up(full_pipe: tuple[int, int]) -> None:
    reading, writing = full_pipe
    writer = LineWriter(Destination(writing), max_queued_bytes=1000)
    lines, brief = Lines(writer), Lines(writer, share=0.5)
    for _ in range(30):
        lines.write(b"x" * 99 + b"\n")
    assert lines.lost == 20
    eventually(lambda: not lines.is_writable)
    brief.write(b"no room in its share\n")
    assert brief.lost == 1
    writer.close(seconds=0.01)
    written = read_all(reading)
    eventually(lambda: lines.is_writable)
    writer.close()
    assert (written + read_all(reading)).count(b"\n") == 10
    os.close(writing)


def test_the_first_line_after_a_pause_is_written_at_once(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    lines = Lines(LineWriter(Destination(writing)))
    for _ in range(3):
        lines.write(b"line\n")
        assert os.read(reading, 100) == b"line\n"
    lines.close()
    os.close(reading)
    os.close(writing)


def test_a_writer_that_is_closed_before_the_exit_writes_its_lines_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    writer = closed_at_exit(LineWriter(FollowedFile(str(path), "")))
    assert str(path) in open_files()
    Lines(writer).write(b"line\n")
    close_before_exit(writer)
    assert path.read_bytes() == b"line\n"
    assert str(path) not in open_files()
    assert sys.getrefcount(writer) == 2  # this function, and the argument


def test_a_descriptor_stays_open_while_a_write_to_it_is_stuck(full_pipe: tuple[int, int]) -> None:
    reading, writing = full_pipe
    lines = Lines(writer := LineWriter(FollowedFile(f"/proc/self/fd/{writing}", "")))
    lines.write(b"line\n")
    eventually(lambda: not lines.is_writable)
    writer.close(seconds=0.01)
    os.close(writing)
    with os.fdopen(reading, "rb", closefd=False) as pipe:
        assert pipe.read().endswith(b"xline\n")  # which ends only when the other end is closed


INTERRUPTED: Final = """
import os, signal, sys, threading
from gateway.observability.line_writer import Lines, LineWriter
from gateway.runtime.compilation import is_compiled
from gateway.observability.destinations import Destination

lines = Lines(LineWriter(Destination(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT))))
signal.signal(signal.SIGUSR1, lambda *_: lines.write(b"from a handler\\n"))
notify = threading.Condition.notify

def interrupted(condition, n=1):
    signal.raise_signal(signal.SIGUSR1)
    notify(condition, n)

threading.Condition.notify = interrupted
for number in range(10):
    while not lines._writer._is_idle:
        pass
    lines.write(b"%d\\n" % number)
lines.close()
print(lines.lost)
"""


def test_a_signal_handler_may_write_whatever_it_interrupts(tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "log")]
    assert subprocess.run(command, capture_output=True, check=True, timeout=60).stdout == b"0\n"
    written = (tmp_path / "log").read_text().splitlines()
    assert [line for line in written if line != "from a handler"] == [str(number) for number in range(10)]
    assert written.count("from a handler") >= 10


class Followed:
    """A writer to a file in a folder, whose lines are numbered."""

    def __init__(self, folder: Path, *, keeps: bool = False) -> None:
        self.path = folder / "audit.log"
        self.writer = LineWriter(FollowedFile(str(self.path), "GATEWAY_AUDIT_LOG"), name="GATEWAY_AUDIT_LOG")
        self.writer.keeps = keeps
        self.lines = Lines(self.writer)
        self.count = 0

    def write(self, count: int = 1) -> None:
        for _ in range(count):
            self.count += 1
            self.lines.write(b"%d\n" % self.count)

    def has(self, *numbers: int) -> bool:
        return self.path.exists() and self.path.read_text().split() == [str(number) for number in numbers]


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    followed = Followed(tmp_path)
    yield followed
    followed.writer.close()


def test_a_moved_file_is_opened_again_even_while_nothing_is_written(followed: Followed) -> None:
    followed.write()
    eventually(lambda: followed.has(1))
    assert followed.writer.flush()  # it has looked at what it wrote
    followed.path.rename(moved := followed.path.with_name("audit.log.1"))
    eventually(followed.path.exists)
    followed.write()
    eventually(lambda: followed.has(2))
    assert moved.read_text() == "1\n"
    assert followed.lines.lost == 0


def test_lines_wait_for_the_file_that_takes_the_place_of_a_moved_one(followed: Followed) -> None:
    followed.write()
    eventually(lambda: followed.has(1))
    assert followed.writer.flush()  # it has looked at what it wrote
    followed.path.rename(followed.path.with_name("audit.log.1"))
    descriptor = os.open(followed.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)  # as logrotate does
    os.close(descriptor)
    followed.write()
    eventually(lambda: followed.has(2))


def test_a_writer_that_is_asked_to_look_creates_a_missing_file_at_once(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.observability.destinations.SUCCESSOR_SECONDS", 600.0)
    followed.path.rename(followed.path.with_name("audit.log.1"))
    followed.writer.look()
    eventually(followed.path.exists)


def test_the_latest_lines_of_a_deleted_file_are_counted_and_warned_of_once(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    followed.write(3)
    eventually(lambda: followed.has(1, 2, 3))
    assert followed.writer.flush()  # it has looked at what it wrote
    followed.path.unlink()
    followed.write()
    eventually(lambda: followed.has(4))
    eventually(lambda: followed.lines.lost == 3)
    followed.write()
    eventually(lambda: followed.has(4, 5))
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == ["lines may be lost"]


def test_the_latest_lines_of_a_truncated_file_are_counted_and_warned_of_once(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    followed.write(3)
    eventually(lambda: followed.has(1, 2, 3))
    assert followed.writer.flush()  # it has looked at what it wrote
    os.truncate(followed.path, 0)
    followed.write()
    eventually(lambda: followed.has(4))
    eventually(lambda: followed.lines.lost == 3)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == ["lines may be lost"]


@pytest.mark.skipif(is_compiled(), reason="a compiled constant cannot be changed")
def test_older_lines_of_a_deleted_file_are_not_counted(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.observability.line_writer.COPY_SECONDS", -600.0)
    followed.write(3)
    eventually(lambda: followed.has(1, 2, 3))
    assert followed.writer.flush()  # it has looked at what it wrote
    followed.path.unlink()
    followed.write()
    eventually(lambda: followed.has(4))
    assert followed.lines.lost == 0


def test_a_file_without_a_status_is_opened_again(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    followed.write()
    eventually(lambda: followed.has(1))
    status, stale = os.fstat, [OSError(errno.ESTALE, "Stale file handle")]

    def fstat(descriptor: int) -> os.stat_result:
        if stale:
            raise stale.pop()
        return status(descriptor)

    monkeypatch.setattr("gateway.observability.destinations.os.fstat", fstat)
    followed.path.unlink()
    followed.writer.look()
    eventually(followed.path.exists)
    followed.write()
    eventually(lambda: followed.has(2))
    assert followed.lines.is_writable


def test_flushing_says_whether_the_lines_have_left_the_queue(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    lines = LineWriter(Destination(writer))
    Lines(lines).write(b"short\n")
    assert lines.flush()
    Lines(lines).write(b"x" * 1_000_000 + b"\n")  # more than a pipe holds
    assert not lines.flush(0.05)
    os.close(reader)
    lines.close()


def test_a_deleted_file_that_cannot_be_created_is_not_writable_until_it_can(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    followed = Followed(folder, keeps=True)
    followed.path.unlink()
    folder.rmdir()
    eventually(lambda: not followed.lines.is_writable)  # though nothing is written
    followed.write()
    folder.mkdir()
    eventually(lambda: followed.has(1))
    eventually(lambda: followed.lines.is_writable)
    assert followed.lines.lost == 0
    followed.writer.close()


def test_lines_go_to_a_moved_file_while_it_cannot_be_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    followed = Followed(folder)
    folder.rename(moved := tmp_path / "moved")
    followed.write()
    eventually(lambda: (moved / "audit.log").read_text() == "1\n")
    assert followed.lines.is_writable
    folder.mkdir()
    followed.write()
    eventually(lambda: followed.has(2))
    followed.writer.close()


def test_a_line_that_was_cut_short_starts_again_in_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = Followed(tmp_path, keeps=True)
    write, free = os.write, [3]

    def limited(descriptor: int, data: bytes) -> int:
        if not free[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(descriptor, data[: free[0]])
        free[0] -= written
        return written

    monkeypatch.setattr("gateway.observability.destinations.os.write", limited)
    followed.lines.write(b"one\ntwo\n")
    eventually(lambda: free[0] == 0)
    followed.path.rename(moved := followed.path.with_name("audit.log.1"))
    free[0] = 1 << 20
    eventually(lambda: followed.path.exists() and followed.path.read_bytes() == b"one\ntwo\n")
    assert moved.read_bytes() == b"one"
    followed.writer.close()
