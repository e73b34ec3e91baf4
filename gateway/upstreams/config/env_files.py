"""Reads files of variables, as desktop clients and Docker have them (`envFile`): a `NAME=value` on each line."""

from __future__ import annotations

import re
from typing import Final

_LINE: Final = re.compile(r"(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(.*)")
_QUOTED: Final = re.compile(r"(?:\"([^\"\\]*)\"|'([^']*)')[ \t]*(?:#.*)?")
_PLAIN: Final = re.compile(r"([^\"'#\s](?:.*?\S)??)??[ \t]*(?:(?:^|[ \t])#.*)?")


class EnvFileError(Exception):
    """A line cannot be read. The text has the number of the line, and quotes no part of it."""


def parse_env_file(text: str) -> dict[str, str]:
    """Return the variables of a file. Empty lines and those with `#` are skipped, and so is `# …` after a value.

    Readers of such files differ in all else: escapes, and quotes inside of values or over several lines. So these are
    refused.
    """
    variables: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        found = _LINE.fullmatch(stripped)
        value = None if found is None else _value(found[2])
        if found is None or value is None or "\0" in value:
            raise EnvFileError(f"line {number} is not NAME=value; use plain or quoted values without escapes")
        variables[found[1]] = value
    return variables


def _value(written: str) -> str | None:
    quoted = _QUOTED.fullmatch(written)
    if quoted is not None:
        return quoted[1] if quoted[1] is not None else quoted[2]
    plain = _PLAIN.fullmatch(written)
    return None if plain is None else plain[1] or ""
