"""Names in the code are found at one place."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_two_classes_have_the_same_name() -> None:
    """A reader who looks for a name finds one thing. An underscore makes no difference."""
    places: dict[str, list[str]] = {}
    for top in ("gateway", "workers"):
        for path in sorted((ROOT / top).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name.lstrip("_"), []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
