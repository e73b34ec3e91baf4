"""Processes on one host, without sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

from gateway.tokens.hop_messages import NoReply


class Beside:
    """The processes of one host; a `gateway.tokens.hop_messages.Neighbours`.

    Attributes:
        takes: what takes the messages for each process, by its boot id.
    """

    def __init__(self) -> None:
        self.takes: dict[bytes, Callable[[bytes], bytes | None]] = {}

    def has(self, boot: bytes) -> bool:
        return boot in self.takes

    def stream(self, boot: bytes, message: bytes) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        raise NotImplementedError

    async def post(self, boot: bytes, message: bytes) -> bytes:
        reply = self.takes[boot](message)
        if not reply:
            raise NoReply("a process on this host refused the message, or has ended")
        return reply
