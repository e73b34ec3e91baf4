"""Print the annotations that the tests and documents of MCP libraries use: kind, annotation, uses, an example.

Usage: python -m scripts.annotations PROJECT… >tests/authoring/annotations/collected.tsv, with the folders of unpacked
source distributions: `pip download --no-deps --no-binary fastmcp,mcp fastmcp==… mcp==…`, in the versions of
`tests/peers/fastmcp/locked.txt`. Nothing in them is imported or run.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from scripts.annotations.collecting import uses
from scripts.annotations.scopes import shared_names
from scripts.annotations.sources import sources


def main(projects: Sequence[str]) -> int:
    """Print the table as tab-separated values, sorted, and return the exit code."""
    places: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for project in projects:
        texts = list(sources(Path(project)))
        around = shared_names(texts)
        for text in texts:
            for use in uses(text, around[text.path]):
                places[use.kind, use.annotation].append(use.place)
    table = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
    table.writerow(("kind", "annotation", "uses", "example"))
    table.writerows((*entry, len(found), min(found)) for entry, found in sorted(places.items()))
    return int(not places)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
