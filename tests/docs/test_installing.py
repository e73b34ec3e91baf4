"""The package, installed outside the checkout as in the README, has everything that the documents promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.checkout import copy_sources
from tests.docs.markdown import text_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]  # a build comes first

INSTALL: Final = re.compile(r"^\$ (pip wheel .+ \.\./sealed-gateway)\n\$ (pip install wheels/\S+\.whl)$", re.MULTILINE)
SIZED: Final = re.compile(r"^\$ gateway (size .+)\n((?s:.*?))^```$", re.MULTILINE)
PIP_ALONE: Final = {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
SECONDS: Final = 200


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project next to a copy of the checkout, with the package installed; its dependencies exist already.

    The copy keeps the build out of the checkout.
    """
    top = tmp_path_factory.mktemp("installed")
    checkout, project = top / "sealed-gateway", top / "project"
    project.mkdir()
    checkout.mkdir()
    copy_sources(checkout)
    ((build, install),) = INSTALL.findall(text_of("README.md"))
    pip = f'pip() {{ "{sys.executable}" -m pip "$@"; }}'
    commands = f"{build} --no-build-isolation\n{install} --no-deps --no-compile --target packages"
    in_project(project, ["bash", "-euc", f"{pip}\n{commands}"])
    return project


def in_project(project: Path, command: list[str], environ: Mapping[str, str] = {}) -> str:
    """Run a command in the project with the installed package, and return its output."""
    done = subprocess.run(
        command,
        cwd=project,
        env={"PATH": os.environ["PATH"], "HOME": str(project), **PIP_ALONE, **environ},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def installed(project: Path, *command: str) -> str:
    packages = str(project / "packages")
    return in_project(project, [sys.executable, *command], {"PYTHONPATH": packages, "PYTHONSAFEPATH": "1"})


def test_the_readme_installs_the_package(project: Path) -> None:
    where = installed(project, "-c", "import gateway; print(gateway.__file__)")
    assert Path(where.strip()) == project / "packages/gateway/__init__.py"
    assert (project / "packages/bin/gateway").exists()


def test_a_deployment_is_sized_without_a_checkout(project: Path) -> None:
    found = SIZED.search(text_of("docs/run/sizing.md"))
    assert found
    assert installed(project, "-m", "gateway", *found[1].split()) == found[2]
