"""Print every sentence that breaks a rule of `rules.toml` or one of proselint; exit with 1 if there is one.

Usage: python -m scripts.prose [PATH…], files or directories; without one, everything that people read here.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import yaml

from scripts.prose import proofreading
from scripts.prose.rules import Finding, Rules, load
from scripts.prose.texts import Kind, texts_of

READ_IN_TESTS: Final[frozenset[Kind]] = frozenset({"docstring", "comment"})
"""The strings of a test are what it sends and expects; the program's own are checked where they are written."""
NOT_OURS: Final = ("scripts/prose/", "tests/scripts/prose/", "tests/peers/", "LICENSE")
"""The rules quote what they forbid."""


def main(arguments: Sequence[str]) -> int:
    """Check the files that git knows below the paths, and return the exit code."""
    rules = load()
    found = [str(finding) for path in files(arguments or ["."]) for finding in check(path, rules)]
    print(*found, sep="\n", end="\n" if found else "")
    if found:
        print(f"{len(found)} findings; scripts/prose/rules.toml has the rules.", file=sys.stderr)
    return int(bool(found))


def files(paths: Sequence[str]) -> Iterator[Path]:
    """Yield the files below the paths that are committed or about to be."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths]
    names = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0")
    yield from (Path(name) for name in sorted(set(names)) if Path(name).is_file() and not name.startswith(NOT_OURS))


def check(path: Path, rules: Rules) -> Iterator[Finding]:
    """Yield the findings of one file."""
    in_tests = path.parts[0] == "tests"
    try:
        texts = [text for text in texts_of(path) if not in_tests or text.kind in READ_IN_TESTS]
    except (UnicodeDecodeError, SyntaxError, yaml.YAMLError) as error:
        yield Finding(path, 1, "unreadable", type(error).__name__, str(error).splitlines()[0])
        return
    for text in texts:
        yield from rules.findings(text)
    yield from proofreading.findings(path, texts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
