"""Pure: Server-Sent Events as MCP uses them (2026-07-28 "Streamable HTTP", "Receiving Messages").

An event is one message on one `data:` line, so that readers of single lines get whole messages. It has no id and no
name, because streams cannot be resumed.
"""

from __future__ import annotations

from typing import Final

CONTENT_TYPE: Final = b"text/event-stream"

HEADERS: Final = (
    (b"content-type", CONTENT_TYPE),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
"""The response headers of a stream. The last one makes proxies forward each event immediately."""

_COMMENT: Final = b":\n\n"


def event(data: bytes) -> bytes:
    """Frame one encoded message, as `strict_json.encode` writes it.

    A line break would end the line and could start another field, so it raises `ValueError`.
    """
    if b"\n" in data or b"\r" in data:
        raise ValueError("the data of an event must be one line")
    return b"data: " + data + b"\n\n"


def comment() -> bytes:
    """Return a comment, which clients ignore. It keeps a quiet connection open."""
    return _COMMENT
