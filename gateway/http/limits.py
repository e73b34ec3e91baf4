"""The limits on what clients may send, and on how they read responses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one server.

    Attributes:
        max_connections: how many connections may be open. More are closed immediately.
        max_header_bytes: the largest head of a request, as sent: request line, headers and the empty line.
        max_message_bytes: the largest request as sent, including the framing of its chunks.
        head_seconds: how long a head may take: the first one after connecting, others after their first byte.
        body_seconds: how long a body may take after its head.
        unread_seconds: how long a client may read nothing while a response waits to be sent.
        silent_seconds: how long a client may acknowledge nothing of a stream.
        max_unread_bytes: how many bytes may wait to be sent, on all connections together.
        idle_seconds: how long a connection without a request stays open.
        max_exempt_connections: how many may be open beside `max_connections`; see `Shortcut.exempt`.
    """

    max_connections: int
    max_header_bytes: int
    max_headers: int
    max_message_bytes: int
    head_seconds: float
    body_seconds: float
    unread_seconds: float
    silent_seconds: float
    max_unread_bytes: int
    idle_seconds: float
    max_exempt_connections: int = 0
