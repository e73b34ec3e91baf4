"""The compiled build: its modules, the variable that turns it on, and the compiled copy of the repository."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.main import main
from gateway.runtime.compilation import ALWAYS_COMPILED, is_compiled
from gateway.runtime.version import __version__
from scripts import compiled

TOP = Path(__file__).resolve().parent.parent.parent
SETUP: dict[str, Any] = runpy.run_path(str(TOP / "setup.py"))
COMPILED: dict[str, float] = SETUP["COMPILED"]


def test_every_module_that_is_compiled_exists_and_is_named_once_in_order() -> None:
    assert [name for name in COMPILED if not (TOP / name).is_file()] == []
    assert list(COMPILED) == sorted(set(COMPILED))


def test_the_module_that_a_compiled_build_is_known_by_is_always_compiled() -> None:
    assert f"{ALWAYS_COMPILED.replace('.', '/')}.py" in COMPILED


def test_a_build_that_is_not_asked_to_compile_needs_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mypyc.build", None)
    for value in (None, "", "0"):
        monkeypatch.delenv("SEALED_GATEWAY_COMPILE", raising=False)
        if value is not None:
            monkeypatch.setenv("SEALED_GATEWAY_COMPILE", value)
        assert SETUP["extension_modules"]() == []


def test_the_tree_of_sources_holds_no_extension_module() -> None:
    if not is_compiled():
        assert [*TOP.glob("*.so"), *TOP.glob("gateway/**/*.so"), *TOP.glob("workers/**/*.so")] == []


def test_a_tree_says_that_it_is_compiled_once_it_was_compiled() -> None:
    """It says so in `build/compiled`, where `make ci` runs this test again."""
    was_compiled = (TOP / compiled.STAMP.name).is_file()
    assert version_in(TOP).endswith(" (compiled)" if was_compiled else " (interpreted)")


def version_in(folder: Path) -> str:
    command = [sys.executable, "-m", "gateway", "--version"]
    environ = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=True).stdout.rstrip()


def test_the_version_that_is_printed_tells_whether_it_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    ways = ("interpreted", "compiled")
    assert capsys.readouterr().out in [f"sealed-gateway {__version__} ({way})\n" for way in ways]


class Compiler:
    """A fake compiler for the copy: it records that it was called, and fails if asked to."""

    def __init__(self) -> None:
        self.calls = 0
        self.code = 0

    def __call__(self) -> int:
        self.calls += 1
        return self.code


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small repository."""
    for name, path in {"TOP": ".", "COPY": "build/compiled", "STAMP": "build/compiled/.compiled"}.items():
        monkeypatch.setattr(compiled, name, tmp_path / path)
    for name in ("setup.py", "gateway/process/app.py", "docs/page.md", "gateway/__pycache__/app.pyc", ".git/config"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """A compiler that replaces the real one."""
    compiler = Compiler()
    monkeypatch.setattr(compiled, "compile_copy", compiler)
    return compiler


def test_the_copy_has_every_file_with_its_time_and_shares_the_environments(top: Path, compiler: Compiler) -> None:
    assert compiled.main() == 0
    copy = top / "build/compiled"
    copied = {str(path.relative_to(copy)) for path in compiled.files(copy)}
    assert copied == {"setup.py", "gateway/process/app.py", "docs/page.md"}
    assert not (copy / ".git").exists()
    assert (copy / "setup.py").stat().st_mtime_ns == (top / "setup.py").stat().st_mtime_ns
    for name in (".venv", ".venvs", "reports"):
        assert (copy / name).resolve() == top / name
    assert compiler.calls == 1


def test_only_a_change_of_code_compiles_again(top: Path, compiler: Compiler) -> None:
    compiled.main()
    compiled.main()
    (top / "docs/page.md").write_text("another text")
    compiled.main()
    assert (top / "build/compiled/docs/page.md").read_text() == "another text"
    assert compiler.calls == 1
    (top / "gateway/process/app.py").write_text("another program")
    compiled.main()
    assert (top / "build/compiled/gateway/process/app.py").read_text() == "another program"
    assert compiler.calls == 2


def test_a_file_that_is_gone_is_gone_from_the_copy(top: Path, compiler: Compiler) -> None:
    compiled.main()
    (top / "gateway/process/app.py").unlink()
    compiled.main()
    assert not (top / "build/compiled/gateway/process/app.py").exists()
    assert compiler.calls == 2


def test_what_did_not_compile_is_compiled_again_next_time(top: Path, compiler: Compiler) -> None:
    compiler.code = 1
    assert compiled.main() == 1
    compiler.code = 0
    assert compiled.main() == 0
    assert compiler.calls == 2
