"""The sources that pages are compared with, each read and parsed once for all tests."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import Final

from tests.docs.markdown import TOP

SERVED: Final = ("gateway", "workers")
"""The folders of what replicas and workers run."""


@functools.cache
def files_in(*folders: str) -> list[Path]:
    """Return the modules in folders at the top of the repository."""
    return [path for folder in folders for path in sorted((TOP / folder).rglob("*.py"))]


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Return every node of a module's syntax tree."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@functools.cache
def names_in(file: str) -> frozenset[str]:
    """Return the names of the tests in a file."""
    tree = ast.parse((TOP / file).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, kinds) and node.name.startswith("test_"))


def strings_of(path: Path) -> list[str]:
    """Return every string of a module; of a formatted one, the parts between its values."""
    return [node.value for node in nodes_of(path) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
