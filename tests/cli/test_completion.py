"""`gateway completion`: the scripts that complete its commands and options in a shell."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
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
    asked = {
        "gateway ch": ["check"],
        "gateway keys -": ["new", "show"],
        "gateway serve --me": ["--metrics-port", "--metrics-host", "--metrics-fd"],
        "gateway worker --w": ["--worker-id"],
        "gateway completion -": list(SHELLS),
        "gateway token --cl": ["--client-id", "--claim"],
    }
    assert completed(asked, tmp_path, capsys) == list(asked.values())


def test_bash_completes_the_names_of_files_after_options_that_take_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("travel.py", "trains.py", "servers.json"):
        (tmp_path / name).touch()
    commands = ("serve", "dev", "worker", "tools", "check")
    asked = {
        **{f"gateway {command} --tools trav": ["travel.py"] for command in commands},
        **{f"gateway {command} --upstreams serv": ["servers.json"] for command in commands},
        "gateway dev --tools trains.py tra": ["trains.py", "travel.py"],
        "gateway size --costs serv": ["servers.json"],
    }
    assert [sorted(words) for words in completed(asked, tmp_path, capsys)] == list(asked.values())


def completed(asked: Iterable[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """Return what bash offers for each of these command lines, in a folder."""
    (folder / "gateway.bash").write_text(script("bash", capsys))
    result = subprocess.run(
        ["bash", "--norc", "-c", COMPLETE, "bash", "./gateway.bash"],
        cwd=folder,
        input="".join(f"{line}\n" for line in asked),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.stderr == ""
    return [line.split() for line in result.stdout.splitlines()]


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
