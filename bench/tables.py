"""Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 1) -> list[str]:
    """Return a Markdown table whose first `texts` columns are text and whose others are numbers."""
    marks = ["---"] * texts + ["---:"] * (len(head) - texts)
    return [
        "| " + " | ".join(head) + " |",
        "|" + "|".join(marks) + "|",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
