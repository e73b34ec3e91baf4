"""The program of an upstream, which is started as often as it ends, and what it writes to its standard error."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import time
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from gateway.children.children import ChildFailure, ChildProcess, Children, NoRoomForChild, Program
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.protocol.upstream.cleaning import clean_line
from gateway.runtime.sources import Clock
from gateway.upstreams.client.launchers import UnclearAnswer, ask, launched, probe_of
from gateway.upstreams.failures import Reason, UpstreamFailure

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
"""How long to wait before a program that has ended is started again: longer each time, unless it ran so long."""

MAX_PAUSES: Final = 256
"""How many owners have a pause of their own. Those whose program ended longest ago are forgotten first."""

LAST_LINES: Final = 5
"""How many of its last lines are shown with an exit code."""
LINE_CHARACTERS: Final = 1000
LINES_PER_SECOND: Final = 20
LINES_AT_ONCE: Final = 100
"""How many lines the log takes, on average and for a moment. Of longer ones it has the beginning."""

PIECE_BYTES: Final = 16 * 1024
PAUSE_SECONDS: Final = 0.01
"""How much of a standard error is read at once, and how long the pause is after that."""

_LINE_BYTES: Final = 4 * LINE_CHARACTERS


Owner: TypeAlias = tuple[Hashable, ...]
"""The caller whose program it is, alone; nobody if it is everyone's."""

_EVERYONE: Final[Owner] = ()


class _Pause(NamedTuple):
    """How long the program is not started, and why."""

    seconds: float = 0.0
    ends_at: float = -math.inf
    problem: str = ""


