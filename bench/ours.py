"""Which of our code is measured: the compiled one or the source tree as it is."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import gateway

PACKAGE = Path(gateway.__file__).parent


def compiled_modules(package: Path = PACKAGE) -> int:
    """How many modules of the gateway are compiled, of those that this process and all it starts import."""
    return sum(1 for path in package.rglob("*.so") if path.name.endswith(EXTENSION_SUFFIXES[0]))


def kind(package: Path = PACKAGE) -> str:
    """What is measured, in a word."""
    return "compiled" if compiled_modules(package) else "interpreted"


def problem(*, interpreted: bool, package: Path = PACKAGE, top: Path) -> str | None:
    """What is wrong with measuring here, or None.

    Args:
        interpreted: whether the source tree is to be measured.
        package: the gateway that this process imports.
        top: the folder in which processes are started; they import the gateway that is there.
    """
    if package.parent != top:
        return f"this process imports {package}, but processes started here would import that of {top}"
    if interpreted and compiled_modules(package):
        return "this copy is compiled: run --interpreted in the source tree"
    if not interpreted and not compiled_modules(package):
        return "this is the source tree, not compiled: run `make bench`, or choose --interpreted"
    return None
