"""The repository is consistent: documented things exist, pinned versions are used, and nothing local leaks in."""

from __future__ import annotations

import functools
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.chaos.run import FAULTS
from tests.locked_lists import LISTS, TOP, canonical, entries, pins, required

PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())
PEERS = [file for file in LISTS if "peers" in file.parts]
DEVELOPMENT = Path("locked/development.txt")
OTHER_GENERATION = {
    Path("tests/peers/mcp1/locked.txt"): {"mcp"},
    Path("tests/peers/mcp1-2025-03/locked.txt"): {"mcp", "pydantic", "pydantic-core"},
    Path("tests/peers/langchain/locked.txt"): {"mcp"},
    Path("tests/peers/google-adk/locked.txt"): {
        "opentelemetry-api",
        "opentelemetry-sdk",
        "opentelemetry-semantic-conventions",
    },
}
"""Packages that a peer has, or needs, in another version than ours."""


@functools.cache
def tracked_texts() -> list[tuple[Path, str]]:
    """Return the files under version control or about to be, except this one, with their texts."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [TOP / name for name in listing.stdout.split("\0") if name and (TOP / name).is_file()]
    return [(path, path.read_text(errors="replace")) for path in paths if path != Path(__file__)]


def places_of(pattern: str) -> list[tuple[str, str]]:
    """Return where tracked files have a pattern: each place, and what is found there."""
    return [
        (f"{path.relative_to(TOP)}:{text.count(chr(10), 0, found.start()) + 1}", found[0])
        for path, text in tracked_texts()
        for found in re.finditer(pattern, text)
    ]


def test_every_make_target_is_listed_by_make_help() -> None:
    makefile = (TOP / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    listed = subprocess.run(["make", "help"], cwd=TOP, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^  make (\w+) +\S", listed, re.MULTILINE)) == set(phony.split())


def test_make_without_a_target_shows_the_help() -> None:
    texts = [
        subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=True).stdout
        for command in (["make"], ["make", "help"])
    ]
    assert texts[0] == texts[1] != ""


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    assert places_of(r"/(?<![\w.]/)(?:root|work|farm|home|Users|tmp/\w+)/") == []


def test_no_file_names_a_package_registry() -> None:
    registry = r"pypi\.org|pythonhosted\.org|npmjs\.org|(?:index|registry|find-links)[-_a-z]*[\"']?[ \t]*[=:][ \t]*[\"']?\w+://"
    assert places_of(registry) == []


@pytest.mark.parametrize("file", LISTS, ids=str)
def test_lists_name_one_exact_version_each_with_hashes_and_nothing_else(file: Path) -> None:
    assert entries(file)


def test_constraints_have_the_versions_that_are_developed_with_and_nothing_else() -> None:
    lines = [line for line in (TOP / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.+!]+", line)] == []
    versions = {canonical(name): version for name, _, version in (line.partition("==") for line in lines)}
    assert versions == pins(DEVELOPMENT)


def test_every_dependency_is_pinned() -> None:
    project = PROJECT["project"]
    extras = [requirement for extra in project["optional-dependencies"].values() for requirement in extra]
    build = PROJECT["build-system"]["requires"]
    assert required([*project["dependencies"], *extras, *build]) - pins(DEVELOPMENT).keys() == set()


@pytest.mark.parametrize("file", [*PEERS, Path("locked/image.txt"), Path("locked/build.txt")], ids=str)
def test_what_is_installed_elsewhere_has_our_versions_of_what_it_shares_with_us(file: Path) -> None:
    ours, theirs = pins(DEVELOPMENT), pins(file)
    shared = theirs.keys() & ours.keys() - OTHER_GENERATION.get(file, set())
    assert {name: theirs[name] for name in shared} == {name: ours[name] for name in shared}


def test_every_dependency_is_explained() -> None:
    explained = set(re.findall(r"`([\w.-]+)`", (TOP / "docs/understand/dependencies.md").read_text()))
    assert required(PROJECT["project"]["dependencies"]) - {canonical(name) for name in explained} == set()


def test_the_changelog_begins_with_the_version_of_the_project() -> None:
    versions = re.findall(r"^## \[(.+?)\]", (TOP / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == PROJECT["project"]["version"]


def test_ci_does_what_make_ci_does() -> None:
    lines = (TOP / ".ci/run").read_text().splitlines()
    assert lines[-1] == "exec make --no-print-directory ci"


def test_every_test_that_chaos_runs_exists() -> None:
    for name in {name for tests in FAULTS.values() for name in tests}:
        path, _, test = name.partition("::")
        assert not test or re.search(rf"^(?:async )?def {test}\(", (TOP / path).read_text(), re.MULTILINE), name
        assert (TOP / path).is_file(), name
