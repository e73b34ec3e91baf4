"""The output of `gateway dev`, and whether anybody can still read it."""

from __future__ import annotations

import asyncio
import os
import select
import sys
from typing import Final, TextIO

from gateway.observability.destinations import Destination
from gateway.observability.line_writer import CLOSE_SECONDS, MAX_QUEUED_BYTES, Lines, LineWriter

_POLL_SECONDS: Final = 0.5
_FULL_SECONDS: Final = 0.02
_CHUNK_BYTES: Final = 65536
_COPIES_SHARE: Final = 0.5
"""The share of the write queue that copied lines may fill. The rest is for the parent's own lines."""


class Console:
    """Prints the parent's own lines to stdout and those of its children to stderr.

    Threads do the writing, so neither a stopped terminal nor a slow or missing reader blocks the parent, which always
    stays responsive to signals. Lines that cannot be written are lost. If `out` is None, that is stdout, if it is open.
    If `err` is None, that is stderr.
    """

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = _descriptor(sys.stdout if out is None else out)
        error = _descriptor(sys.stderr if err is None else err)
        writer = None if self._out is None else LineWriter(Destination(self._out))
        self._copier = None if error is None else self._writer_to(error, writer)
        self._writers = [entry for entry in {writer, self._copier} if entry is not None]
        self._words = None if writer is None else Lines(writer)
        self._copies = None if self._copier is None else Lines(self._copier, share=_COPIES_SHARE)

    def _writer_to(self, error: int, writer: LineWriter | None) -> LineWriter:
        """Return one writer for both streams if they are the same terminal or file, so that lines stay in order."""
        if writer is not None and self._out is not None and os.path.sameopenfile(self._out, error):
            return writer
        return LineWriter(Destination(error))

    def say(self, text: str) -> None:
        """Print one line for people. Never waits and never fails."""
        if self._words is not None:
            self._words.write(f"gateway dev: {text}\n".encode("utf-8", "backslashreplace"))

    async def copy(self, reader: asyncio.StreamReader, name: str) -> None:
        """Copy a child's output until the stream ends, each line marked with the child's name.

        Reads no faster than the lines can be written. If nobody reads them any more, it keeps reading and drops them,
        so the child never blocks.
        """
        rest = b""
        try:
            while chunk := await reader.read(_CHUNK_BYTES):
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > _CHUNK_BYTES:
                    lines, rest = [*lines, rest], b""
                await self._print(_marked(name, lines))
        finally:
            if rest and self._copies is not None:
                self._copies.write(_marked(name, [rest]))

    async def _print(self, data: bytes) -> None:
        if self._copier is None or self._copies is None or not data:
            return
        while not self._copier.put(self._copies, data, int(MAX_QUEUED_BYTES * _COPIES_SHARE)):  # noqa: ASYNC110 - the writer's thread knows no loop
            await asyncio.sleep(_FULL_SECONDS)

    @property
    def is_gone(self) -> bool:
        """Whether stdout is a pipe whose reader has gone, or a terminal that was closed."""
        if self._out is None:
            return False
        poll = select.poll()
        poll.register(self._out, 0)
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))

    async def until_gone(self) -> None:
        """Wait until nobody can read stdout any more; see `is_gone`."""
        while not self.is_gone:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(_POLL_SECONDS)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Write the queued lines, but wait at most `seconds` for a slow reader."""
        for writer in self._writers:
            writer.close(seconds)


def _descriptor(stream: TextIO | None) -> int | None:
    """Return the stream's file descriptor; None if it has none, for example in a process started without stdout."""
    try:
        return None if stream is None else stream.fileno()
    except (OSError, ValueError):
        return None


def _marked(name: str, lines: list[bytes]) -> bytes:
    return "".join(f"[{name}] {line.decode(errors='replace')}\n" for line in lines).encode()
