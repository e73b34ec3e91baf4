"""`gateway completion`: the scripts that complete its commands and options in a shell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli.main import SHELLS, main

COMPLETE = """
source "$1"
complete -p gateway >/dev/null || exit 1
while read -r -a COMP_WORDS; do
    [ "${COMP_WORDS[-1]}" = - ] && COMP_WORDS[-1]=
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
    _shtab_gateway
    echo "${COMPREPLY[@]}"
done
"""
"""Calls the script's function as bash does when somebody presses Tab. A dash stands for an empty word."""


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def test_bash_completes_commands_options_and_those_of_the_worker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gateway.bash").write_text(script("bash", capsys))
    asked = {
        "gateway ch": ["check"],
        "gateway keys -": ["new", "show"],
        "gateway serve --me": ["--metrics-port", "--metrics-host", "--metrics-fd"],
        "gateway worker --w": ["--worker-id"],
        "gateway completion -": list(SHELLS),
        "gateway token --cl": ["--client-id", "--claim"],
    }
    result = subprocess.run(
        ["bash", "--norc", "-c", COMPLETE, "bash", str(tmp_path / "gateway.bash")],
        input="".join(f"{line}\n" for line in asked),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.stderr == ""
    assert [line.split() for line in result.stdout.splitlines()] == list(asked.values())


@pytest.mark.parametrize(("shell", "begin"), [("zsh", "#compdef gateway"), ("fish", "")])
def test_other_shells_get_a_script_with_every_command(
    shell: str, begin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = script(shell, capsys)
    assert text.startswith(begin)
    for command in ("serve", "dev", "worker", "keys", "token", "tools", "check", "completion", "--worker-id", "show"):
        assert command.lstrip("-") in text


def test_no_other_command_loads_what_makes_the_scripts() -> None:
    code = "import sys; from gateway.cli.main import main; main(['keys', 'new']); print('shtab' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.splitlines()[-1] == "False"
