"""Imports tool modules by name or from a file, with a one-line error for each way that can fail."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from types import ModuleType
from typing import Final
from zlib import crc32

from gateway.authoring.mistakes import place_of_error
from gateway.errors import AuthoringError, ConfigurationError
from gateway.registry.same_name import refuse_hidden_module
from gateway.settings.tool_files import find_file, names_file, similar_to_module

_OWN_NAME: Final = "tool_file_"
_OURS: Final = frozenset({"__main__", "gateway", "gateway_workers"})


def import_tools(entry: str) -> ModuleType:
    """Import a tool module, by its name or by the path of its file.

    Raises:
        ConfigurationError: the module cannot be imported, or breaks a rule of the authoring API. The message names
            the entry and the reason in one line.
    """
    kind = "file" if names_file(entry) else "module"
    name = module_name(entry)
    if kind == "module":
        refuse_hidden_module(name)
    try:
        return importlib.import_module(name) if kind == "module" else _import_file(name, find_file(entry))
    except ModuleNotFoundError as error:
        if error.name is None:
            raise _failed(kind, entry, error) from error
        if kind == "module" and f"{name}.".startswith(f"{error.name}."):
            raise _not_found(name) from None
        needs = f"the tool {kind} {entry!r} needs {error.name!r}, which is not installed{_at(error)}"
        raise ConfigurationError(needs) from None
    except AuthoringError as error:
        raise ConfigurationError(
            f"the tool {kind} {entry!r} cannot be served: {_one_line(error)}{_at(error)}"
        ) from None
    except (Exception, SystemExit) as error:  # an import may raise anything, even exit
        raise _failed(kind, entry, error) from error


def module_name(entry: str) -> str:
    """Return the module name that an entry is imported as.

    A file gets the name that other modules would import it by, including its package if its folder is one. Its folder
    goes to the end of `sys.path`: the file finds its siblings, and hides nothing that is installed. A file whose name
    already belongs to another module, such as `calendar.py`, gets a generated name.

    Raises:
        ConfigurationError: the file does not exist.
    """
    if not names_file(entry):
        return entry
    path = find_file(entry)
    root, parts = _place_of(path)
    for folder in dict.fromkeys((str(root), str(path.parent))):
        if folder not in sys.path:
            sys.path.append(folder)
    name = ".".join(parts)
    if all(part.isidentifier() for part in parts) and _is_found_at(name, path):
        return name
    return f"{_OWN_NAME}{crc32(str(path).encode()):08x}_{re.sub(r'[^A-Za-z0-9]', '_', path.stem)}"


def folders_of(entries: Iterable[str]) -> frozenset[str]:
    """Return the folders of those entries that are files.

    Raises:
        ConfigurationError: a file does not exist.
    """
    return frozenset(str(find_file(entry).parent) for entry in entries if names_file(entry))


def loaded_from(folders: Collection[str]) -> list[str]:
    """Return the names of the loaded modules whose files are in these folders, except the gateway's own."""
    return [
        name
        for name, module in list(sys.modules.items())
        if folders and name.partition(".")[0] not in _OURS and _file_of(module).rpartition(os.sep)[0] in folders
    ]


def _file_of(module: ModuleType) -> str:
    return getattr(getattr(module, "__spec__", None), "origin", None) or ""


def _place_of(path: Path) -> tuple[Path, list[str]]:
    """Return the folder that a file is imported from, and the parts of its module name."""
    parts = [] if path.stem == "__init__" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, parts


def _is_found_at(name: str, path: Path) -> bool:
    """Return whether importing this name loads this file."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return Path(_file_of(loaded)).resolve() == path
    importlib.invalidate_caches()
    with contextlib.suppress(Exception, SystemExit):  # reported when the module itself is imported
        spec = importlib.util.find_spec(name)  # imports the packages that contain it
        return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == path
    return True


def _import_file(name: str, path: Path) -> ModuleType:
    """Import a file under a module name, even if `importlib` cannot find the file by that name."""
    if name in sys.modules or not name.startswith(_OWN_NAME):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _not_found(name: str) -> ConfigurationError:
    similar = similar_to_module(name)
    advice = (
        "check GATEWAY_TOOLS and that its folder is on PYTHONPATH"
        if similar is None
        else f"did you mean the file {similar!r}?"
    )
    return ConfigurationError(f"no module named {name!r}; {advice}")


def _failed(kind: str, entry: str, error: BaseException) -> ConfigurationError:
    message = error.msg if isinstance(error, SyntaxError) and error.filename is not None else error
    reason = f"{type(error).__name__}: {_one_line(message)}{_at(error)}"
    return ConfigurationError(f"the tool {kind} {entry!r} failed to import: {reason}")


def _one_line(error: object) -> str:
    return " ".join(str(error).split())


def _at(error: BaseException) -> str:
    place = place_of_error(error)
    return "" if place is None else f" ({place})"
