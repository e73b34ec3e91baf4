"""The packages that messages and pages name can be installed; the gateway itself is not in a registry."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from typing import Final

import pytest

from tests.docs.markdown import PAGES, TOP

PROJECT: Final = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DOCUMENTS: Final = (*PAGES, "CHANGELOG.md")
CODE: Final = [path for name in ("gateway", "workers", "loadtest", "bench") for path in (TOP / name).rglob("*.py")]
INLINE: Final = r"`pip install\s([^`\n]*(?:\n[^`\n]+)?)`"
IN_BLOCK: Final = r"^\$ .*\bpip install ([^\n]+)$"
COMMAND: Final = re.compile(f"{INLINE}|{IN_BLOCK}", re.MULTILINE)
FILE_OPTION: Final = re.compile(r"(--requirement|-r)[= ]\S+")
HERE: Final = re.compile(r"\.(\[\w+\])?|[\w./*-]+\.whl(\[\w+\])?")
"""A checkout, or the file of a wheel."""
REQUIREMENT: Final = re.compile(r"[<>=\[]")
"""Where the name of a package ends."""


def named_by_us() -> set[str]:
    """Name every package that the project asks a registry for."""
    extras = PROJECT["optional-dependencies"].values()
    peers = [path.read_text(encoding="utf-8").splitlines() for path in TOP.glob("tests/peers/*/requirements.txt")]
    return {
        REQUIREMENT.split(line)[0].lower() for group in (PROJECT["dependencies"], *extras, *peers) for line in group
    }


def messages() -> Iterator[tuple[str, str]]:
    """Yield every text of the code with its file; a formatted one in one piece."""
    for path in CODE:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield str(path.relative_to(TOP)), node.value


TEXTS: Final = [*((name, (TOP / name).read_text(encoding="utf-8")) for name in DOCUMENTS), *messages()]
ADVICE: Final = sorted({(place, found[1] or found[2]) for place, text in TEXTS for found in COMMAND.finditer(text)})


def test_advice_to_install_is_found_in_documents_and_messages() -> None:
    places = {place for place, _ in ADVICE}
    assert "docs/run/tracing.md" in places
    assert "gateway/cli/embedded_store.py" in places
    assert "gateway/process/services.py" in places


@pytest.mark.parametrize(("place", "words"), ADVICE, ids=[f"{place}: {words}" for place, words in ADVICE])
def test_every_package_to_install_is_here_or_in_a_registry(place: str, words: str) -> None:
    known = named_by_us()
    names = [word for word in shlex.split(FILE_OPTION.sub("", words)) if not word.startswith("-")]
    assert [
        name for name in names if not HERE.fullmatch(name) and REQUIREMENT.split(name)[0].lower() not in known
    ] == []


@pytest.mark.parametrize("extra", sorted(PROJECT["optional-dependencies"]))
def test_no_text_names_an_extra_of_a_package_that_is_not_published(extra: str) -> None:
    assert [place for place, text in TEXTS if f"{PROJECT['name']}[{extra}]" in text] == []
