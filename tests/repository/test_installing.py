"""Installed packages are checked against the hashes of the lists, as `make` does it."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from scripts.pip_progress import Progress
from tests.locked_lists import TOP, entries

pytestmark = pytest.mark.slow

SMALL = "iniconfig"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with pip and nothing else."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/*/site-packages")
    (packages / "pip").symlink_to(Path(sysconfig.get_path("purelib")) / "pip")
    return folder


def install(folder: Path, lines: str) -> subprocess.CompletedProcess[str]:
    """Install from a list as the Makefile does."""
    file = folder.parent / "list.txt"
    file.write_text(lines)
    command = ["sh", "scripts/venv.sh", str(folder), str(file)]
    return subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)


def installed(folder: Path) -> bool:
    return any(folder.glob(f"lib/*/site-packages/{SMALL}"))


def test_a_file_with_another_hash_than_that_of_the_list_is_not_installed(folder: Path) -> None:
    entry = entries(Path("locked/development.txt"))[SMALL]
    changed = re.sub("sha256:(.)", lambda found: f"sha256:{int(found[1], 16) ^ 1:x}", entry)
    refused = install(folder, changed)
    assert refused.returncode != 0
    assert "DO NOT MATCH THE HASHES" in refused.stderr
    assert not installed(folder)
    done = install(folder, entry)
    assert done.returncode == 0, done.stderr
    assert ": 1 package checked, 1 installed (" in done.stderr
    assert installed(folder)


def test_what_has_no_hash_in_the_list_is_not_installed(folder: Path) -> None:
    refused = install(folder, "attrs\n")
    assert refused.returncode != 0
    assert "--require-hashes" in refused.stderr


def test_make_installs_from_lists_alone_and_what_is_ours_without_what_it_needs() -> None:
    text = (TOP / "scripts/venv.sh").read_text()
    assert len(re.findall(r"^.*\bpip install .*$", text, re.MULTILINE)) == 2
    assert "pip install --require-hashes --no-deps --only-binary :all: $lists" in text
    assert 'pip install --no-deps --no-build-isolation "$@"' in text


def test_it_shows_how_many_packages_it_has_fetched_and_installed(tmp_path: Path) -> None:
    progress = Progress("here", 3, tmp_path)
    assert progress.told().startswith("here: 0 of 3 packages fetched (")
    said = ["Collecting a==1 (from -r list (line 1))", "  Downloading a-1.whl", "Ignoring b: markers 'x' don't match"]
    progress.read([*said, "Requirement already satisfied: c==1"])
    assert progress.told().startswith("here: 2 of 2 packages fetched (")
    progress.read(["Installing collected packages: a, c"])
    (tmp_path / "a-1.dist-info").mkdir()
    assert progress.told().startswith("here: 1 of 2 packages installed (")
    assert progress.told_at_end().startswith("here: 2 packages checked, 2 installed (")
