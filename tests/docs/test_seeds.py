"""Tests that exist show what `docs/understand/seeds.md` says about the proposals, in modules that exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent.parent
TEXT = (TOP / "docs/understand/seeds.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))
FILES = sorted(set(re.findall(r"`((?:gateway|workers|tests)/[\w/]+\.py)", TEXT)))
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TEXT.splitlines() if line.startswith("| ")]
DEMAND = r"^- \*\*(?:MUST|SHOULD|MAY)(?: NOT)?:\*\* "
ANSWERED = re.compile(DEMAND + r".+\n    - (?!Code: |Tests: ).+\n    - Code: (.+)\n    - Tests: (.+)$", re.MULTILINE)


@functools.cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((TOP / file).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, kinds) and node.name.startswith("test_"))


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_test_that_is_named_exists(file: str, test: str) -> None:
    assert test in names_in(file)


@pytest.mark.parametrize("file", FILES)
def test_a_module_that_is_named_exists(file: str) -> None:
    assert (TOP / file).is_file()


def test_every_demand_has_an_answer_a_place_and_a_test() -> None:
    answered = ANSWERED.findall(TEXT)
    assert len(answered) > 150
    assert len(answered) == len(re.findall(DEMAND, TEXT, re.MULTILINE))
    wrong = [row for row in answered if not re.search(r"`(gateway|workers)/", row[0]) or "::test_" not in row[1]]
    assert wrong == []


def test_no_row_has_an_empty_cell() -> None:
    assert [row for row in ROWS if not all(row)] == []


def test_every_metric_that_is_named_exists() -> None:
    source = (TOP / "gateway/observability/metrics.py").read_text()
    named = set(re.findall(r"\b(gateway_\w+)_total\b", TEXT))
    assert named
    assert [name for name in named if name not in source] == []
