"""Python source texts: files, and the code blocks of Markdown pages."""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PARTS: Final = ("README.md", "docs", "docs_src", "examples", "tests")
"""Where a project keeps its tests and documents."""
EARLIER: Final = re.compile(r"docs/v\d+/|changelog")
"""Pages about earlier releases."""

_FENCE: Final = re.compile(r"(?ms)^(?P<indent>[ \t]*)```(?:python|py)\b[^\n]*\n(?P<code>.*?)^(?P=indent)```")


@dataclass(frozen=True)
class Source:
    """A text that Python can parse, and where it is.

    Attributes:
        path: relative to the folder of its project, with the name of that folder first.
        line: the line of the file before the first one of the text.
        tree: the parsed text.
    """

    path: str
    line: int
    tree: ast.Module

    def place(self, node: ast.AST) -> str:
        """Return where a node is, as `path:line`."""
        return f"{self.path}:{self.line + getattr(node, 'lineno', 0)}"


def sources(project: Path) -> Iterator[Source]:
    """Yield what Python can parse of a project's tests and documents. Parts that it cannot parse are left out."""
    for path in sorted(path for part in PARTS for path in _files(project / part)):
        shown = path.relative_to(project).as_posix()
        if EARLIER.search(shown):
            continue
        text = path.read_text("utf-8")
        texts = [(0, text)] if path.suffix == ".py" else _blocks(text)
        for line, code in texts:
            tree = _parsed(code)
            if tree is not None:
                yield Source(f"{project.name}/{shown}", line, tree)


def _files(part: Path) -> Iterator[Path]:
    files = [part] if part.is_file() else part.rglob("*")
    yield from (path for path in files if path.suffix in (".py", ".md", ".mdx") and path.is_file())


def _blocks(page: str) -> Iterator[tuple[int, str]]:
    for block in _FENCE.finditer(page):
        yield page.count("\n", 0, block.start("code")), textwrap.dedent(block["code"])


def _parsed(code: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # their escapes are not ours
        try:
            return ast.parse(code)
        except SyntaxError:
            return None
