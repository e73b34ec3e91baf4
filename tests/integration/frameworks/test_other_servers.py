"""The recorded outcomes, which tests compare the gateway's with, are those of the installed fastmcp and SDK."""

from __future__ import annotations

import json
import subprocess

from loadtest.cluster import REPOSITORY
from tests.authoring.annotations.kinds import FOLDER

PYTHON = REPOSITORY / ".venvs" / "fastmcp" / "bin" / "python"


def test_both_libraries_still_do_what_is_recorded_for_each_annotation() -> None:
    command = [str(PYTHON), "-m", "tests.authoring.annotations.theirs"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY, timeout=100).stdout
    assert json.loads(printed) == json.loads((FOLDER / "theirs.json").read_text())
