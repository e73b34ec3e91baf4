"""Curves are judged by how they grow, memory by whether it keeps growing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.goals import REPLAY_A_KEY, REPLAY_EXPONENT
from bench.growth import ANSWERS, Curve, fit, summary
from bench.memory import judge

pytestmark = pytest.mark.slow

SIZES = (1, 2, 4, 8, 16, 32, 64)


def test_what_grows_in_proportion_has_the_slope_of_its_line_and_an_exponent_of_at_most_one() -> None:
    found = fit(SIZES, [100 + 10 * size for size in SIZES])
    assert found.start == pytest.approx(100)
    assert found.slope == pytest.approx(10)
    assert 0.5 < found.exponent < 1


def test_what_grows_with_the_square_has_a_larger_exponent_whatever_nothing_costs() -> None:
    assert fit(SIZES, [100 + size**2 for size in SIZES]).exponent > 1.1


def test_what_does_not_grow_has_none() -> None:
    assert fit(SIZES, [100.0] * len(SIZES))[1:] == (0, 0, 1)


def curve(name: str, costs: list[float], *, is_flat: bool) -> Curve:
    return Curve(name, "keys", SIZES, is_flat, rounds=[[cost * 2 for cost in costs], costs])


def test_the_report_names_what_grows_too_much(tmp_path: Path) -> None:
    curves = [
        curve(ANSWERS, [100.0 + 9 * size for size in SIZES], is_flat=False),
        curve("state", [100.0 + size**2 for size in SIZES], is_flat=False),
        curve("tools", [100.0 + size for size in SIZES], is_flat=True),
    ]
    report = summary(curves, tmp_path)
    assert {verdict.goal.what: verdict.met for verdict in report.verdicts} == {
        REPLAY_EXPONENT.what: True,
        "more state: exponent": False,
        "more tools: the largest compared with the smallest": False,
        REPLAY_A_KEY.what: True,
    }
    assert (tmp_path / "growth.svg").read_text().count("<svg") == 1


@pytest.mark.parametrize(
    ("mib", "met"),
    [
        pytest.param([60, 70, 75, 78, 80, 80, 80.1, 80, 80.1, 80], True, id="levels off"),
        pytest.param([60, 61, 62, 63, 64, 65, 66, 67, 68, 69], False, id="keeps growing"),
    ],
)
def test_memory_may_grow_only_until_it_is_warm(mib: list[float], met: bool) -> None:
    assert judge("a replica", mib).met == met
