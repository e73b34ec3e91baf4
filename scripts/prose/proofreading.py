"""Ask proselint, which knows what is wrong in anybody's English: doubled words, clichés, misspellings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from proselint.checks import __register__ as checks
from proselint.config import DEFAULT, Config
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

from scripts.prose.rules import Finding
from scripts.prose.texts import Text

NOT_ASKED: Final = {
    "typography": False,  # quotation marks and dashes are those of a keyboard, here as in code
    "lexical_illusions": False,  # a command may repeat a word; `doubled` of our own rules finds the rest
    "spelling.er_or": False,  # "requestor" is a word of the proposals
}
CONFIG: Final = Config(
    max_errors=DEFAULT["max_errors"],
    checks={**NOT_ASKED, **{key: on for key, on in DEFAULT["checks"].items() if key not in NOT_ASKED}},
)
BETWEEN: Final = "\n¶\n"
"""Keeps the last word of a text apart from the first of the next, and takes one line."""

CheckRegistry().register_many(checks)


def findings(path: Path, texts: Sequence[Text]) -> Iterator[Finding]:
    """Yield what proselint finds in the texts of a file."""
    if not texts:
        return
    read = LintFile(str(path), BETWEEN.join(text.text for text in texts))
    for result in read.lint(CONFIG):
        found = result.check_result
        start, end = found.span
        text = texts[read.content.count("\n", 1, start) // 2]
        yield Finding(path, text.line, found.check_path, read.content[start:end].strip(), found.message)