class UpstreamProgram:
    """Starts the program of one upstream: less and less often, if it ends again and again.

    If it ends in the hands of an `owner`, this counts for them alone; by default, for everyone.

    A launcher is asked what it would run, which is then started without it.

    Attributes:
        last_lines: what it has written last to its standard error.
    """

    def __init__(
        self,
        upstream: str,
        program: Program,
        children: Children,
        telemetry: UpstreamMetrics,
        clock: Clock = time.monotonic,
    ) -> None:
        self._upstream = upstream
        self._telemetry = telemetry
        self._written = program
        self._found: Program | None = None
        self._finding = asyncio.Lock()
        self._children = children
        self._clock = clock
        self._everyone = _Pause()
        self._owners: dict[Hashable, _Pause] = {}  # those whose program ended last come last
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)

    @property
    def path(self) -> str:
        """The program that a launcher would run; "" if that is not known, and for other programs."""
        return "" if self._found in (None, self._written) else self._found.argv[0]

    async def start(self, owner: Owner = _EVERYONE) -> ChildProcess:
        """Start the program.

        Raises:
            UpstreamFailure: it cannot be run, there is no room, or it is too early to try again.
        """
        pause = max(self._everyone, self._owners.get(owner, _Pause()), key=lambda each: each.ends_at)
        left = pause.ends_at - self._clock()
        if left > FIRST_PAUSE_SECONDS:
            raise self._failure(f"{pause.problem}; it is started again in {math.ceil(left)} seconds")
        if left > 0:
            await asyncio.sleep(left)
        self.last_lines.clear()
        try:
            child = await self._started(owner)
        except NoRoomForChild as failure:
            raise UpstreamFailure(self._upstream, Reason.BUSY, sent=False, detail=str(failure)) from None
        except ChildFailure as failure:
            problem = f"its program cannot be run: {failure}"
            self.has_ended(0.0, problem)
            raise self._failure(problem) from None
        self._show_pause(ended=pause)
        return child

    def has_ended(self, lived: float, problem: str, owner: Owner = _EVERYONE) -> None:
        """Note that the program has ended by itself after so many seconds."""
        if lived < LONGEST_PAUSE_SECONDS:
            self._found = None  # it may have been removed in part
        now = self._clock()
        earlier = self._everyone if owner == _EVERYONE else self._owners.pop(owner, _Pause())
        seconds = FIRST_PAUSE_SECONDS if lived >= LONGEST_PAUSE_SECONDS or not earlier.seconds else 2 * earlier.seconds
        seconds = min(seconds, LONGEST_PAUSE_SECONDS)
        pause = _Pause(seconds, now + seconds, problem)
        if owner == _EVERYONE:
            self._everyone = pause
        else:
            self._owners[owner] = pause
            self._forget(now)
        self._show_pause()

    def _forget(self, now: float) -> None:
        """Forget the owners whose program has not ended for a while, and the oldest ones if there are too many."""
        kept = [each for each in self._owners.items() if now <= each[1].ends_at + LONGEST_PAUSE_SECONDS]
        self._owners = dict(kept[-MAX_PAUSES:])

    def _show_pause(self, ended: _Pause | None = None) -> None:
        """Show the longest pause that has not ended."""
        now = self._clock()
        pauses = [each for each in (self._everyone, *self._owners.values()) if each is not ended and each.ends_at > now]
        self._telemetry.restarts_after(self._upstream, max((each.seconds for each in pauses), default=0.0))

    async def _started(self, owner: Owner) -> ChildProcess:
        """Start what is found, and look for it once more if it is gone.

        Raises:
            ChildFailure: it cannot be run, or there is no room.
        """
        found = await self._find()
        try:
            return await self._children.start(found, owner[0] if owner else None)
        except NoRoomForChild:
            raise
        except ChildFailure:
            if found is self._written:
                raise
            self._found = None
            return await self._children.start(await self._find(), owner[0] if owner else None)

    async def _find(self) -> Program:
        """Return what is to be run. A launcher is asked once."""
        async with self._finding:
            if self._found is None:
                self._found = await self._looked_up()
            return self._found

    async def _looked_up(self) -> Program:
        """Return what a launcher would run, or the launcher itself if it does not say that."""
        try:
            probe = probe_of(self._written)
            if probe is None:
                return self._written
            found = launched(self._written, await ask(probe, self._children, self.log_errors))
        except UnclearAnswer as error:
            extra = {"upstream": self._upstream, "reason": str(error)}
            log.warning("the launcher of an upstream stays: it is not clear what it runs", extra=extra)
            return self._written
        self.last_lines.clear()
        log.info("program of an upstream found", extra={"upstream": self._upstream, "program": found.argv[0]})
        return found

    async def log_errors(self, errors: asyncio.StreamReader) -> None:
        """Log the lines of a standard error, unless there are too many: of those, only the last ones are looked at.

        All of it is read, with a pause after each piece. So what a program writes takes little of the time of others.
        """
        unfinished, budget, left_out = b"", _LineBudget(self._clock), 0
        while piece := await errors.read(PIECE_BYTES) or (unfinished and b"\n"):  # the end also ends a line
            *lines, rest = (unfinished + piece).split(b"\n", budget.room())
            more = rest.count(b"\n")
            *last, unfinished = rest.rsplit(b"\n", LAST_LINES + 1)
            unfinished = unfinished[:_LINE_BYTES]
            self._log(lines, budget)
            self.last_lines.extend(_texts(last[-LAST_LINES:]))
            self._telemetry.dropped(self._upstream, "stderr", more)
            left_out += more
            await asyncio.sleep(PAUSE_SECONDS)  # reading does not pause while more is there
        if left_out:
            log.info("more output of an upstream", extra={"upstream": self._upstream, "lines": left_out})

    def _log(self, lines: Iterable[bytes], budget: _LineBudget) -> None:
        for text in _texts(lines):
            budget.take()
            self.last_lines.append(text)
            log.info("output of an upstream", extra={"upstream": self._upstream, "line": text})

    def _failure(self, detail: str) -> UpstreamFailure:
        return UpstreamFailure(self._upstream, Reason.UNREACHABLE, sent=False, detail=detail)


class _LineBudget:
    """How many lines may still be logged. They grow with time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._room = float(LINES_AT_ONCE)
        self._counted_at = clock()

    def room(self) -> int:
        """Return how many lines there is room for."""
        earlier, self._counted_at = self._counted_at, self._clock()
        self._room = min(self._room + (self._counted_at - earlier) * LINES_PER_SECOND, LINES_AT_ONCE)
        return int(self._room)

    def take(self) -> None:
        """Count a line that is logged."""
        self._room -= 1


def _texts(lines: Iterable[bytes]) -> Iterator[str]:
    """Yield the beginnings of lines as texts, without empty ones."""
    for line in lines:
        text = clean_line(line[:_LINE_BYTES].decode("utf-8", "replace").strip())[:LINE_CHARACTERS]
        if text:
            yield text


def ended_how(code: int | None) -> str:
    """Return how a program has ended, from its exit code, for operators."""
    if code is None:
        return "its program has ended"
    if code >= 0:
        return f"its program has ended with exit code {code}"
    try:
        return f"its program was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"its program was killed by signal {-code}"


def kind_of_exit(code: int | None) -> str:
    """Return how a program has ended, for metrics."""
    if code is None:
        return "other"
    return "signal" if code < 0 else "code_nonzero" if code else "code_zero"
