"""The documents as their tests read them: pages, headings, links, tables and fenced blocks."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).resolve().parent.parent.parent
README: Final = "README.md"
PAGES: Final = (README, *sorted(str(path.relative_to(TOP)) for path in (TOP / "docs").rglob("*.md")))
GUIDE: Final = tuple(
    page
    for page in PAGES
    if Path(page).parent == Path("docs/build")
    and Path(page).stem not in {"index", "tutorial", "examples", "embedding", "protocol"}
)
"""The pages of the authors' guide, which is the reference of everything that tools can do."""
_FENCED: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        section: the heading of level two above it.
        line: of the fence, from 1.
    """

    document: str
    section: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"{self.document}:{self.line}"

    @property
    def mark(self) -> str | None:
        """Whether an example is marked as `wrong` or `right`."""
        found = re.match(r"# (wrong|right)\b", self.text)
        return found and found[1]


@functools.cache
def text_of(page: str) -> str:
    return (TOP / page).read_text()


def prose_of(page: str) -> str:
    """Return a page without its fenced blocks."""
    return _FENCED.sub("", text_of(page))


def section_of(page: str, heading: str) -> str:
    """Return the text under a heading of level two."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text_of(page), re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no section {heading!r}"
    return found[1]


def rows_of(text: str, columns: int) -> list[Sequence[str]]:
    """Return the cells of all tables with this many columns, without their headings."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    ruled = {index for index, row in enumerate(rows) if set("".join(row)) <= set("-: ")}
    return [row for index, row in enumerate(rows) if len(row) == columns and not {index, index + 1} & ruled]


def anchor_of(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")


def anchors_of(page: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    return {anchor_of(heading) for heading in re.findall(r"^#+ (.+)$", prose_of(page), re.MULTILINE)}


def links_of(page: str) -> list[tuple[str, str]]:
    """Return the links of a page that lead into the repository: file ("" for the page itself) and anchor."""
    links = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", prose_of(page))
    return [(file, anchor) for file, anchor in links if "://" not in file]


def blocks_of(document: str) -> Iterator[Block]:
    """Read the fenced blocks of a page."""
    section, fence, lines = "", None, list[str]()
    for number, line in enumerate(text_of(document).splitlines(), 1):
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
