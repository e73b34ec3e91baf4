"""The file of the audit log is moved, deleted, truncated or full under load: no line is missing unnoticed."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.cluster import Replica, wait_until
from loadtest.cluster.common import find_program
from tests.integration.callers import ECHO, Callers, calling
from tests.integration.fleet import Fleet
from tests.integration.raw import post

pytestmark = pytest.mark.slow

ROUNDS = 10
LEG = b'"audit":"leg"'


class Audited:
    """A replica with an audit log in a folder of its own."""

    def __init__(self, replica: Replica, folder: Path) -> None:
        self.replica = replica
        self.folder = folder
        self.path = folder / "audit.log"

    @property
    def lines(self) -> int:
        """How many lines of legs are in all files of the folder."""
        texts = [
            gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            for path in self.folder.iterdir()
        ]
        return sum(text.count(LEG) for text in texts)

    @property
    def lost(self) -> int:
        return int(self.replica.metric("gateway_audit_lines_lost_total"))

    @property
    def warnings(self) -> int:
        return len(self.replica.logged("lines may be lost"))

    def wait_written(self, callers: Callers) -> None:
        """Wait until each line is written or counted."""
        wait_until(lambda: self.lines + self.lost >= callers.ran, "a line, or a count, for each call")

    def assert_bounded_loss(self, callers: Callers, copied: int = 0) -> None:
        """Check that each warning stands for at most a second's lines, and that each missing line is counted.

        `copied` lines were read from files that are gone.
        """
        most = self.warnings * callers.most_in_a_second
        assert not callers.broken
        assert callers.ran - self.lines - copied <= min(self.lost, most)
        assert self.lost <= most


@contextlib.contextmanager
def audited(directory: Path, folder: Path, **settings: str) -> Iterator[Audited]:
    folder.mkdir(exist_ok=True)
    environ = {
        "GATEWAY_TOOLS": "tests.integration.tools",
        "GATEWAY_AUDIT_LOG": str(folder / "audit.log"),
        "GATEWAY_MAX_INFLIGHT": "100",
        **settings,
    }
    with Fleet(directory, environ, names=["r1"]) as fleet:
        yield Audited(fleet["r1"], folder)


class Logrotate:
    """The system's logrotate, with one configuration."""

    def __init__(self, directory: Path, path: Path, *directives: str) -> None:
        self._state = directory / "logrotate.state"
        self._config = directory / "logrotate.conf"
        self._config.write_text("\n".join([f"{path} {{", "rotate 100", *directives, "}", ""]))
        self._config.chmod(0o644)

    def rotate(self) -> None:
        program = find_program("logrotate", package="logrotate")
        command = [program, "--force", "--state", str(self._state), str(self._config)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 8 MiB."""
    folder = Path(tempfile.mkdtemp())
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], check=False, timeout=60
        ).returncode
    ):
        folder.rmdir()
        pytest.skip("only root may mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=60)
    folder.rmdir()


def test_of_a_file_that_is_moved_compressed_and_deleted_no_line_is_missing_unnoticed(tmp_path: Path) -> None:
    with audited(tmp_path, tmp_path / "audit") as audit:
        with calling(audit.replica) as callers:
            for number in range(ROUNDS):
                callers.wait_for(20)
                wait_until(audit.path.exists, "another file")
                moved = audit.path.rename(audit.path.with_name(f"audit.log.{number}"))
                with moved.open("rb") as source, gzip.open(f"{moved}.gz", "wb") as copy:
                    shutil.copyfileobj(source, copy)
                moved.unlink()
        audit.wait_written(callers)
        assert audit.warnings <= ROUNDS
        audit.assert_bounded_loss(callers)


def test_a_file_that_is_moved_and_deleted_at_once_is_warned_of_at_most_once_and_takes_a_seconds_lines_at_most(
    tmp_path: Path,
) -> None:
    with audited(tmp_path, tmp_path / "audit") as audit:
        copied = 0
        with calling(audit.replica) as callers:
            for _ in range(ROUNDS):
                callers.wait_for(20)
                wait_until(audit.path.exists, "another file")
                moved = audit.path.rename(audit.path.with_name("audit.log.1"))
                copied += moved.read_bytes().count(LEG)
                moved.unlink()
        wait_until(lambda: copied + audit.lines + audit.lost >= callers.ran, "a line, or a count, for each call")
        # There is none if the gateway looked between the two steps, or had written nothing within the last second.
        assert 1 <= audit.warnings <= ROUNDS
        audit.assert_bounded_loss(callers, copied)


def test_logrotate_that_creates_a_file_and_sends_a_hangup_loses_no_line(tmp_path: Path) -> None:
    with audited(tmp_path, tmp_path / "audit", GATEWAY_AUDIT_LOG_REQUIRED="on") as audit:
        hangup = ["postrotate", f"kill -HUP {audit.replica.pid}", "endscript"]
        logrotate = Logrotate(tmp_path, audit.path, "create 0640", "compress", "delaycompress", *hangup)
        with calling(audit.replica) as callers:
            for _ in range(ROUNDS):
                callers.wait_for(20)
                logrotate.rotate()
        wait_until(lambda: audit.lines == callers.ran, "a line for each call that ran")
        assert len(list(audit.folder.iterdir())) == ROUNDS + 1, "logrotate has found each file where it left it"
        assert not callers.broken
        assert (audit.lost, audit.warnings) == (0, 0)


def test_a_deleted_file_is_replaced_within_a_second_without_calls(tmp_path: Path) -> None:
    with audited(tmp_path, tmp_path / "audit") as audit:
        assert post(audit.replica, ECHO).status == 200
        wait_until(lambda: audit.path.exists() and audit.lines == 1, "the first line")
        audit.path.unlink()
        wait_until(audit.path.exists, "another file", seconds=5)
        assert post(audit.replica, ECHO).status == 200
        wait_until(lambda: audit.lines == 1, "the second line")
        assert audit.lost <= 1


def test_lines_that_copytruncate_loses_are_counted_and_warned_of_once_each_time(tmp_path: Path) -> None:
    with audited(tmp_path, tmp_path / "audit") as audit:
        logrotate = Logrotate(tmp_path, audit.path, "copytruncate")
        with calling(audit.replica) as callers:
            for number in range(1, 4):
                callers.wait_for(50)
                logrotate.rotate()
                audit.replica.wait_for_log("lines may be lost", count=number, file="truncated")
        audit.wait_written(callers)
        assert audit.warnings == 3
        audit.assert_bounded_loss(callers)


def test_where_every_line_is_required_each_call_that_ran_has_one_although_the_disk_was_full(
    tmp_path: Path, small_disk: Path
) -> None:
    with audited(tmp_path, small_disk, GATEWAY_AUDIT_LOG_REQUIRED="on") as audit:
        junk = small_disk / "junk"
        with calling(audit.replica) as callers:
            callers.wait_for(20)
            with contextlib.suppress(OSError):
                junk.write_bytes(b"x" * (8 << 20))  # until the disk is full
            wait_until(lambda: callers.statuses[503] > 0, "calls to be refused")
            before = callers.ran
            junk.unlink()
            wait_until(lambda: callers.ran > before + 20, "calls to run again")
        wait_until(lambda: audit.lines == callers.ran, "a line for each call that ran")
        assert audit.lost == 0
        assert set(callers.statuses) == {200, 503}


def test_where_every_line_is_required_nothing_runs_while_a_deleted_file_cannot_be_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    with audited(tmp_path, folder, GATEWAY_AUDIT_LOG_REQUIRED="on") as audit:
        assert post(audit.replica, ECHO).status == 200
        wait_until(lambda: audit.lines == 1, "the first line")
        shutil.rmtree(folder)
        wait_until(lambda: not audit.replica.is_ready(), "the replica to say that it is not ready")
        assert post(audit.replica, ECHO).error == (503, -31001)
        folder.mkdir()
        wait_until(audit.replica.is_ready, "the replica to be ready again")
        assert post(audit.replica, ECHO).status == 200
        wait_until(lambda: audit.lines == 1, "the line of the last call")
        assert audit.replica.metric("gateway_legs_total") == 2
