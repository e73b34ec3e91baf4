"""Pure: an incremental reader of Server-Sent Events (HTML standard, section "Parsing an event stream").

Only the data of events matters here: MCP gives events no name and no id. Events of another type than `message` are
ignored, as browsers ignore those without a listener. So are events without data, which some servers send first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.errors import GatewayError

_BOM: Final = b"\xef\xbb\xbf"
_CR: Final = 0x0D
_LF: Final = 0x0A
_DEFAULT_TYPES: Final = (b"", b"message")


class EventTooLarge(GatewayError):
    """A line or an event is larger than allowed."""


class EventStream:
    """Reads a stream in pieces, cut anywhere.

    Args:
        max_bytes: the largest data of one event, and the longest line.
    """

    __slots__ = ("_after_cr", "_at_start", "_data", "_line", "_max_bytes", "_size", "_type")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._at_start = True
        self._after_cr = False
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._type = b""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the data of the events that end in `piece`. The lines of one event are joined with line feeds.

        The piece has been read when the iterator ends.

        Raises:
            EventTooLarge: a line or the data of an event is larger than `max_bytes`. The stream cannot be used again.
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
        for line in lines:
            if not line and self._is_between_events():
                continue  # a quarter of a million empty lines may come at once
            event = self._end_line(line)
            if event is not None:
                yield event
        self._extend(rest)

    def _is_between_events(self) -> bool:
        return not (self._line or self._data or self._type or self._at_start)

    def _extend(self, part: bytes) -> None:
        if len(self._line) + len(part) > self._max_bytes + len(b"data: "):
            raise EventTooLarge(f"a line of the event stream is larger than {self._max_bytes} bytes")
        self._line += part

    def _end_line(self, part: bytes) -> bytes | None:
        """Read a whole line, and return the data of the event that it ends, if it ends one."""
        self._extend(part)
        line = bytes(self._line)
        self._line.clear()
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._end_event()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._size += len(value) + 1
            if self._size > self._max_bytes + 1:
                raise EventTooLarge(f"an event is larger than {self._max_bytes} bytes")
            self._data.append(value)
        elif name == b"event":
            self._type = value
        return None

    def _end_event(self) -> bytes | None:
        data, kind = self._data, self._type
        self._data, self._size, self._type = [], 0, b""
        return b"\n".join(data) or None if kind in _DEFAULT_TYPES else None
