"""Distinguishes files from modules in `GATEWAY_TOOLS`, and finds the files."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Final

from gateway.errors import ConfigurationError

SUFFIX: Final = ".py"


def names_file(entry: str) -> bool:
    """Return whether an entry names a file or folder, such as `bugs.py` or `./bugs`, instead of a module."""
    return entry.endswith(SUFFIX) or "/" in entry


def find_file(entry: str) -> Path:
    """Return the absolute path of the file that an entry names. For a package's folder, that is its `__init__.py`.

    Raises:
        ConfigurationError: there is no such file. The message suggests one with a similar name, if there is one.
    """
    path = Path(entry)
    package = path / "__init__.py"
    if path.is_dir() and package.is_file():
        return package.resolve()
    if path.is_file():
        return path.resolve()
    if path.is_dir():
        raise ConfigurationError(f"the tool file {entry!r} is a folder without an __init__.py; name a file in it")
    similar = _similar_file(path)
    advice = "check GATEWAY_TOOLS or --tools" if similar is None else f"did you mean {str(similar)!r}?"
    raise ConfigurationError(f"no tool file {entry!r} in {Path.cwd()}; {advice}")


def similar_to_module(name: str) -> str | None:
    """Return the file in the working directory that the name of a missing module probably means, or None."""
    similar = _similar_file(Path(*name.split(".")))
    return None if similar is None else str(similar)


def _similar_file(path: Path) -> Path | None:
    whole = path.with_name(path.name + SUFFIX)
    if path.name and path.suffix != SUFFIX and whole.is_file():
        return whole
    try:
        stems = [entry.stem for entry in path.parent.iterdir() if entry.suffix == SUFFIX and entry.is_file()]
    except OSError:
        return None
    # Compare without the suffix, which would make any two short names similar.
    close = difflib.get_close_matches(path.name.removesuffix(SUFFIX), stems, n=1)
    return path.with_name(close[0] + SUFFIX) if close else None
