"""Each Lua script is called through its typed function."""

from __future__ import annotations

import ast
from pathlib import Path

from gateway import storage
from gateway.storage import scripts, shared_scripts, task_scripts
from gateway.storage.task_scripts import Script

SCRIPTS = {
    name
    for module in (task_scripts, shared_scripts)
    for name, value in vars(module).items()
    if isinstance(value, Script)
}


def test_only_typed_functions_know_the_scripts() -> None:
    """The connection itself asks for the time."""
    others = {}
    for path in Path(storage.__file__).parent.glob("*.py"):
        if path.stem in ("scripts", "task_scripts", "shared_scripts"):
            continue
        names = {
            alias.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        if names & (SCRIPTS | {"task_scripts", "shared_scripts"}):
            others[path.stem] = names & (SCRIPTS | {"task_scripts", "shared_scripts"})
    assert others == {"client": {"NOW"}}


def test_each_script_has_a_typed_function() -> None:
    code = Path(scripts.__file__).read_text()
    assert {name for name in SCRIPTS - {"NOW"} if f"scripts.{name}" not in code} == set()
