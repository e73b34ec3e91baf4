"""Everything that `docs/run/sizing.md` names exists. `test_installing.py` compares the output that it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.cli.main import main
from gateway.sealing.cipher import DEFAULT_CACHE_SIZE
from gateway.sealing.envelope import SEALS_PER_PREFIX
from gateway.settings.model import Settings, known_variables
from gateway.sizing import model
from gateway.sizing.costs import MEASURED, GatewayCosts
from loadtest.__main__ import main as loadtest

TOP = Path(__file__).resolve().parent.parent.parent
TEXT = (TOP / "docs/run/sizing.md").read_text()


def test_every_option_that_is_named_exists(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (main, loadtest):
        with pytest.raises(SystemExit):
            command(["size", "--help"])
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    assert set(re.findall(r"`(?:.*size )?(--[a-z-]+)", TEXT)) - {"--help"} <= options


def test_the_costs_are_those_that_are_used() -> None:
    costs = GatewayCosts.load(MEASURED)
    for seconds in (costs.first_leg_seconds, costs.middle_leg_seconds, costs.last_leg_seconds, costs.redis_seconds):
        assert f"| {1e6 * seconds:.0f} µs |" in TEXT
    assert f"| {1e6 * costs.state_kib_seconds:.1f} µs |" in TEXT
    assert f"| {1e3 * costs.task_seconds:.1f} ms |" in TEXT


def test_what_is_said_of_the_gateway_is_so() -> None:
    assert set(re.findall(r"GATEWAY_[A-Z_]+", TEXT)) <= set(known_variables())
    assert model.SEALS_PER_PREFIX == SEALS_PER_PREFIX
    assert model.PREFIXES_REMEMBERED == DEFAULT_CACHE_SIZE
    policy = model.Policy()
    for setting, value in {
        "worker_concurrency": policy.worker_concurrency,
        "task_lease_seconds": policy.lease_seconds,
        "task_partitions": policy.partitions,
        "state_ttl_seconds": policy.state_ttl_seconds,
    }.items():
        assert Settings.model_fields[setting].default == value


@pytest.mark.parametrize(("per_second", "years"), re.findall(r"^\| ([\d,]+) \| ([\d,.]+) years \|", TEXT, re.MULTILINE))
def test_years_are_those_that_the_model_says(per_second: str, years: str) -> None:
    rate = float(per_second.replace(",", ""))
    demand = model.Demand(users=rate, call_every_seconds=1)
    use = model.size(demand, model.Policy(), GatewayCosts.load(MEASURED)).key_use
    assert use.safe_years == pytest.approx(float(years.replace(",", "")), rel=0.05)
