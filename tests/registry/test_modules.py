"""Tool files: named by their path, imported as the modules they are, with one clear line where that fails."""

from __future__ import annotations

import calendar
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.errors import ConfigurationError
from gateway.registry.registry import load_registry
from gateway.settings.model import Settings

TOOL = "from gateway import tool\n\n@tool\nasync def {name}() -> str:\n    return {result}\n"

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Return what writes a file in a working directory that nothing is imported from by itself."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)

    def make(name: str, source: str = "") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
        return path

    yield make
    for name in set(sys.modules) - before:
        del sys.modules[name]


def tools_of(*entries: str) -> list[str]:
    return list(load_registry(Settings.load({"GATEWAY_TOOLS": ",".join(entries)}).tools).tools)


def test_a_file_is_named_by_its_path(write: Write) -> None:
    path = write("probes/probe_file.py", TOOL.format(name="one", result="''"))
    for entry in ("probes/probe_file.py", "./probes/probe_file.py", str(path)):
        assert tools_of(entry) == ["one"]


def test_a_file_and_its_module_are_one(write: Write) -> None:
    write("probe_once.py", TOOL.format(name="one", result="''"))
    assert tools_of("probe_once.py", "probe_once") == ["one"]


def test_a_file_finds_the_files_beside_it(write: Write) -> None:
    write("probes/probe_word.py", "WORD = 'beside'\n")
    write("probes/probe_sibling.py", "from probe_word import WORD\n" + TOOL.format(name="one", result="WORD"))
    assert tools_of("probes/probe_sibling.py") == ["one"]


def test_a_file_in_a_package_may_import_relatively(write: Write) -> None:
    write("probes/probe_package/__init__.py")
    write("probes/probe_package/inner/__init__.py")
    write("probes/probe_package/word.py", "WORD = ''\n")
    write("probes/probe_package/inner/part.py", "from ..word import WORD\n" + TOOL.format(name="one", result="WORD"))
    assert tools_of("probes/probe_package/inner/part.py") == ["one"]
    assert "probe_package.inner.part" in sys.modules


def test_the_folder_of_a_package_is_the_package(write: Write) -> None:
    write("probes/probe_whole/__init__.py", "from .part import one\n")
    write("probes/probe_whole/part.py", TOOL.format(name="one", result="''"))
    assert tools_of("probes/probe_whole") == ["one"]


def test_a_file_hides_no_other_module_of_its_name(write: Write) -> None:
    """Neither one of the standard library, nor ours, nor the file of that name in another folder."""
    write("probes/calendar.py", TOOL.format(name="one", result="''"))
    write("probes/gateway.py", TOOL.format(name="two", result="''"))
    write("others/calendar.py", TOOL.format(name="three", result="''"))
    write("others/my-tools.v2.py", TOOL.format(name="four", result="''"))
    entries = ("probes/calendar.py", "probes/gateway.py", "others/calendar.py", "others/my-tools.v2.py")
    assert tools_of(*entries) == ["one", "two", "three", "four"]
    assert tools_of(*entries) == ["one", "two", "three", "four"]
    assert sys.modules["calendar"] is calendar


FAILURES = [
    ("probe_bugz.py", "no tool file 'probe_bugz.py' in {folder}; did you mean 'probe_bugs.py'?"),
    ("./probe_bugs", "no tool file './probe_bugs' in {folder}; did you mean 'probe_bugs.py'?"),
    ("probe_bugz", "no module named 'probe_bugz'; did you mean the file 'probe_bugs.py'?"),
    ("inner.probe_deep", "no module named 'inner.probe_deep'; did you mean the file 'inner/probe_deep.py'?"),
    ("nothing_like_it.py", "no tool file 'nothing_like_it.py' in {folder}; check GATEWAY_TOOLS or --tools"),
    ("no_folder/of_that.py", "no tool file 'no_folder/of_that.py' in {folder}; check GATEWAY_TOOLS or --tools"),
    ("./inner", "the tool file './inner' is a folder without an __init__.py; name a file in it"),
    ("probe_needy.py", "the tool file 'probe_needy.py' needs 'probe_not_installed', which is not installed"),
    ("probe_syntax.py", "the tool file 'probe_syntax.py' failed to import: SyntaxError: invalid syntax"),
    ("probe-exit.py", "the tool file 'probe-exit.py' failed to import: SystemExit: no licence"),
    ("./exits/part.py", "the tool file './exits/part.py' failed to import: SystemExit: 3"),
    ("my-tools", "'my-tools' is neither a module name nor a file"),
]


@pytest.mark.parametrize(("entry", "message"), FAILURES, ids=[entry for entry, _ in FAILURES])
def test_a_file_that_cannot_be_served_is_one_line(write: Write, entry: str, message: str) -> None:
    write("probe_bugs.py")
    write("inner/probe_deep.py")
    write("probe_needy.py", "import probe_not_installed\n")
    write("probe_syntax.py", "def broken(:\n")
    write("probe-exit.py", "raise SystemExit('no\\nlicence')\n")
    folder = write("exits/__init__.py", "raise SystemExit(3)\n").parent.parent
    write("exits/part.py")
    with pytest.raises(ConfigurationError) as caught:
        tools_of(entry)
    assert message.format(folder=folder) in str(caught.value)
    assert "\n" not in str(caught.value)
