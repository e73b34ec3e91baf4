"""Pure: simulates replicas behind a load balancer, leg by leg, in simulated time.

A replica has one core, which its legs use in turn, and accepts as many legs as its limit and its waiting room allow.
The balancer works round-robin, and tries other replicas if one refuses. A refused caller tries again a few times. The
simulation uses neither clock nor network: it simulates a second of a busy replica in a few milliseconds, and the same
seed always gives the same run.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from gateway.sizing.percentiles import nearest_rank

WINDOW_SECONDS: Final = 0.25
LONGEST_WAIT_SECONDS: Final = 10.0
MOST_SHEDS: Final = 2
_WAIT_PERCENTILE: Final = 0.9
_ROUNDING_SECONDS: Final = 1e-9


@dataclass(frozen=True)
class SimulatedLeg:
    """The needs of one leg.

    Attributes:
        wait_seconds: time that it then waits for other systems, which takes a place but no CPU time.
        checkpoint_seconds: the CPU time between checkpoints, where it yields the core and may be shed. By default it
            has none.
    """

    cpu_seconds: float
    wait_seconds: float = 0.0
    checkpoint_seconds: float = math.inf


@dataclass(frozen=True)
class Replicas:
    """Identical replicas, their balancer, and the retries of callers.

    Attributes:
        limit: how many legs each works on at once; half as many may wait for a place. None means no limit.
        target_seconds: legs are shed while the 90th percentile of their waiting time is longer.
        balancer_retries: how many other replicas the balancer tries after a refusal.
        caller_retries: how often a refused caller tries again.
        retry_after_seconds: how long the caller waits before that.
    """

    count: int = 1
    limit: int | None = None
    target_seconds: float = math.inf
    balancer_retries: int = 3
    caller_retries: int = 0
    retry_after_seconds: float = 1.0


@dataclass
class Simulated:
    """The outcome of a simulation.

    Attributes:
        seconds: how long each finished call took from its arrival, in the order in which calls ended.
        refused: how many calls were finally refused.
        refusals: how many requests replicas refused, including those that another replica accepted or that came before
            counting started.
        busy_seconds: how long each replica's core was busy.
    """

    seconds: list[float] = field(default_factory=list)
    refused: int = 0
    refusals: int = 0
    sheds: int = 0
    busy_seconds: list[float] = field(default_factory=list)

    @property
    def refused_share(self) -> float:
        """The share of all calls that were finally refused."""
        ended = len(self.seconds) + self.refused
        return self.refused / ended if ended else 0.0

    @property
    def mean_seconds(self) -> float:
        """The average duration of finished calls; NaN if there are none."""
        return sum(self.seconds) / len(self.seconds) if self.seconds else math.nan

    def percentile(self, share: float) -> float:
        """Return the time that this share of the finished calls did not exceed; NaN if there are none."""
        return nearest_rank(sorted(self.seconds), share)


def poisson(rate: float, seconds: float, random: Random) -> list[float]:
    """Return the arrival times of independent callers: `rate` a second on average, for `seconds`."""
    arrivals: list[float] = []
    now = random.expovariate(rate)
    while now < seconds:
        arrivals.append(now)
        now += random.expovariate(rate)
    return arrivals


def simulate(
    arrivals: Iterable[float], leg: Callable[[], SimulatedLeg], replicas: Replicas, *, counted_from: float = 0.0
) -> Simulated:
    """Let calls arrive, and simulate all of them until they end.

    Arrivals are in seconds. `leg` returns what the next call needs; it is called once for each call, in the order of
    arrival. Calls that arrive before `counted_from` are served, but their times and refusals do not count. Replicas
    start empty, so the time until they are full says nothing about a steady load.
    """
    return _Simulation(replicas, counted_from).run(sorted(arrivals), leg)


@dataclass(slots=True, eq=False)
class _Call:
    """A call in progress, with its remaining work."""

    arrived_at: float
    leg: SimulatedLeg
    cpu_left: float
    refusals: int = 0
    sheds: int = 0
    leg_arrived_at: float = 0.0
    leg_began_at: float = -1.0


class _Simulation:
    """The clock, the future events, the balancer and the callers."""

    def __init__(self, replicas: Replicas, counted_from: float) -> None:
        self.now = 0.0
        self._counted_from = counted_from
        self.result = Simulated()
        self._about = replicas
        self._replicas = [_Replica(self, replicas) for _ in range(replicas.count)]
        self._next = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def run(self, arrivals: Sequence[float], leg: Callable[[], SimulatedLeg]) -> Simulated:
        for arrived_at in arrivals:
            needs = leg()
            call = _Call(arrived_at, needs, needs.cpu_seconds)
            self.later(arrived_at - self.now, lambda call=call: self.send(call))  # type: ignore[misc]
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.result.busy_seconds = [replica.busy_seconds for replica in self._replicas]
        return self.result

    def later(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), event))

    def send(self, call: _Call) -> None:
        """Send a leg to the next replica, and to others if that one refuses it."""
        for _ in range(1 + min(self._about.balancer_retries, len(self._replicas) - 1)):
            replica = self._replicas[self._next]
            self._next = (self._next + 1) % len(self._replicas)
            if replica.take(call):
                return
            self.result.refusals += 1
        self.refuse(call)

    def refuse(self, call: _Call) -> None:
        """Refuse a leg that no replica accepts now. The caller may try again later."""
        if call.refusals < self._about.caller_retries:
            call.refusals += 1
            self.later(self._about.retry_after_seconds, lambda: self.send(call))
        elif call.arrived_at >= self._counted_from:
            self.result.refused += 1

    def finish(self, call: _Call) -> None:
        if call.arrived_at >= self._counted_from:
            self.result.seconds.append(self.now - call.arrived_at)


class _Replica:
    """One core, places for active legs, and a waiting room."""

    def __init__(self, simulation: _Simulation, about: Replicas) -> None:
        self.busy_seconds = 0.0
        self._simulation = simulation
        self._limit = math.inf if about.limit is None else about.limit
        self._room = math.inf if about.limit is None else about.limit // 2
        self._target = about.target_seconds
        self._places_taken = 0
        self._waiting: deque[_Call] = deque()
        self._going_on: deque[_Call] = deque()
        self._core: deque[_Call] = deque()
        self._busy = False
        self._waits: list[float] = []
        self._window_began = 0.0
        self._sheds_wanted = 0

    def take(self, call: _Call) -> bool:
        """Accept a leg, unless there are too many. Return whether it was accepted."""
        call.leg_arrived_at, call.leg_began_at = self._simulation.now, -1.0
        if self._places_taken < self._limit:
            self._enter(call)
            return True
        if len(self._waiting) + len(self._going_on) >= self._room:
            return False
        line = self._going_on if call.sheds else self._waiting
        line.append(call)
        self._simulation.later(LONGEST_WAIT_SECONDS, lambda: self._give_up(call, line))
        return True

    def _give_up(self, call: _Call, line: deque[_Call]) -> None:
        waited = self._simulation.now - call.leg_arrived_at
        if call in line and waited > LONGEST_WAIT_SECONDS - _ROUNDING_SECONDS:
            line.remove(call)
            self._simulation.result.refusals += 1
            self._simulation.refuse(call)

    def _enter(self, call: _Call) -> None:
        self._places_taken += 1
        self._core.append(call)
        self._work()

    def _leave(self) -> None:
        self._places_taken -= 1
        line = self._going_on or self._waiting
        if line:
            self._enter(line.popleft())

    def _work(self) -> None:
        """Give the core to the next leg if it is free."""
        if self._busy or not self._core:
            return
        self._busy = True
        call = self._core.popleft()
        if call.leg_began_at < 0:
            self._note_wait(call)
        turn = min(call.leg.checkpoint_seconds, call.cpu_left)
        self._simulation.later(turn, lambda: self._worked(call, turn))

    def _worked(self, call: _Call, turn: float) -> None:
        self._busy = False
        self.busy_seconds += turn
        call.cpu_left -= turn
        if call.cpu_left <= _ROUNDING_SECONDS:
            if call.leg.wait_seconds:
                self._simulation.later(call.leg.wait_seconds, lambda: self._end(call))
            else:
                self._end(call)
        elif self._wants_shed(call):
            self._simulation.result.sheds += 1
            call.sheds += 1
            self._leave()
            self._simulation.send(call)
        else:
            self._core.append(call)
        self._work()

    def _end(self, call: _Call) -> None:
        self._simulation.finish(call)
        self._leave()

    def _note_wait(self, call: _Call) -> None:
        now = call.leg_began_at = self._simulation.now
        if self._target == math.inf:
            return
        self._waits.append(now - call.leg_arrived_at)
        if now - self._window_began < WINDOW_SECONDS:
            return
        wait = nearest_rank(sorted(self._waits), _WAIT_PERCENTILE)
        over = wait > self._target
        self._sheds_wanted = math.ceil(self._places_taken * (1 - self._target / wait)) if over else 0
        self._waits.clear()
        self._window_began = now

    def _wants_shed(self, call: _Call) -> bool:
        long_enough = self._simulation.now - call.leg_began_at >= self._target
        if self._sheds_wanted <= 0 or call.sheds >= MOST_SHEDS or not long_enough:
            return False
        self._sheds_wanted -= 1
        return True
