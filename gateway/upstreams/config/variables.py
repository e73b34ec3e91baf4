"""Replaces `${…}` in the texts of a configuration file: variables of the environment, and contents of files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

MAX_FILE_BYTES: Final = 1 << 16
"""The largest file that `${file:…}` reads."""

_REFERENCE: Final = re.compile(r"\$\{([^{}]*+)(\}?)")
_VARIABLE: Final = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*+)(?::-(.*))?", re.DOTALL)
_SHOWN_CHARACTERS: Final = 60


class VariableError(Exception):
    """A reference cannot be replaced. The text says why and what to write, without any value."""


class SecretText(str):
    """A text that contains what a reference stood for, so no message may quote it."""

    __slots__ = ()


class Variables:
    """Replaces references, and remembers which files it read.

    Relative paths of files start from `folder`. `files` also has those that could not be read.
    """

    def __init__(self, environ: Mapping[str, str], folder: Path) -> None:
        self.files: list[Path] = []
        self._environ = environ
        self._folder = folder

    def replace(self, text: str) -> str:
        """Return the text with every reference replaced; `SecretText` if there was one. Values are not looked into.

        References are `${NAME}` and `${env:NAME}`, which may have a default for a variable that is unset or empty
        (`${NAME:-text}`), and `${file:/path}`. Blanks and line ends around a value are left out.

        Raises:
            VariableError: a variable is unset and has no default, a file cannot be read, or the reference is another
                one.
        """
        if "${" not in text:
            return text
        return SecretText(_REFERENCE.sub(self._value, text))

    def path(self, text: str) -> Path:
        """Return a path, relative ones from the folder of the configuration."""
        return self._folder / text

    def _value(self, reference: re.Match[str]) -> str:
        inner, end = reference.groups()
        if not end:
            raise VariableError("`${` has no `}`; add it")
        if inner.startswith("input:"):
            raise VariableError(
                f"{_shown(inner)} asks the user of a desktop client, and nobody can answer here; "
                "use ${NAME} or ${file:/path}"
            )
        if inner.startswith("file:"):
            return self._content(inner.removeprefix("file:"))
        found = _VARIABLE.fullmatch(inner)
        if found is None:
            raise VariableError(
                f"{_shown(inner)} is not a reference; use ${{NAME}}, ${{NAME:-text}} or ${{file:/path}}"
            )
        name, default = found.groups()
        value = self._environ.get(name)
        if value is not None:
            value = value.strip()
        if default is not None:
            return value or default
        if value is None:
            raise VariableError(f"the variable {name[:_SHOWN_CHARACTERS]} is not set; set it, or give it a default")
        return value

    def _content(self, name: str) -> str:
        if not name or "\0" in name:
            raise VariableError("${file:} names no file; write ${file:/path}")
        path = self.path(name)
        self.files.append(path)
        shown = f"the file {name!r} of ${{file:…}}"
        try:
            with path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise VariableError(f"{shown} cannot be read: {reason}; name a readable file") from None
        if len(content) > MAX_FILE_BYTES:
            raise VariableError(f"{shown} is larger than {MAX_FILE_BYTES} bytes; name a smaller one")
        try:
            return content.decode("utf-8").strip()
        except UnicodeDecodeError:
            raise VariableError(f"{shown} is not UTF-8 text; name one that is") from None


def _shown(inner: str) -> str:
    """Return a reference as messages quote it: without its default, which may be a secret."""
    name = inner.partition(":-")[0]
    return f"${{{name[:_SHOWN_CHARACTERS]}}}"


def shown(value: object) -> str:
    """Return a value as messages quote it: never what a reference stood for."""
    if isinstance(value, SecretText):
        return "the value"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return repr(shortened(value))
    if isinstance(value, (int, float)):
        return shortened(repr(value))
    return {dict: "an object", list: "a list", type(None): "null"}.get(type(value), "the value")


def shortened(text: str) -> str:
    """Return the beginning of a text, as much of it as messages quote."""
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
