"""`--tools FILE`: every command that runs or lists tools accepts a file, and reports its problems in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_main import WORKING, assert_one_clear_line, gateway

TOOL = 'from gateway import tool\n@tool\nasync def hello() -> str:\n    """Say hello."""\n    return "hello"\n'
NEITHER = {**WORKING, "GATEWAY_TOOLS": ""}


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("dev", "--port", "0"), ("worker",), ("tools",)])
def test_a_file_that_does_not_exist_is_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "bugs.py").write_text(TOOL)
    result = gateway(*command, "--tools", "bug.py", settings=NEITHER, cwd=tmp_path)
    assert_one_clear_line(result, "no tool file 'bug.py'", "did you mean 'bugs.py'?")


def test_a_worker_loads_a_file(tmp_path: Path) -> None:
    """The check fails only because of a tool that no process can serve."""
    (tmp_path / "bugs.py").write_text(TOOL + "raise LookupError('it has run')\n")
    result = gateway("worker", "--tools", "./bugs.py", settings=NEITHER, cwd=tmp_path)
    assert_one_clear_line(result, "the tool file './bugs.py' failed to import: LookupError: it has run")


def test_a_file_may_have_the_name_of_a_module_that_the_gateway_needs(tmp_path: Path) -> None:
    (tmp_path / "calendar.py").write_text(TOOL)
    result = gateway("tools", settings={"GATEWAY_TOOLS": "calendar.py"}, cwd=tmp_path)
    assert result.stdout.splitlines()[1:2] == ["hello  1        Say hello."]


EMPTY = "'bugs.py' has no tool, prompt or resource; decorate its functions with @tool"


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("worker",), ("tools",)])
def test_a_file_without_tools_is_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "bugs.py").write_text("async def forgotten() -> str: ...\n")
    assert_one_clear_line(gateway(*command, "--tools", "bugs.py", settings=NEITHER, cwd=tmp_path), EMPTY)


@pytest.mark.slow
def test_dev_stops_at_a_file_without_tools(tmp_path: Path) -> None:
    (tmp_path / "bugs.py").write_text("async def forgotten() -> str: ...\n")
    result = gateway("dev", "--port", "0", "--tools", "bugs.py", settings=NEITHER, cwd=tmp_path)
    assert result.returncode == 2
    assert EMPTY in result.stderr


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (TOOL + "@tool\nasync def hello() -> str: ...\n", "bugs.py:6 hides the tool 'hello' at bugs.py:2"),
        (TOOL.replace("@tool", "@tool(nme='x')"), "did you mean 'name'? (bugs.py:2)"),
        (TOOL + "\nraise LookupError('no url')\n", "LookupError: no url (bugs.py:7)"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(source: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "bugs.py").write_text(source)
    assert_one_clear_line(gateway("tools", "--tools", "bugs.py", settings=NEITHER, cwd=tmp_path), words)
