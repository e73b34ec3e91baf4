"""The check of the language finds what its rules list, wherever a person reads it, and fails on a bad page."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from scripts.prose.rules import Rule, load, sentences
from scripts.prose.texts import texts_of

pytestmark = pytest.mark.slow

TOP: Final = Path(__file__).resolve().parent.parent.parent
RULES: Final = load()
WRONG: Final = [pytest.param(rule, words, id=f"{rule.name}: {words}") for rule in RULES.rules for words in rule.wrong]
RIGHT: Final = [pytest.param(rule, words, id=f"{rule.name}: {words}") for rule in RULES.rules for words in rule.right]
BAD: Final = "This is no valid page."

HOLDERS: Final = {
    "paragraph": ("page.md", f"# A page\n\n{BAD}\n", 3),
    "item": ("page.md", f"- An item.\n- {BAD}\n", 2),
    "cell": ("page.md", f"| a | b |\n|---|---|\n| c | {BAD} |\n", 3),
    "docstring": ("module.py", f'"""{BAD}"""\n', 1),
    "second paragraph of a docstring": ("module.py", f'"""A module.\n\n{BAD}\n"""\n', 3),
    "docstring of an attribute": ("module.py", f'SIZE = 1\n"""{BAD}"""\n', 2),
    "comment": ("module.py", f"# {BAD}\n", 1),
    "message": ("module.py", f'raise ValueError("{BAD}")\n', 1),
    "formatted message": ("module.py", 'name = "x"\nraise ValueError(f"{name!r} is no valid page.")\n', 2),
    "help text": ("module.py", f'parser.add_argument("--page", help="{BAD}")\n', 1),
    "alert": ("alerts.yml", f"groups:\n  - rules:\n      - annotations:\n          summary: {BAD}\n", 4),
    "dashboard": ("dashboard.json", f'{{"panels": [{{"description": "{BAD}"}}]}}\n', 1),
    "indented table": ("page.md", f"- An item.\n  | a | b |\n  |---|---|\n  | c | {BAD} |\n", 4),
    "after a line with a block in it": ("page.md", f"```x``` is inline.\n\n{BAD}\n", 3),
    "message with a hole": ("module.py", 'raise ValueError("{} is no valid page.".format(name))\n', 1),
    "page of HTML": ("module.py", f'PAGE = "<p>{BAD}</p>"\n', 1),
    "echo": ("run.sh", f'echo "{BAD}" >&2\n', 1),
    "picture": ("picture.svg", f'<svg>\n<text x="1">{BAD}</text></svg>\n', 2),
    "target of make": ("Makefile", f"run: ## {BAD}\n", 1),
}
PASSED_OVER: Final = {
    "fenced block": ("page.md", f"```text\n{BAD}\n```\n"),
    "block with marks of its own": ("page.md", f"````text\n```\n{BAD}\n```\n{BAD}\n````\n"),
    "block between tildes": ("page.md", f"~~~\n{BAD}\n~~~\n"),
    "quotation": ("page.md", f"> {BAD}\n"),
    "code span": ("page.md", f"It prints `{BAD}` and ends.\n"),
    "string of a test": ("tests/test_page.py", f'assert page() == "{BAD}"\n'),
    "name": ("module.py", 'NAME = "no-valid-page"\n'),
}


def checked(repository: Path, name: str, content: str) -> tuple[int, str]:
    """Check a repository with one file, and return the exit code and what is printed."""
    save(repository, name, content)
    environment = {**os.environ, "PYTHONPATH": str(TOP)}
    command = [str(TOP / ".venvs/prose/bin/python"), "-m", "scripts.prose"]
    run = subprocess.run(command, cwd=repository, env=environment, check=False, capture_output=True, text=True)
    return run.returncode, run.stdout


def save(repository: Path, name: str, content: str) -> None:
    path = repository / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(content, encoding="utf-8")
    subprocess.run(["git", "init", "--quiet"], cwd=repository, check=True)


@pytest.mark.parametrize(("rule", "words"), WRONG)
def test_a_rule_finds_what_it_is_for(rule: Rule, words: str) -> None:
    assert any(rule.pattern.search(sentence) for sentence in sentences(words))


@pytest.mark.parametrize(("rule", "words"), RIGHT)
def test_a_rule_does_not_find_what_is_right(rule: Rule, words: str) -> None:
    assert not any(rule.pattern.search(sentence) for sentence in sentences(words))


@pytest.mark.parametrize(("name", "content", "line"), HOLDERS.values(), ids=HOLDERS)
def test_a_bad_sentence_is_found_where_people_read_it(tmp_path: Path, name: str, content: str, line: int) -> None:
    code, printed = checked(tmp_path, name, content)
    assert code == 1
    assert printed.startswith(f"{name}:{line}: is-no: ")


@pytest.mark.parametrize(("name", "content"), PASSED_OVER.values(), ids=PASSED_OVER)
def test_code_and_the_words_of_others_are_passed_over(tmp_path: Path, name: str, content: str) -> None:
    assert checked(tmp_path, name, content) == (0, "")


def test_a_file_that_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    code, printed = checked(tmp_path, "module.py", "def (\n")
    assert code == 1
    assert printed.startswith("module.py:1: unreadable: “SyntaxError”")


def test_a_file_that_git_still_lists_but_is_gone_is_passed_over(tmp_path: Path) -> None:
    save(tmp_path, "page.md", "A page.\n")
    subprocess.run(["git", "add", "page.md"], cwd=tmp_path, check=True)
    (tmp_path / "page.md").unlink()
    assert checked(tmp_path, "other.md", "Another page.\n") == (0, "")


def test_a_sentence_that_is_too_long_is_found(tmp_path: Path) -> None:
    code, printed = checked(tmp_path, "page.md", "one two " * RULES.longest["prose"] + "three.\n")
    assert code == 1
    assert printed.startswith("page.md:1: long: ")


def test_a_doubled_word_is_found(tmp_path: Path) -> None:
    code, printed = checked(tmp_path, "page.md", "The gateway returns the the result.\n")
    assert code == 1
    assert printed.startswith("page.md:1: doubled: ")


def test_words_of_others_that_are_listed_are_still_there() -> None:
    for path, quotations in RULES.quoted.items():
        texts = [text.text for text in texts_of(TOP / path)]
        assert [words for words in quotations if not any(words in text for text in texts)] == []
