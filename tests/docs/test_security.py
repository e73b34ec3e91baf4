"""Tests that exist show every promise of `docs/understand/security.md`, and the metrics that it names exist."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent.parent
TEXT = (TOP / "docs/understand/security.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))


@functools.cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((TOP / file).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, kinds) and node.name.startswith("test_"))


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_test_that_is_named_exists(file: str, test: str) -> None:
    assert test in names_in(file)


def test_every_promise_names_a_test() -> None:
    promised = TEXT.partition("## What is promised")[2].partition("## What is not promised")[0]
    promises = re.findall(r"^- .*(?:\n  .*)*", promised, re.MULTILINE)
    assert len(promises) > 60
    shown = re.compile(r"(\n    - `tests/[\w/]+\.py::test_\w+`)+$")
    assert [promise for promise in promises if not shown.search(promise)] == []


def test_every_metric_that_is_named_exists() -> None:
    source = (TOP / "gateway/observability/metrics.py").read_text()
    named = set(re.findall(r"\b(gateway_\w+)_total\b", TEXT))
    assert named
    assert [name for name in named if name not in source] == []


def test_the_list_of_attacks_is_where_the_document_says() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert links
    assert [link for link in links if not (TOP / "docs/understand" / link).exists()] == []
