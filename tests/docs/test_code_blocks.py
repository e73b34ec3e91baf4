"""Every Python block of the documents for authors runs, and does what the text around it says.

The blocks of one section (a heading of level two) run in order in one module. A block that begins with `# wrong` shows
a mistake: it has to show what goes wrong in an assertion of its own, and a block that begins with `# right` follows.
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = ("README.md", "docs/authoring.md", "docs/upgrading.md")
LANGUAGES = {"python", "console"}


@dataclass(frozen=True)
class Block:
    document: str
    section: str
    line: int
    """Of the fence, from 1."""
    language: str
    text: str

    @property
    def mark(self) -> str | None:
        found = re.match(r"# (wrong|right)\b", self.text)
        return found and found[1]


def blocks_of(document: str) -> Iterator[Block]:
    section, fence, lines = "", None, list[str]()
    for number, line in enumerate((TOP / document).read_text().splitlines(), 1):
        if fence is None:
            if line.startswith("## "):
                section = line.removeprefix("## ")
            elif line.lstrip().startswith(("```", "~~~")):
                fence, lines = (number, line), []
        elif line == "```":
            yield Block(document, section, fence[0], fence[1].removeprefix("```"), "\n".join(lines) + "\n")
            fence = None
        else:
            lines.append(line)
    assert fence is None, f"{document}: the fence of line {fence} is never closed"


BLOCKS = [block for document in DOCUMENTS for block in blocks_of(document)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
SECTIONS = {(block.document, block.section): f"{block.document}, {block.section}" for block in PYTHON}


@pytest.mark.parametrize("place", SECTIONS, ids=SECTIONS.get)
def test_the_blocks_of_a_section_run(place: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType(f"section_{re.sub(r'[^a-z]+', '_', place[1].lower())}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where a decorated function looks for its annotations
    for block in PYTHON:
        if (block.document, block.section) == place:
            # The empty lines before it make a traceback name the line of the document.
            code = compile("\n" * block.line + block.text, str(TOP / block.document), "exec")
            exec(code, vars(module))


def test_every_block_names_its_language() -> None:
    assert [(block.document, block.line) for block in BLOCKS if block.language not in LANGUAGES] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_code_hides_in_indentation_where_it_would_not_run(document: str) -> None:
    text = "\n".join((TOP / document).read_text().splitlines())
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^(?: {4,}|\t).*", prose, re.MULTILINE) == []


@pytest.mark.parametrize("block", [block for block in PYTHON if block.mark == "wrong"], ids=lambda block: block.line)
def test_a_wrong_example_shows_what_goes_wrong_and_a_right_one_follows(block: Block) -> None:
    following = PYTHON[PYTHON.index(block) + 1]
    assert (following.section, following.mark) == (block.section, "right")
    for example in (block, following):
        assert re.search(r"^(?:assert|with pytest\.raises)\b", example.text, re.MULTILINE)


@pytest.mark.parametrize("block", [block for block in PYTHON if block.mark == "right"], ids=lambda block: block.line)
def test_a_right_example_has_a_wrong_one_before_it(block: Block) -> None:
    assert PYTHON[PYTHON.index(block) - 1].mark == "wrong"
