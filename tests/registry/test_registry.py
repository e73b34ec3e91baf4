"""The registry of a process, and a one-line error for every way in which a module can fail to import."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway import tool
from gateway.errors import ConfigurationError
from gateway.registry.registry import Registry, load_registry

TOOL = "from gateway import tool\n\n@tool\nasync def {name}() -> str:\n    return ''\n"

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Return what writes a module that can be imported in this test only."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def make(name: str, source: str) -> None:
        path = tmp_path / (name.replace(".", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)

    yield make
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_tools_come_in_the_order_they_are_defined(write: Write) -> None:
    write("probe_b", TOOL.format(name="second") + TOOL.format(name="first"))
    write("probe_a", "from probe_b import first\n" + TOOL.format(name="third") + "x = 1\n")
    assert list(load_registry(["probe_b", "probe_a"]).tools) == ["second", "first", "third"]
    assert list(load_registry(["probe_a", "probe_b"]).tools) == ["first", "third", "second"]


def test_one_tool_under_two_names_or_in_two_modules_is_one_tool(write: Write) -> None:
    write("probe_c", TOOL.format(name="one") + "two = one\n")
    write("probe_d", "from probe_c import *\n")
    assert list(load_registry(["probe_c", "probe_d", "probe_c"]).tools) == ["one"]


def test_two_tools_of_one_name_are_refused() -> None:
    async def function() -> None: ...

    with pytest.raises(ConfigurationError, match="two tools are named 'function'"):
        Registry([tool(function), tool(function)])


FAILURES = [
    ("probe_missing", None, "no module named 'probe_missing'; check GATEWAY_TOOLS"),
    ("probe_missing.part", None, "no module named 'probe_missing.part'; check GATEWAY_TOOLS"),
    ("probe_1", "import probe_not_installed\n", "the tool module 'probe_1' needs 'probe_not_installed'"),
    ("probe_2", "import probe_x.y.z\n", "the tool module 'probe_2' needs 'probe_x'"),
    ("probe_3", "def broken(:\n", "the tool module 'probe_3' failed to import: SyntaxError: invalid syntax"),
    ("probe_4", "raise SystemExit(3)\n", "the tool module 'probe_4' failed to import: SystemExit: 3"),
    ("probe_5", "import sys\nsys.exit('no\\nlicence')\n", "'probe_5' failed to import: SystemExit: no licence"),
    ("probe_6", "1 / 0\n", "the tool module 'probe_6' failed to import: ZeroDivisionError: division by zero"),
    ("probe_7", "raise ModuleNotFoundError('by hand')\n", "'probe_7' failed to import: ModuleNotFoundError: by hand"),
    ("probe_8", "from gateway import nonsense\n", "'probe_8' failed to import: ImportError: cannot import name"),
    (
        "probe_9",
        TOOL.format(name="f").replace("@tool", "@tool('a b')"),
        "'probe_9' cannot be served: 'a b' is not a valid tool",
    ),
    ("probe_10", "raise ValueError('a\\n  b')\n", "'probe_10' failed to import: ValueError: a b"),
    ("probe_11", "x = '\\ud800'.encode()\n", "'probe_11' failed to import: UnicodeEncodeError"),
    ("", None, "failed to import: ValueError: Empty module name"),
    (".relative", None, "failed to import: TypeError: the 'package' argument is required"),
]


@pytest.mark.parametrize(("name", "source", "message"), FAILURES, ids=[name for name, _, _ in FAILURES])
def test_a_module_that_cannot_be_imported_is_one_line(
    write: Write, name: str, source: str | None, message: str
) -> None:
    if source is not None:
        write(name, source)
    with pytest.raises(ConfigurationError) as caught:
        load_registry([name])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_interrupt_while_importing_is_not_a_configuration_error(write: Write) -> None:
    write("probe_12", "raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load_registry(["probe_12"])
