"""Logs when an event loop is blocked, and by what: a tool, or the gateway's own work for a call.

A running loop shows signs of life at intervals, and another thread looks for them. If there is none for a while, that
thread reads the stack of the loop's thread. This adds no work to calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Final

from gateway.authoring.served import ThreadWork, work_in

log = logging.getLogger(__name__)

BLOCKED_SECONDS: Final = 1.0
"""An event loop that has not run for this long is reported as blocked."""

LOOK_SECONDS: Final = 0.25
"""How often `watchdog` looks at its loop."""

_SHOWN_FRAMES: Final = 3
_BLOCKED: Final = "the event loop is blocked"
_BLOCKED_BY_GATEWAY: Final = "the gateway blocks the event loop"
_BLOCKED_BY_TOOL: Final = "a tool blocks the event loop"
_CERTAINTY: Final = ("", _BLOCKED, _BLOCKED_BY_GATEWAY, _BLOCKED_BY_TOOL)
"""In order of certainty. A message follows only a less certain one about the same block, because a tool may run in the
same turn of the loop as whatever blocked before it."""

_OURS: Final = frozenset({"gateway", "gateway_workers"})
_DEMO: Final = "gateway.demo."
"""Our modules that count as an author's modules."""

_LIBRARIES: Final = sys.stdlib_module_names | {
    *("fastapi", "jwt", "msgspec", "opentelemetry", "pydantic", "pydantic_core", "redis", "starlette", "uvicorn"),
    "coverage",
}
"""Modules that authors and the gateway call, or that measure them. Their caller is what blocks."""

_LOOP: Final = frozenset({"asyncio.base_events", "asyncio.events", "asyncio.runners"})


def _nothing_more(_blocker: asyncio.Task[object]) -> Mapping[str, str]:
    return {}


class LoopWatch:
    """Watches an event loop, and logs once for each block what causes it.

    `period` is the number of seconds between two signs of life. `describe` returns more log fields for the asyncio task
    that blocks; it is called on the thread that looks.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        period: float,
        describe: Callable[[asyncio.Task[object]], Mapping[str, str]] = _nothing_more,
    ) -> None:
        self.blocker: asyncio.Task[object] | None = None
        self._loop = loop
        self._period = period
        self._describe = describe
        self._thread_id = threading.get_ident()
        self._seen_running = 0.0
        self._blocked_since: float | None = None
        self._reported = ""
        self._flow: Mapping[str, str] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start showing signs of life; called on the loop's thread."""
        self._thread_id = threading.get_ident()
        self._show_life()

    def stop(self) -> None:
        """Stop showing signs of life; called on the loop's thread."""
        if self._timer is not None:
            self._timer.cancel()

    def _show_life(self) -> None:
        self._seen_running = time.monotonic()
        self._timer = self._loop.call_later(self._period, self._show_life)

    def look(self) -> float:
        """Return for how many seconds the loop has been blocked; 0 if it runs. Called on any other thread."""
        seen = self._seen_running
        now = time.monotonic()
        if now - seen < self._period + BLOCKED_SECONDS:
            if self._blocked_since is not None:
                seconds = round(seen - self._blocked_since, 3)
                log.warning("event loop runs again", extra={"seconds": seconds, **self._flow})
                self._blocked_since = self.blocker = None
                self._reported, self._flow = "", {}
            return 0.0
        if self._blocked_since is None:
            self._blocked_since = seen
        if self._reported != _BLOCKED_BY_TOOL:
            self._accuse()
        return now - self._blocked_since

    def _accuse(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.blocker = asyncio.current_task(self._loop)
        frame = sys._current_frames().get(self._thread_id)  # noqa: SLF001 - documented for this
        work = work_in(self._thread_id, frame)
        message = _what_blocks(frame, work)
        if _CERTAINTY.index(message) <= _CERTAINTY.index(self._reported):
            return
        self._reported = message
        self._flow = {} if work is None or work.journal is None else {"flow": work.journal.flow_id}
        fields = {"where": _where(frame), **self._flow}
        if work is not None:
            fields["tool"] = work.served.name
        if self.blocker is not None:
            fields |= self._describe(self.blocker)
        log.warning(message, extra=fields)


@contextlib.contextmanager
def watchdog() -> Iterator[None]:
    """Watch the running event loop from a separate thread while the context is open."""
    watch = LoopWatch(asyncio.get_running_loop(), LOOK_SECONDS)
    stopped = threading.Event()

    def look_now_and_then() -> None:
        while not stopped.wait(LOOK_SECONDS):
            watch.look()

    thread = threading.Thread(target=look_now_and_then, name="watchdog", daemon=True)
    watch.start()
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
        watch.stop()


def _what_blocks(frame: FrameType | None, work: ThreadWork | None) -> str:
    """Return the message for a stack. The innermost frame outside the libraries decides what blocks.

    Our compiled modules have no frames, so their work for an author's function counts as the function's.
    """
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        package = module.partition(".")[0]
        if module in _LOOP:
            break
        if package in _OURS and not module.startswith(_DEMO):
            return _BLOCKED_BY_GATEWAY
        if package not in _LIBRARIES:
            return _BLOCKED if work is None else _BLOCKED_BY_TOOL
        frame = frame.f_back
    return _BLOCKED


def _where(frame: FrameType | None) -> str:
    """Return the innermost calls of a stack, innermost first."""
    places: list[str] = []
    while frame is not None and len(places) < _SHOWN_FRAMES:
        code = frame.f_code
        places.append(f"{code.co_name} ({code.co_filename}:{frame.f_lineno})")
        frame = frame.f_back
    return " < ".join(places)
