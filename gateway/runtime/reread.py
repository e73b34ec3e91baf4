"""Reads key files and the like at once when a process is asked to, instead of at the next interval."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeAlias

Reader: TypeAlias = Callable[[], Awaitable[None]]

_readers: Final[dict[Reader, asyncio.AbstractEventLoop]] = {}


@contextlib.contextmanager
def rereading(reader: Reader) -> Iterator[None]:
    """Let `read_again` call a function on the running event loop while the context is open."""
    _readers[reader] = asyncio.get_running_loop()
    try:
        yield
    finally:
        del _readers[reader]


async def read_again() -> None:
    """Read everything of this event loop again. Each source reports its own problems."""
    loop = asyncio.get_running_loop()
    readers = [reader for reader, own in _readers.items() if own is loop]
    await asyncio.gather(*(reader() for reader in readers), return_exceptions=True)
