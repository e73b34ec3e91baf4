"""`docs/understand/seeds.md` names code and tests for every demand of the proposals, in modules that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent.parent
TEXT = (TOP / "docs/understand/seeds.md").read_text()
FILES = sorted(set(re.findall(r"`((?:gateway|workers|tests)/[\w/]+\.py)", TEXT)))
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TEXT.splitlines() if line.startswith("| ")]
DEMAND = r"^- \*\*(?:MUST|SHOULD|MAY)(?: NOT)?:\*\* "
ANSWERED = re.compile(DEMAND + r".+\n    - (?!Code: |Tests: ).+\n    - Code: (.+)\n    - Tests: (.+)$", re.MULTILINE)


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
