"""The cost of requests is counted, and changes only if somebody accepts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.counts.accepted import Accepted, differs
from bench.counts.functions import changed, count_before, in_words
from bench.counts.run import Counted
from bench.counts.shares import BASES, LEAST_PERCENT, compiled_modules, largest_shares, leaving

pytestmark = pytest.mark.slow

TOP = Path(__file__).resolve().parents[2]
NOTHING_ACCEPTED = 3


def run_uncovered(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python without coverage: only one tool can trace, and the work of coverage would be counted."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "GATEWAY_"))}
    return subprocess.run(
        [sys.executable, *arguments], cwd=TOP, env=environment, capture_output=True, text=True, check=False
    )


def test_requests_cost_what_is_accepted() -> None:
    done = run_uncovered("-m", "bench.counts")
    if done.returncode == NOTHING_ACCEPTED:
        pytest.skip(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr


def counted(instructions: int, *, peak_bytes: int = 10_000) -> Counted:
    numbers = {"python_calls": 100, "builtin_calls": 100, "instructions": instructions, "peak_bytes": peak_bytes}
    return Counted(numbers, {})


def accepting(**cases: Counted) -> Accepted:
    accepted = Accepted()
    accepted.lower(cases)
    return accepted


@pytest.mark.parametrize(("now", "differs"), [(5099, False), (5101, True), (4901, False), (4899, True)])
def test_two_percent_more_or_less_are_reported(now: int, differs: bool) -> None:
    found = list(accepting(echo=counted(5000)).differences({"echo": counted(now)}))
    assert bool(found) == differs
    assert [difference.is_worse for difference in found] == [now > 5000] * differs


def test_small_numbers_may_differ_by_an_insignificant_amount() -> None:
    assert not differs("python_calls", 20, 23)
    assert differs("python_calls", 20, 24)


def test_a_difference_names_its_case_and_its_size() -> None:
    (difference,) = accepting(echo=counted(5000)).differences({"echo": counted(5300)})
    assert str(difference) == "echo: instructions 5,000 -> 5,300 (+6.0%)"


def test_the_functions_that_a_difference_comes_from_are_named_the_largest_first() -> None:
    found = changed(
        {"seal": 2000, "open": 2000, "gone": 50, "same": 950}, {"seal": 2290, "open": 2010, "new": 50, "same": 950}
    )
    assert found == {"seal": (2000, 2290), "gone": (50, 0), "new": (0, 50), "open": (2000, 2010)}
    assert in_words(found) == "seal +290, gone -50, new +50, open +10"


def test_without_a_commit_that_accepted_the_numbers_no_functions_are_named(tmp_path: Path) -> None:
    assert count_before(tmp_path / "numbers.json") == {}


def test_the_share_of_a_module_is_the_largest_that_it_has_of_a_leg() -> None:
    legs = {
        "echo": Counted({}, {"gateway.a:f": 9, "gateway.a:g": 1, "gateway.b:f": 5, "asyncio.tasks:f": 985}),
        "leg 2": Counted({}, {"gateway.b:f": 50, "bench.tools:f": 950}),
    }
    shares = largest_shares(legs)
    assert shares == {"gateway/a.py": 1.0, "gateway/b.py": 5.0}
    assert leaving(shares, {"gateway/a.py": 3.0, "gateway/c.py": 2.0}) == ["gateway/c.py"]


def test_each_compiled_module_has_its_share_of_a_leg_beside_it() -> None:
    assert min(share for module, share in compiled_modules().items() if module not in BASES) >= LEAST_PERCENT


def test_no_compiled_module_has_fallen_below_that_share() -> None:
    done = run_uncovered("-m", "bench.counts", "--shares")
    assert done.returncode == 0, done.stdout + done.stderr


def test_new_and_removed_cases_are_reported() -> None:
    found = accepting(old=counted(5000)).differences({"new": counted(5000)})
    assert {str(difference) for difference in found} == {"new: is new", "old: is no longer counted"}


def test_accepted_numbers_fall_but_never_rise_without_a_reason() -> None:
    accepted = accepting(echo=counted(5000, peak_bytes=9000))
    accepted.lower({"echo": counted(4000, peak_bytes=9100)})
    assert accepted.numbers["echo"]["instructions"] == 4000
    assert accepted.numbers["echo"]["peak_bytes"] == 9000


def test_a_number_rises_for_a_reason_that_is_kept() -> None:
    accepted = accepting(echo=counted(5000))
    accepted.replace({"echo": counted(6000)}, "legs are traced")
    assert accepted.numbers["echo"]["instructions"] == 6000
    assert accepted.raised == [{"reason": "legs are traced", "cases": {"echo: instructions": [5000, 6000]}}]


def test_what_is_written_is_read_again_beside_other_versions_of_python(tmp_path: Path) -> None:
    file = tmp_path / "numbers.json"
    first = accepting(echo=counted(5000), call=counted(7000))
    second = accepting(echo=counted(4000))
    second.replace({"echo": counted(9000)}, "why not")
    first.save("3.11", file)
    second.save("3.12", file)
    assert Accepted.load("3.11", file) == first
    assert Accepted.load("3.12", file) == second
    assert Accepted.load("3.13", file) == Accepted()


METERS = """
from bench.counts.meters import Calls, Instructions

def twice(number):
    return len(str(number)) + len(str(number))

calls, instructions = Calls(), Instructions()
for meter in (calls, instructions):
    meter.start()
    twice(7)
    meter.stop()
    twice(7)
print(calls.python, calls.builtin >= 2, len(instructions.by_function()), instructions.total > 10)
"""


def test_the_meters_count_what_is_between_start_and_stop() -> None:
    assert run_uncovered("-c", METERS).stdout == "1 True 1 True\n"
