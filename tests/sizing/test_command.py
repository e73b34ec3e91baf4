"""The command `gateway size`: its output and the values that it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.cli.main import main
from gateway.sizing.costs import GatewayCosts


def test_a_million_users_are_sized(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", "--users", "1000000", "--task-share", "0.1"]) == 0

    said = capsys.readouterr().out
    assert "16,667 a second, 1,667 of them tasks" in said
    for line in ("replicas", "workers", "Redis", "repeated nonce", "If a zone is lost"):
        assert line in said


def test_the_load_that_no_option_describes_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size"]) == 0
    _, _, assumed = capsys.readouterr().out.partition("\nAssumed, because no option says otherwise\n")
    named = assumed.split()
    assert named[:3] == ["--users=100000", "--call-every-seconds=60", "--rounds=1"]
    assert named[-3:] == ["--tool-cpu-seconds=0", "--tool-wait-seconds=0.05", "--task-share=0"]

    assert main(["size", "--users", "50", "--rounds", "2", "--task-share", "0.5"]) == 0
    _, _, assumed = capsys.readouterr().out.partition("\nAssumed, because no option says otherwise\n")
    assert "--users" not in assumed
    assert "--rounds" not in assumed
    assert "--task-seconds=10" in assumed.split()


def test_a_deployment_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", "--json", "--users", "60", "--zones", "1", "--legs-per-second", "200"]) == 0

    deployment = json.loads(capsys.readouterr().out)
    assert deployment["capacity"] == 200
    assert deployment["replicas"]["count"] == 2
    assert deployment["lost_zone"] is None


def test_costs_may_be_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "costs.json"
    GatewayCosts(0.01, 0.01, 0.01, 0.001, 300, 0.01, 0.001, "a slow machine").save(path)

    assert main(["size", "--costs", str(path), "--state-bytes", "300"]) == 0
    assert "one replica      serves 100 legs a second" in capsys.readouterr().out
    path.write_text("{}")
    assert main(["size", "--costs", str(path)]) == 2
    assert f"gateway: cannot read costs from {path}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--users", "0"],
        ["--users", "inf"],
        ["--users", "-5"],
        ["--zones", "1.5"],
        ["--utilization", "1"],
        ["--task-share", "1.1"],
        ["--upgrade-share", "1"],
        ["--legs-per-second", "0"],
    ],
)
def test_impossible_values_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["size", *arguments])

    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--task-share", "1"], ["--users", "1e9", "--zones", "1"]])
def test_extreme_values_are_sized(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", *arguments]) == 0
    assert "replicas" in capsys.readouterr().out
