"""Pure: an incremental reader of Server-Sent Events (HTML standard, section "Parsing an event stream").

Events of another type than `message` are ignored, as browsers ignore those without a listener. So are events without
data, but for their id: some servers send one first, so that the stream can be resumed from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.errors import GatewayError

_BOM: Final = b"\xef\xbb\xbf"
_CR: Final = 0x0D
_LF: Final = 0x0A
_DEFAULT_TYPES: Final = (b"", b"message")
_MAX_RETRY_DIGITS: Final = 9

MAX_ID_BYTES: Final = 1024
"""A longer id cannot be sent back. The stream is not resumed then."""

MAX_DATA_LINES: Final = 1 << 16
"""How many lines of data an event may have: each takes time, however short. Servers of MCP send one, or few."""


class EventTooLarge(GatewayError):
    """A line or an event is larger than allowed, or an event has too many lines."""


class EventStream:
    """Reads a stream in pieces, cut anywhere. `max_bytes` limits the data of one event, and a line.

    Attributes:
        last_id: the id of the last event that has ended; empty without one.
        retry_ms: how many milliseconds the server wants clients to wait before they resume; None if it says nothing.
    """

    __slots__ = (
        "_after_cr",
        "_at_start",
        "_data",
        "_id",
        "_line",
        "_lines",
        "_max_bytes",
        "_type",
        "last_id",
        "retry_ms",
    )

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._at_start = True
        self._after_cr = False
        self._line = bytearray()
        self._data = bytearray()  # each line of it ends with a line feed
        self._lines = 0
        self._type = b""
        self._id: bytes | None = None
        self.last_id = b""
        self.retry_ms: int | None = None

    @property
    def unfinished_bytes(self) -> int:
        """How many bytes it holds of an event, and of a line of it, that have not ended."""
        return len(self._line) + len(self._data)

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the data of the events that end in `piece`. The lines of one event are joined with line feeds.

        The piece has been read when the iterator ends.

        Raises:
            EventTooLarge: there are more than `max_bytes` or `MAX_DATA_LINES`. The stream cannot be used again.
        """
        if self._after_cr and piece:
            self._after_cr = False
            if piece[0] == _LF:
                piece = piece[1:]
        if not piece:
            return
        self._after_cr = piece[-1] == _CR
        lines = piece.splitlines()
        rest = b"" if piece[-1] in (_CR, _LF) else lines.pop()
        if lines:
            lines[0] = self._first(lines[0])
        for line in lines:
            if not line:
                if (
                    self._data or self._type or self._id is not None
                ):  # a quarter of a million empty lines may come at once
                    event = self._end_event()
                    if event is not None:
                        yield event
            elif line.startswith(b"data"):
                self._take_data(line)
            else:
                self._take_other(line)
        self._check_length(len(self._line) + len(rest))
        self._line += rest

    def _first(self, end: bytes) -> bytes:
        """Return a line that may have begun in earlier pieces."""
        self._check_length(len(self._line) + len(end))
        line = bytes(self._line) + end if self._line else end
        self._line.clear()
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        return line

    def _check_length(self, size: int) -> None:
        if size + len(self._data) > self._max_bytes + len(b"data: "):
            raise EventTooLarge(f"a line or an event of the stream is larger than {self._max_bytes} bytes")

    def _take_data(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name != b"data":
            self._check_length(len(line))
            return
        self._lines += 1
        if self._lines > MAX_DATA_LINES:
            raise EventTooLarge(f"an event has more than {MAX_DATA_LINES} lines")
        self._data += value.removeprefix(b" ")
        if len(self._data) > self._max_bytes:
            raise EventTooLarge(f"an event is larger than {self._max_bytes} bytes")
        self._data += b"\n"

    def _take_other(self, line: bytes) -> None:
        self._check_length(len(line))
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._type = value
        elif name == b"id" and b"\0" not in value:
            self._id = value
        elif name == b"retry" and value.isdigit() and len(value) <= _MAX_RETRY_DIGITS:
            self.retry_ms = int(value)

    def _end_event(self) -> bytes | None:
        data, kind = self._data, self._type
        self._data, self._lines, self._type = bytearray(), 0, b""
        if self._id is not None:
            self.last_id, self._id = self._id if len(self._id) <= MAX_ID_BYTES else b"", None
        return bytes(data[:-1]) or None if kind in _DEFAULT_TYPES else None
