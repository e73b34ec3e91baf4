"""The guide explains each annotation that is not served as fastmcp and the official SDK serve it."""

from __future__ import annotations

from tests.authoring.test_annotations import DIFFERENCES, ROWS
from tests.docs.markdown import TOP

GUIDE = TOP / "docs/build/arguments-results.md"


def test_the_guide_has_a_row_for_every_difference_and_no_other() -> None:
    _, _, section = GUIDE.read_text().partition("## Coming from fastmcp or the SDK\n")
    table = [line for line in section.partition("\n#")[0].replace("\\|", "¦").splitlines() if line.startswith("|")]
    rows = [line.split("|")[1].strip() for line in table[2:]]
    assert sorted(rows) == sorted({each.row for each in DIFFERENCES} | ROWS.keys())
