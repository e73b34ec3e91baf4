"""Pure: Server-Sent Events as MCP uses them (2026-07-28 "Streamable HTTP", "Receiving Messages").

An event is one message on one `data:` line. It has no id and no name: streams cannot be resumed, and
readers that look at single lines find each message whole.
"""

from __future__ import annotations

from typing import Final

CONTENT_TYPE: Final = b"text/event-stream"

HEADERS: Final = (
    (b"content-type", CONTENT_TYPE),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
"""Response headers of a stream. The last one tells proxies to pass each event on at once."""

_COMMENT: Final = b":\n\n"


def event(data: bytes) -> bytes:
    """Frame one encoded message, as `strict_json.encode` writes it.

    Raises:
        ValueError: the data holds a line break, which would end the line and could begin another field.
    """
    if b"\n" in data or b"\r" in data:
        raise ValueError("the data of an event must be one line")
    return b"data: " + data + b"\n\n"


def comment() -> bytes:
    """Return a line that clients ignore, to keep a quiet connection open."""
    return _COMMENT
