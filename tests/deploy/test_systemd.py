"""The units for systemd, read as systemd reads them, and what they promise about the processes."""

from __future__ import annotations

import configparser
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.settings.model import Settings
from loadtest.cluster.common import find_program
from tests.deploy.files import DEPLOY, MARGIN_SECONDS, WORKER_LAST_WRITES_SECONDS

pytestmark = pytest.mark.slow

UNITS = DEPLOY / "systemd"
REPLICA, WORKER = UNITS / "sealed-gateway.service", UNITS / "sealed-gateway-worker@.service"
PROGRAM = "/opt/gateway/bin/gateway"


def section(unit: Path, name: str = "Service") -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(unit)
    return parser[name]


@pytest.mark.parametrize("unit", [REPLICA, WORKER], ids=lambda unit: unit.name)
def test_systemd_finds_nothing_wrong(unit: Path, tmp_path: Path) -> None:
    program = tmp_path / "gateway"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copy = tmp_path / unit.name.replace("@", "@1")
    copy.write_text(unit.read_text().replace(PROGRAM, str(program)))
    analyze = find_program("systemd-analyze", package="systemd")
    found = subprocess.run(
        [analyze, "verify", "--man=no", "--recursive-errors=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


@pytest.mark.parametrize("unit", [REPLICA, WORKER], ids=lambda unit: unit.name)
def test_a_unit_reloads_by_the_signal_that_reads_files_again_and_is_notified(unit: Path) -> None:
    service = section(unit)
    assert service["Type"] == "notify"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"


@pytest.mark.parametrize("unit", [REPLICA, WORKER], ids=lambda unit: unit.name)
def test_the_command_of_a_unit_exists(unit: Path) -> None:
    """Without settings it ends before it serves, and blames them, not its options."""
    program, *command = shlex.split(section(unit)["ExecStart"])
    assert program == PROGRAM
    done = subprocess.run(
        [sys.executable, "-m", "gateway", *command], env={}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "GATEWAY_SEAL_KEYS: not set" in done.stderr


def test_systemd_waits_until_a_process_has_drained() -> None:
    settings = Settings()
    replica = settings.drain_notice_seconds + settings.drain_seconds + 2
    worker = settings.drain_seconds + WORKER_LAST_WRITES_SECONDS
    assert float(section(REPLICA)["TimeoutStopSec"]) >= replica + MARGIN_SECONDS
    assert float(section(WORKER)["TimeoutStopSec"]) >= worker + MARGIN_SECONDS
