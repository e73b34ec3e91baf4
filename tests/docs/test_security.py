"""Every promise of `docs/understand/security.md` names its tests, which `test_promises.py` looks for."""

from __future__ import annotations

import re
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
TEXT = (TOP / "docs/understand/security.md").read_text()


def test_every_promise_names_a_test() -> None:
    promised = TEXT.partition("## What is promised")[2].partition("## What is not promised")[0]
    promises = re.findall(r"^- .*(?:\n  .*)*", promised, re.MULTILINE)
    assert len(promises) > 60
    shown = re.compile(r"(\n    - `tests/[\w/]+\.py::test_\w+`)+$")
    assert [promise for promise in promises if not shown.search(promise)] == []
