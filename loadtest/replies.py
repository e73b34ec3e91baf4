"""Reads the reply to a request from Locust's fast HTTP session: one message, or a stream of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from locust.contrib.fasthttp import FAILURE_EXCEPTIONS, ResponseContextManager

from loadtest import wire
from loadtest.wire import Reply, Request

Notice: TypeAlias = Callable[[Mapping[str, Any]], bool]
"""Called with each message of a stream (empty for a keep-alive); returns whether to stop reading."""


def read_reply(response: ResponseContextManager, request: Request, request_id: int, on_notice: Notice) -> Reply:
    """Read the whole reply to a request, or a stream until `on_notice` asks to stop."""
    if response.status_code == 0 or response.headers is None:
        return Reply(request_id, 0)
    replica = str(response.headers.get(wire.REPLICA_HEADER, ""))
    notices: list[Mapping[str, Any]] = []
    try:
        if str(response.headers.get("content-type", "")).startswith(wire.EVENT_STREAM):
            body = _read_events(response, request, notices, on_notice)
        else:
            body = bytes(response.content or b"")
    except FAILURE_EXCEPTIONS:
        return Reply(request_id, 0, notices=notices, replica=replica)
    return Reply(
        request_id, response.status_code, body, notices, replica, _seconds(response.headers.get("retry-after", "1"))
    )


def _read_events(
    response: ResponseContextManager, request: Request, notices: list[Mapping[str, Any]], on_notice: Notice
) -> bytes:
    """Read a stream to its end, and return its response; empty if `on_notice` asked to stop first.

    A message after the response breaks the protocol, and makes the reply unreadable.
    """
    while block := response.stream.readline(b"\n\n"):
        data = wire.read_event(block)
        message = wire.decode(data)
        if request.is_last(message):
            return data + wire.read_event(bytes(response.content or b""))
        if message:
            notices.append(message)
        if on_notice(message):
            response.stream.release()
            return b""
    return b""


def _seconds(retry_after: Any) -> float:
    try:
        return max(0.0, float(retry_after))
    except (TypeError, ValueError):
        return 1.0
