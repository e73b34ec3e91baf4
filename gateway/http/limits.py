"""What clients may do before and after their requests reach the application."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one server.

    Attributes:
        max_connections: how many connections may be open; more are closed at once.
        max_header_bytes: the largest head of a request, as sent: request line, headers and the empty line.
        max_headers: how many headers it may have.
        max_message_bytes: the largest request as sent, with the framing of its chunks.
        head_seconds: how long the first head may take after connecting, others after their first byte.
        body_seconds: how long a body may take after its head.
        unread_seconds: how long a client may take nothing of an answer that waits to be sent.
        silent_seconds: how long it may acknowledge nothing of a stream that it is sent.
        max_unread_bytes: what may wait to be sent on all connections together.
        idle_seconds: how long a connection is kept open on which nothing is asked.
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
