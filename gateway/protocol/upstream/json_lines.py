"""Pure: an incremental reader of lines (MCP "stdio"), each of which should be a message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from gateway.errors import GatewayError

SKIP_FACTOR: Final = 8
"""How many times the largest line is skipped in search of the end of a line that is too long."""

_KEPT_BYTES: Final = 256
_ID: Final = rb'"jsonrpc" ?: ?"2\.0" ?, ?"id" ?: ?([0-9]{1,15})'
_AT_START: Final = re.compile(rb"\s*\{ ?" + _ID + rb' ?, ?"(?:result|error)" ?:')
_AT_END: Final = re.compile(rb"[}\]] ?, ?" + _ID + rb" ?\}\s*\Z")


class LineTooLong(GatewayError):
    """A line does not end."""


class Line(NamedTuple):
    """A line without its end: whole, or only its first and last bytes if it is too long."""

    start: bytes
    end: bytes = b""
    is_whole: bool = True


class JsonLines:
    """Reads lines in pieces, cut anywhere, each of at most `max_bytes`."""

    __slots__ = ("_end", "_line", "_max_bytes", "_skipped")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._end = b""  # of a line that is too long; `_line` has its start then
        self._skipped = 0

    def feed(self, piece: bytes) -> Iterator[Line]:
        """Read a piece, and yield the lines that end in it.

        Raises:
            LineTooLong: a line that is too long does not end either.
        """
        *ended, rest = piece.split(b"\n")
        for part in ended:
            self._add(part)
            yield self._taken()
        self._add(rest)

    def _add(self, part: bytes) -> None:
        if not self._skipped and len(self._line) + len(part) <= self._max_bytes:
            self._line += part
            return
        if not self._skipped:
            self._skipped, self._end = len(self._line), bytes(self._line[-_KEPT_BYTES:])
            self._line = bytearray((self._line + part)[:_KEPT_BYTES])
        self._skipped += len(part)
        self._end = (self._end + part)[-_KEPT_BYTES:]
        if self._skipped > SKIP_FACTOR * self._max_bytes:
            raise LineTooLong("a line does not end")

    def _taken(self) -> Line:
        line = Line(bytes(self._line), self._end, is_whole=not self._skipped)
        self._line, self._end, self._skipped = bytearray(), b"", 0
        return line


def answered_by(line: Line) -> int | None:
    """Return which request a line seems to answer that cannot be read, None if that is unclear.

    SDKs write the id first or last. Nothing but the failure of that request may follow from this.
    """
    found = _AT_START.match(line.start) or _AT_END.search(line.end or line.start[-_KEPT_BYTES:])
    return None if found is None else int(found[1])
