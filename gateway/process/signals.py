"""Signals that do not end a process: SIGHUP reads files again, and SIGUSR1 and SIGUSR2 do nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeAlias

from gateway.process.supervisor import notify_ready, notify_reloading
from gateway.runtime.reread import read_again

log = logging.getLogger(__name__)

End: TypeAlias = Callable[[int, FrameType | None], object]


class Hangups:
    """Handles SIGHUP, which has two meanings.

    If the process was started in a terminal that has been closed, it ends as for SIGTERM. Otherwise somebody sent the
    signal, so the process reads everything again. Under `nohup`, no SIGHUP ends it.
    """

    def __init__(self) -> None:
        self._in_terminal = signal.getsignal(signal.SIGHUP) is signal.SIG_DFL and _has_terminal()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: End = _end_at_once
        self._has_ended = False
        self._asked = asyncio.Event()
        self._ready = asyncio.Event()

    @contextlib.contextmanager
    def caught(self) -> Iterator[Hangups]:
        """Catch the signals. Only the main thread can, so other threads catch none.

        Signals that already have a handler, such as one of a tool module, keep it.
        """
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        # SIG_IGN would reach the programs that tools start.
        wanted: dict[signal.Signals, Any] = {
            signal.SIGHUP: self._handle,
            signal.SIGUSR1: _do_nothing,
            signal.SIGUSR2: _do_nothing,
        }
        free = [number for number in wanted if signal.getsignal(number) in (signal.SIG_DFL, signal.SIG_IGN)]
        originals = {number: signal.signal(number, wanted[number]) for number in free}
        try:
            yield self
        finally:
            for number, handler in originals.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def obeyed(self, end: End) -> Iterator[None]:
        """Read everything again on the running event loop at each SIGHUP, and call `end` when the terminal is closed.

        Signals before `ready` are obeyed then, because a file may have changed after it was read.
        """
        self._loop, self._end = asyncio.get_running_loop(), end
        reading = self._loop.create_task(self._read_when_asked())
        try:
            yield
        finally:
            self._loop = None
            reading.cancel()

    def ready(self) -> None:
        """Note on the event loop that the process serves, and notify the supervisor."""
        notify_ready()
        self._ready.set()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._in_terminal and not _has_terminal():
            if not self._has_ended:  # the kernel and the shell may both send it
                self._has_ended = True
                self._end(number, frame)
        elif self._loop is None:
            self._asked.set()
        else:
            self._loop.call_soon_threadsafe(self._asked.set)

    async def _read_when_asked(self) -> None:
        await self._ready.wait()
        while True:
            await self._asked.wait()
            self._asked.clear()
            notify_reloading()
            await read_again()
            notify_ready()
            log.info("files read again", extra={"signal": signal.SIGHUP.name})


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    pass


def _end_at_once(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _has_terminal() -> bool:
    """Return whether the process has a controlling terminal. The kernel takes it away when it is closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True
