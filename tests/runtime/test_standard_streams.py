"""A process that is started without standard streams works, and says what it has to say if it can."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.locked_lists import TOP

REPORT = """
import os, sys
from gateway.runtime.standard_streams import open_standard_streams
open_standard_streams()
taken = [os.get_inheritable(number) for number in (0, 1, 2)]
with open(sys.argv[1], "w") as file:
    print(file.fileno() > 2, taken, sys.stdin.read(), file=file)
print("told", file=sys.stderr)
"""


def run(closed: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a Python command without these streams."""
    environ = {**os.environ, "PYTHONPATH": str(TOP)}
    line = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, *command]
    return subprocess.run(
        line, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-", ""])
def test_no_file_gets_the_number_of_a_closed_stream(closed: str, tmp_path: Path) -> None:
    report = tmp_path / "report"
    done = run(closed, "-c", REPORT, str(report))
    assert done.returncode == 0
    assert report.read_text() == "True [True, True, True] \n"
    told = {"stdout": done.stdout, "stderr": done.stderr}
    heard = {"2>&-": ["stdout"], "<&- 2>&-": ["stdout"], ">&- 2>&-": [], "<&- >&- 2>&-": []}.get(closed, ["stderr"])
    assert [name for name, text in told.items() if text == "told\n"] == heard


def test_a_command_without_stderr_says_on_stdout_what_is_wrong() -> None:
    done = run("2>&-", "-m", "gateway", "serve", "--tools", "no_such_tools")
    assert done.returncode == 2
    assert "gateway: no module named 'no_such_tools'" in done.stdout
