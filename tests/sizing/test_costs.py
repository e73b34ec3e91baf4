"""Costs come from measured points, and from valid files."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from gateway.errors import ConfigurationError
from gateway.sizing.costs import KIB, MEASURED, GatewayCosts, slope, state_kib_seconds

COSTS = GatewayCosts(0.001, 0.003, 0.002, 0.0001, 300, 0.01, 0.0001, "here")


def test_a_line_through_points_has_their_slope() -> None:
    assert slope([(0, 1), (1, 3), (2, 5)]) == pytest.approx(2)
    assert slope([(0, 0), (1, 1), (2, 0)]) == pytest.approx(0)
    with pytest.raises(ValueError, match="two different x"):
        slope([(1, 1), (1, 2)])


def test_each_kib_of_state_costs_what_larger_states_cost_more() -> None:
    assert state_kib_seconds({0: 0.001, 10 * KIB: 0.0015, 20 * KIB: 0.002}) == pytest.approx(0.00005)


def test_a_call_costs_its_legs_and_each_state_twice() -> None:
    assert COSTS.call_seconds(0, 0) == 0.001
    assert COSTS.call_seconds(0.5, 300) == pytest.approx(0.002)
    assert COSTS.call_seconds(1, 300) == pytest.approx(0.003)
    assert COSTS.call_seconds(3, 300) == pytest.approx(0.001 + 2 * 0.003 + 0.002)
    assert COSTS.call_seconds(2, 300 + KIB) == pytest.approx(0.006 + 4 * 0.0001)


def test_saved_costs_are_loaded(tmp_path: Path) -> None:
    COSTS.save(tmp_path / "costs.json")
    assert GatewayCosts.load(tmp_path / "costs.json") == COSTS


def test_the_costs_that_come_with_it_are_costs() -> None:
    assert GatewayCosts.load(MEASURED).measured_on


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        json.dumps({**asdict(COSTS), "more": 1}),
        json.dumps(asdict(replace(COSTS, last_leg_seconds=-1.0))),
        json.dumps({**asdict(COSTS), "redis_seconds": "fast"}),
    ],
)
def test_a_file_without_costs_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="costs"):
        GatewayCosts.load(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nowhere"):
        GatewayCosts.load(tmp_path / "nowhere.json")
