"""The static files of the playground, read once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

PAGE: Final = "index.html"
"""The file that is served at `/`."""

_CONTENT_TYPES: Final[Mapping[str, str]] = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file as it is served. `etag` is the value of `ETag`, from the content."""

    content_type: str
    etag: str
    content: bytes


def read_files() -> dict[str, StaticFile]:
    """Return the files of the package by their path below `static/`."""
    return {path: _read(path, file) for path, file in _walk("", files(__package__) / "static")}


def _walk(prefix: str, folder: Traversable) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        path = f"{prefix}{entry.name}"
        if entry.is_dir():
            yield from _walk(f"{path}/", entry)
        elif entry.name.rpartition(".")[2] in _CONTENT_TYPES:
            yield path, entry


def _read(path: str, file: Traversable) -> StaticFile:
    content = file.read_bytes()
    return StaticFile(
        content_type=_CONTENT_TYPES[path.rpartition(".")[2]],
        etag=f'"{hashlib.sha256(content).hexdigest()[:32]}"',
        content=content,
    )
