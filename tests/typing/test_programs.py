"""Type checkers find the mistakes in programs that use the gateway, and nothing else.

A line with a mistake ends with `# E: CODE RULE`: the error code of `mypy --strict`, and the rule of pyright's strict
mode. A checker may report more on that line, but nothing on a line without a mark. `basedpyright` is a pyright that
needs nothing but its wheels. It is large, so it has an environment of its own, and `make check` runs these tests.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from tests.docs.markdown import GUIDE, TOP, Block, blocks_of

Found: TypeAlias = Mapping[tuple[str, int], set[str]]
"""The codes that a checker reports, by file and line."""

PROGRAMS: Final = sorted((TOP / "tests/typing/programs").glob("*.py"))
PYRIGHT: Final = TOP / ".venvs/typing/bin/basedpyright"
DEFINED: Final = re.compile(r"^(?:(?:async )?def |class |(?=\w+(?:: | = )))(\w+)", re.MULTILINE)

pytestmark = pytest.mark.timeout(600)  # mypy without its cache, next to other tests


def mypy(files: Sequence[Path], scratch: Path) -> Found:
    options = ["--config-file=", "--strict", "--python-version=3.11", "--output=json", "--no-error-summary"]
    cache = TOP / ".mypy_cache" / scratch.name  # one for each test: two runs at once must not write the same files
    command = [sys.executable, "-m", "mypy", *options, f"--cache-dir={cache}", *map(str, files)]
    done = subprocess.run(command, env={"MYPYPATH": str(TOP)}, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return collected(
        (error["file"], error["line"], error["code"]) for error in map(json.loads, done.stdout.splitlines())
    )


def pyright(files: Sequence[Path], scratch: Path) -> Found:
    project = scratch / "pyrightconfig.json"
    options = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(TOP)]}
    project.write_text(json.dumps({**options, "include": [str(file) for file in files]}))
    interpreter = ["--pythonpath", sys.executable]
    command = [str(PYRIGHT), "--outputjson", "--project", str(project), *interpreter]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(files)
    return collected(
        (error["file"], error["range"]["start"]["line"] + 1, error.get("rule", "syntax"))
        for error in report["generalDiagnostics"]
    )


CHECKERS: Final[Sequence[Callable[[Sequence[Path], Path], Found]]] = (mypy, pyright)


def collected(errors: Iterable[tuple[str, int, str]]) -> Found:
    found: dict[tuple[str, int], set[str]] = {}
    for file, line, code in errors:
        found.setdefault((Path(file).name, line), set()).add(code)
    return found


def marks(checker: Callable[..., Found]) -> Mapping[tuple[str, int], str]:
    """Return the code that each marked line names for this checker."""
    position = CHECKERS.index(checker)
    return {
        (program.name, number): mark[1].split()[position]
        for program in PROGRAMS
        for number, line in enumerate(program.read_text().splitlines(), 1)
        if (mark := re.search(r"  # E: (\S+ \S+)$", line))
    }


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: checker.__name__)
def test_a_checker_finds_every_mistake_and_reports_nothing_else(
    checker: Callable[[Sequence[Path], Path], Found], tmp_path: Path
) -> None:
    expected = marks(checker)
    found = checker(PROGRAMS, tmp_path)
    assert {place: sorted(codes) for place, codes in found.items() if expected.get(place) not in codes} == {}
    assert expected.keys() - found.keys() == set()


def renamed(wrong: Block, right: Block) -> str:
    """Return a wrong example with other names for what the right one defines again."""
    return re.sub(rf"\b({'|'.join(DEFINED.findall(right.text))})\b(?!=)", r"wrong_\1", wrong.text)


@pytest.mark.parametrize("checker", CHECKERS, ids=lambda checker: checker.__name__)
def test_the_examples_of_the_guide_have_no_type_errors(
    checker: Callable[[Sequence[Path], Path], Found], tmp_path: Path
) -> None:
    sections: dict[tuple[str, str], list[str]] = {}
    examples = [block for page in GUIDE for block in blocks_of(page) if block.language == "python"]
    for block, following in zip(examples, [*examples[1:], None], strict=True):
        lines = sections.setdefault((block.document, block.section), [])
        lines += [""] * (block.line - len(lines))  # keeps the line numbers of the page
        lines += (renamed(block, following) if following and block.mark == "wrong" else block.text).splitlines()
    files = [tmp_path / f"{re.sub('[^a-z]+', '_', ' '.join(place).lower())}.py" for place in sections]
    for file, lines in zip(files, sections.values(), strict=True):
        file.write_text("\n".join(lines) + "\n")
    assert checker(files, tmp_path) == {}
