"""Each test belongs to one target of the Makefile, and `make ci` runs them all."""

from __future__ import annotations

import functools
import itertools
import re
import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.locked_lists import TOP

MAKEFILE = (TOP / "Makefile").read_text()
OTHERS = ("check", "conformance", "published", "agents", "proxies", "releases", "playground", "loadtest", "sbom")
"""The targets that run tests with pytest, besides `test` and `slow`."""

NOT_IN_CI = {"sbom", "agents", "published"}
RUN_BY_OTHERS = ("tests/chaos/",)
"""Tests that a command of their own runs; `tests/repository/test_repository.py` tests its list."""

FILES = sorted(str(file.relative_to(TOP)) for file in TOP.glob("tests/**/test_*.py"))
MARKED = {file for file in FILES if f"mark.{'slow'}" in (TOP / file).read_text()}


class Run(NamedTuple):
    """A run of pytest.

    Attributes:
        marks: the expression that selects tests by their marks; empty for all.
        paths: what it runs.
        ignored: what it leaves out.
    """

    marks: str
    paths: tuple[str, ...]
    ignored: tuple[str, ...]

    def has(self, file: str) -> bool:
        """Return whether it runs a file, or the tests of it that its marks select."""
        return is_in(file, self.paths) and not is_in(file, self.ignored)

    def takes(self, **marks: bool) -> bool:
        """Return whether it runs a test with these marks."""
        return not self.marks or bool(eval(self.marks, {}, marks))


def is_in(file: str, places: tuple[str, ...]) -> bool:
    return any(Path(file).is_relative_to(place) for place in places)


def run_of(command: str) -> Run:
    words = shlex.split(command)
    marks = [after for word, after in itertools.pairwise(words) if word == "-m"]
    paths = tuple(word for word in words if word.startswith("tests"))
    ignored = tuple(word.removeprefix("--ignore=") for word in words if word.startswith("--ignore="))
    return Run("".join(marks), paths or ("tests",), ignored)


@functools.cache
def runs_of(target: str) -> tuple[Run, ...]:
    """Return the runs of pytest that a target would start."""
    told = subprocess.run(["make", "--dry-run", target], cwd=TOP, capture_output=True, text=True, check=True).stdout
    return tuple(run_of(command) for command in re.findall(r"-m pytest (.*?)(?= && |$)", told, re.MULTILINE))


def recipe_of_ci() -> str:
    found = re.search(r"^ci:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert found is not None
    return found[1]


def other_runs() -> set[Run]:
    """Return the runs besides `make test` and `make slow`; `make check` repeats an outdated `make test`."""
    after_docs = re.findall(r"^AFTER_DOCS := (.*)$", MAKEFILE, re.MULTILINE)
    found = {run for target in OTHERS for run in runs_of(target)}
    return {*found, *map(run_of, after_docs)} - {*runs_of("test"), *runs_of("slow")}


def test_make_test_and_make_slow_divide_the_tests_by_their_marks() -> None:
    (quick,), (slow,) = runs_of("test"), runs_of("slow")
    for marked, repeats in itertools.product([False, True], repeat=2):
        taken = [run.takes(slow=marked, repeats=repeats) for run in (quick, slow)]
        assert taken == [not marked and not repeats, marked and not repeats]


def test_make_slow_runs_the_files_that_have_the_mark_and_no_others() -> None:
    (slow,) = runs_of("slow")
    assert MARKED
    assert {*slow.paths} == MARKED


def test_make_test_leaves_out_no_file_that_is_not_marked_as_a_whole() -> None:
    (quick,), (slow,) = runs_of("test"), runs_of("slow")
    as_a_whole = re.compile(r"^pytestmark = .*mark\.slow", re.MULTILINE)
    left_out = [file for file in slow.paths if not quick.has(file)]
    assert [file for file in left_out if not as_a_whole.search((TOP / file).read_text())] == []


def test_each_file_of_tests_is_run_by_one_target() -> None:
    (quick,), (slow,) = runs_of("test"), runs_of("slow")
    for file in FILES:
        if not file.startswith(RUN_BY_OTHERS):
            others = [run for run in other_runs() if run.has(file)]
            ours = quick.has(file) or slow.has(file)
            assert ours + len(others) == 1, (file, others)


def test_a_mark_that_a_module_lends_to_others_would_be_overlooked() -> None:
    """`make slow` looks for the mark in the files of tests alone."""
    lenders = [file for file in TOP.glob("tests/**/*.py") if not file.name.startswith("test_")]
    assert [file for file in lenders if f"mark.{'slow'}" in file.read_text()] == []


def test_make_ci_runs_every_target_that_has_tests() -> None:
    recipe = recipe_of_ci()
    called = re.findall(r"\$\(MAKE\) --no-print-directory (?:--directory \S+ )?(\w+)", recipe)
    wanted = ["test", "slow", *(target for target in OTHERS if target not in NOT_IN_CI), "chaos"]
    assert sorted(called) == sorted({*called})
    assert {*wanted} - {*called} == set()
    assert "pytest -n 2 $(AFTER_DOCS)" in recipe


def test_make_ci_repeats_what_no_other_target_runs() -> None:
    assert '-m "repeats or hypothesis" $(REPEATED)' in recipe_of_ci()
    (places,) = re.findall(r"^REPEATED := \$\(addprefix tests/,(.*)\)$", MAKEFILE, re.MULTILINE)
    repeating = [file for file in TOP.glob("tests/**/*.py") if f"mark.{'repeats'}" in file.read_text()]
    folders = {file.relative_to(TOP / "tests").parts[0] for file in repeating}
    assert folders - {*places.split()} == set()
