"""The repository keeps its habits: what is documented exists, what is pinned is used, nothing local leaks in."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())
PINS = sorted(path.relative_to(TOP) for path in [TOP / "constraints.txt", *TOP.glob("*/peers/*/constraints.txt")])
OTHER_GENERATION = {Path("tests/peers/mcp1/constraints.txt"): {"mcp"}}
"""What a peer is there for in another version than ours."""


def tracked_files() -> list[Path]:
    """The files under version control or about to be; all files outside a repository."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    )
    return [TOP / name for name in listing.stdout.split("\0") if name and (TOP / name).is_file()]


def tracked_lines() -> Iterator[tuple[str, str]]:
    for path in tracked_files():
        if path != Path(__file__):
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                yield f"{path.relative_to(TOP)}:{number}", line


def canonical(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(file: Path) -> dict[str, str]:
    lines = [line for line in (TOP / file).read_text().splitlines() if not line.startswith("#")]
    return {canonical(name): version for name, _, version in (line.partition("==") for line in lines)}


def required(requirements: list[str]) -> set[str]:
    return {canonical(re.split(r"[^A-Za-z0-9._-]", requirement)[0]) for requirement in requirements}


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
    local = re.compile(r"(?<![\w.])/(?:root|work|farm|home|Users|tmp/\w+)/")
    found = [(place, line) for place, line in tracked_lines() if local.search(line)]
    assert found == []


def test_no_file_names_a_package_registry() -> None:
    registry = re.compile(
        r"(?:pypi\.org|pythonhosted\.org|npmjs\.org|(?:index|registry|find-links)[-_a-z]*[\"']?\s*[=:]\s*[\"']?\w+://)"
    )
    found = [(place, line) for place, line in tracked_lines() if registry.search(line)]
    assert found == []


@pytest.mark.parametrize("file", PINS, ids=str)
def test_constraints_pin_one_exact_version_each_and_nothing_else(file: Path) -> None:
    lines = [line for line in (TOP / file).read_text().splitlines() if not line.startswith("#")]
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.+!]+", line)] == []


def test_every_dependency_is_pinned() -> None:
    project = PROJECT["project"]
    extras = [requirement for extra in project["optional-dependencies"].values() for requirement in extra]
    build = PROJECT["build-system"]["requires"]
    assert required([*project["dependencies"], *extras, *build]) - pins(Path("constraints.txt")).keys() == set()


@pytest.mark.parametrize("file", [file for file in PINS if file != Path("constraints.txt")], ids=str)
def test_a_peer_runs_on_our_versions_of_what_it_shares_with_us(file: Path) -> None:
    ours, theirs = pins(Path("constraints.txt")), pins(file)
    shared = theirs.keys() & ours.keys() - OTHER_GENERATION.get(file, set())
    assert {name: theirs[name] for name in shared} == {name: ours[name] for name in shared}


def test_every_dependency_is_explained() -> None:
    explained = set(re.findall(r"`([\w.-]+)`", (TOP / "docs/dependencies.md").read_text()))
    assert required(PROJECT["project"]["dependencies"]) - {canonical(name) for name in explained} == set()


def test_the_changelog_begins_with_the_version_of_the_project() -> None:
    versions = re.findall(r"^## \[(.+?)\]", (TOP / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == PROJECT["project"]["version"]


def test_ci_does_what_make_ci_does() -> None:
    lines = (TOP / ".ci/run").read_text().splitlines()
    assert lines[-1] == "exec make --no-print-directory ci"
