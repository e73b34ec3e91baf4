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
_NOTICE: Final = re.compile(rb'\s*\{ ?(?:"jsonrpc" ?: ?"2\.0" ?, ?)?"method" ?: ?"(notifications/[a-z_/]{1,64})"')
_AT_END: Final = re.compile(rb"[}\]] ?, ?" + _ID + rb" ?\}\s*\Z")


class LineTooLong(GatewayError):
    """A line does not end."""


class Line(NamedTuple):
    """A line without its end: whole, or only its first and last bytes if it was skipped, and why it was."""

    start: bytes
    end: bytes = b""
    skipped: str = ""


class JsonLines:
    """Reads lines in pieces, cut anywhere, each of at most `max_bytes`."""

    __slots__ = ("_end", "_line", "_max_bytes", "_skipped", "_why")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._end = b""  # of a line that is too long; `_line` has its start then
        self._skipped = 0
        self._why = ""

    @property
    def unfinished(self) -> int:
        """How many bytes are kept of the line that has not ended."""
        return len(self._line)

    @property
    def start(self) -> bytes:
        """How the line that has not ended begins."""
        return bytes(self._line[:_KEPT_BYTES])

    def skip(self, why: str) -> None:
        """Keep only the first and the last bytes of the line that has not ended."""
        if not self._why:
            self._why, self._skipped = why, len(self._line)
            self._end, self._line = bytes(self._line[-_KEPT_BYTES:]), self._line[:_KEPT_BYTES]

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
        if not self._why and len(self._line) + len(part) <= self._max_bytes:
            self._line += part
            return
        self.skip(f"the line has more than {self._max_bytes} bytes")
        self._line += part[: _KEPT_BYTES - len(self._line)]
        self._skipped += len(part)
        self._end = (self._end + part)[-_KEPT_BYTES:]
        if self._skipped > SKIP_FACTOR * self._max_bytes:
            raise LineTooLong("a line does not end")

    def _taken(self) -> Line:
        line = Line(bytes(self._line), self._end, self._why)
        self._line, self._end, self._skipped, self._why = bytearray(), b"", 0, ""
        return line


def notice_of(start: bytes) -> str | None:
    """Return the method of the notification that begins so, None if that is unclear."""
    found = _NOTICE.match(start)
    return None if found is None else found[1].decode()


def answered_at_start(start: bytes) -> int | None:
    """Return which request a line answers that begins so, None if that is unclear."""
    found = _AT_START.match(start)
    return None if found is None else int(found[1])


def answered_by(line: Line) -> int | None:
    """Return which request a line seems to answer that cannot be read, None if that is unclear.

    SDKs write the id first or last. Nothing but the failure of that request may follow from this.
    """
    number = answered_at_start(line.start)
    if number is None and (found := _AT_END.search(line.end or line.start[-_KEPT_BYTES:])):
        number = int(found[1])
    return number
