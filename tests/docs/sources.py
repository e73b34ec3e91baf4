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


def strings_of(path: Path) -> list[str]:
    """Return every string of a module; of a formatted one, the parts between its values."""
    return [node.value for node in nodes_of(path) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
