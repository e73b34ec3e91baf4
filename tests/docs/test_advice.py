"""The packages that messages and pages name can be installed; the gateway itself is not in a registry."""

from __future__ import annotations

import functools
import re
import shlex
import tomllib
from typing import Final

import pytest

from tests.docs.markdown import PAGES, TOP
from tests.docs.sources import files_in, strings_of

PROJECT: Final = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DOCUMENTS: Final = (*PAGES, "CHANGELOG.md")
CODE: Final = ("gateway", "workers", "loadtest", "bench")
INLINE: Final = r"`pip install\s([^`\n]*(?:\n[^`\n]+)?)`"
IN_BLOCK: Final = r"^\$ .*\bpip install ([^\n]+)$"
COMMAND: Final = re.compile(f"{INLINE}|{IN_BLOCK}", re.MULTILINE)
FILE_OPTION: Final = re.compile(r"(--requirement|-r|--constraint|-c)[= ]\S+")
HERE: Final = re.compile(r"\.(\[\w+\])?|[\w./*-]+\.whl(\[\w+\])?")
"""A checkout, or the file of a wheel."""
NAMED: Final = re.compile(rf"\bpip\b|{re.escape(PROJECT['name'])}")
"""Modules whose texts are read have one of these."""
REQUIREMENT: Final = re.compile(r"[<>=\[]")
"""Where the name of a package ends."""


def named_by_us() -> set[str]:
    """Name every package that the project asks a registry for."""
    extras = PROJECT["optional-dependencies"].values()
    peers = [path.read_text(encoding="utf-8").splitlines() for path in TOP.glob("tests/peers/*/requirements.txt")]
    return {
        REQUIREMENT.split(line)[0].lower() for group in (PROJECT["dependencies"], *extras, *peers) for line in group
    }


@functools.cache
def texts() -> list[tuple[str, str]]:
    """Return every document and every text of the code that may name a package to install, with its file."""
    documents = [(name, (TOP / name).read_text(encoding="utf-8")) for name in DOCUMENTS]
    modules = [path for path in files_in(*CODE) if NAMED.search(path.read_text(encoding="utf-8"))]
    return documents + [(str(path.relative_to(TOP)), text) for path in modules for text in strings_of(path)]


def advice() -> list[tuple[str, str]]:
    """Return what is said to `pip install`, with the file that says so."""
    return sorted({(place, found[1] or found[2]) for place, text in texts() for found in COMMAND.finditer(text)})


def test_advice_to_install_is_found_in_documents_and_messages() -> None:
    places = {place for place, _ in advice()}
    assert "docs/run/tracing.md" in places
    assert "gateway/cli/embedded_store.py" in places
    assert "gateway/process/services.py" in places


def test_every_package_to_install_is_here_or_in_a_registry() -> None:
    known = named_by_us()
    for place, words in advice():
        names = [word for word in shlex.split(FILE_OPTION.sub("", words)) if not word.startswith("-")]
        assert [
            name for name in names if not HERE.fullmatch(name) and REQUIREMENT.split(name)[0].lower() not in known
        ] == [], f"{place}: {words}"


@pytest.mark.parametrize("extra", sorted(PROJECT["optional-dependencies"]))
def test_no_text_names_an_extra_of_a_package_that_is_not_published(extra: str) -> None:
    assert [place for place, text in texts() if f"{PROJECT['name']}[{extra}]" in text] == []
