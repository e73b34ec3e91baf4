"""The previous release is installed from the commit that the file names, once, or one line says why it is not."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from loadtest.cluster import REPOSITORY
from tests.releases import environment
from tests.releases.environment import NAMED, THIS, previous

NOWHERE = "0123456789" * 4


def install(folder: Path, commit: str, clone: Path) -> subprocess.CompletedProcess[str]:
    """Install a release as the Makefile does, from a clone."""
    named = folder.with_suffix(".txt")
    named.write_text(f"{commit}\n0.1.9\n")
    command = ["sh", str(REPOSITORY / "scripts/previous.sh"), str(folder), str(named)]
    return subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)


def test_the_previous_release_is_the_one_before_this_one_in_the_changelog() -> None:
    versions = re.findall(r"^## \[(.+?)\]", (REPOSITORY / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[:2] == [THIS.version, NAMED.read_text().split()[1]]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone without commits and without an origin."""
    subprocess.run(["git", "init", "--quiet", tmp_path / "clone"], check=True)
    return tmp_path / "clone"


def test_a_commit_that_is_nowhere_costs_one_line(tmp_path: Path, clone: Path) -> None:
    done = install(tmp_path / "previous", NOWHERE, clone)
    assert done.returncode == 2
    assert done.stderr == f"Release 0.1.9 is missing: neither this clone nor its origin has commit {NOWHERE}.\n"


def test_what_is_installed_stays_until_another_commit_is_named(tmp_path: Path, clone: Path) -> None:
    folder = tmp_path / "previous"
    folder.mkdir()
    (folder / "commit").write_text(f"{NOWHERE}\n")
    assert install(folder, NOWHERE, clone).returncode == 0
    assert install(folder, NOWHERE[::-1], clone).returncode == 2


def test_a_release_that_is_not_installed_is_never_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "INSTALLED", tmp_path)
    with pytest.raises(RuntimeError, match="is not installed"):
        previous()
    (tmp_path / "commit").write_text(f"{NOWHERE}\n")
    with pytest.raises(RuntimeError, match="run make releases"):
        previous()
    (tmp_path / "commit").write_text(NAMED.read_text().split()[0])
    assert previous().version == NAMED.read_text().split()[1]
