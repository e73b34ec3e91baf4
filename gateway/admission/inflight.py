"""The requests in flight: how many are admitted, and which of them wait.

A request counts from the moment its headers are complete, before any work is spent on it. Up to a limit, requests are
processed; half as many again wait for a place; all others are refused at once. A request does not count while its
client is still sending the body, or while its token is being verified. So neither a slow client nor a slow identity
provider takes a place from others. Until its caller is known, a request counts for its credential: see `Arrivals`.

No caller can keep the others out. Places go to callers in turn, and never to a caller that holds half of them while
others wait. If one caller holds more places than there are now, because the limit has fallen, the others have a few
places in reserve. Of the room to wait in, a caller gets no more than it leaves free. A caller that wants more is
refused. While that lasts, its requests are refused as they arrive, by their credential.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final, final

from gateway.admission.arrivals import Arrivals, token_of
from gateway.admission.leg_limit import Limit
from gateway.admission.shedding import LONGEST_WINDOW_SECONDS, LoadShedding, percentile
from gateway.errors import Overloaded, TooManyWaiting
from gateway.observability.counters import Count
from gateway.runtime.fairness import FairQueue

WINDOW_SECONDS: Final = 0.25
"""How often the waiting times are evaluated, if there are enough of them."""

WINDOW_REQUESTS: Final = 10
"""Fewer waiting times than this say little; they are evaluated after `LONGEST_WINDOW_SECONDS`."""

LONGEST_WAIT_SECONDS: Final = 10.0
"""A request that has waited for a place this long is refused."""

MAX_CREDENTIALS: Final = 1024
"""How many credentials of callers over their share are remembered."""


class InFlight:
    """Counts requests and makes them wait. `shedding` learns of their waits and decides which legs to shed.

    `target_seconds` is how long requests may wait, from their headers to their leg, 90th percentile. `clock` returns
    seconds that never go back. `share_refusals` counts requests refused because their caller had its share of the room
    to wait in.
    """

    def __init__(self, limit: Limit, target_seconds: float, clock: Callable[[], float]) -> None:
        self.shedding: Final = LoadShedding(target_seconds, clock)
        self.leg_waits: Final = self.shedding.waits
        self._limit = limit
        self.clock = clock
        self._arrivals = Arrivals()
        self._known_arrivals = Arrivals()  # of verified tokens, if the others leave no room
        self._running = 0  # without those in reserve
        self._reserved = 0
        self._reserved_by: dict[Hashable, int] = {}
        self._queue: FairQueue[asyncio.Future[float]] = FairQueue()
        self._credentials: dict[int, Hashable] = {}
        self.share_refusals = Count()
        self.refusal: type[Overloaded] = Overloaded
        self._loop_waits: list[float] = []
        self._waiting_since: dict[asyncio.Future[float], float] = {}
        self._last_place_given = -math.inf
        self._turns: list[float] = []
        self._last_began = 0.0
        self._last_identified = 0.0
        self._last_ran = False
        self._window_began = clock()
        self._highest = 0
        self._reached = False

    @property
    def limit(self) -> int:
        """How many requests are processed at once, as of now."""
        return self._limit.value

    @property
    def in_flight(self) -> int:
        """How many requests are processed, wait for a place, or have arrived and do not have a known caller yet."""
        arrived = self._arrivals.size + self._known_arrivals.size
        return self._running + self._reserved + self._queue.size + arrived

    @property
    def queue_wait_p90(self) -> float:
        """How long requests wait from their headers to their leg, 90th percentile, in seconds.

        This is for people and autoscalers, which look only now and then. So waiting requests count with their time so
        far, and nothing old counts. Shedding uses the waits that have ended.
        """
        now = self.clock()
        so_far = percentile([now - since for since in tuple(self._waiting_since.values())])
        if now - max(self._last_identified, self._last_place_given) > LONGEST_WINDOW_SECONDS:
            return so_far
        return max(so_far, self.shedding.wait_p90())

    @property
    def waiting(self) -> int:
        """How many requests wait for a place."""
        return self.in_flight - self._running - self._reserved

    @property
    def callers_waiting(self) -> int:
        """How many callers wait for a place."""
        return self._queue.callers

    def arrive(
        self, credential: bytes | None = None, is_verified: Callable[[bytes], bool] | None = None
    ) -> InFlightVisit | None:
        """Count a request whose headers are complete; return None if it must be refused. `refusal` then says with what.

        The credential is said to identify its caller. It is None if all requests have the same caller. `is_verified`
        returns whether a credential is known to be valid. It is called only if forged ones may have taken all room.
        """
        if self._credentials and self._is_known_to_have_a_share(credential):
            self.refusal = TooManyWaiting
            return None
        limit = self._limit.value
        identified = self._running + self._reserved + self._queue.size
        arrivals, counted_for = self._arrivals, credential
        in_flight = identified + arrivals.size
        if in_flight < limit:
            arrivals.size += 1
            counted_for = None
        else:
            found = self._find_room(credential, is_verified, limit, identified)
            if found is None:
                self._reached = True
                self.refusal = Overloaded
                return None
            in_flight += self._known_arrivals.size
            arrivals = found
            arrivals.add(credential)
        if in_flight >= self._highest:
            self._highest = in_flight + 1
        return InFlightVisit(self, self.clock(), credential, arrivals, counted_for)

    def _find_room(
        self, credential: bytes | None, is_verified: Callable[[bytes], bool] | None, limit: int, identified: int
    ) -> Arrivals | None:
        """Return where to count a request for which there may be no place; None if there is no room to wait either.

        Without it, so many requests are `identified`: they have a place or wait for one.
        """
        free = limit + limit // 2 - identified
        at_hand = free if free > 0 else self._left_in_reserve(limit)
        if not at_hand:
            return None
        if self._arrivals.has_room(credential, free, at_hand):
            return self._arrivals
        if (
            credential is not None
            and is_verified is not None
            and self._known_arrivals.has_room(credential, free, at_hand)
            and is_verified(credential)
        ):
            return self._known_arrivals
        return None

    def rejoin(self) -> None:
        """Note that a request counts again."""
        self._highest = max(self._highest, self.in_flight + 1)

    def _has_fallen(self, limit: int) -> bool:
        """Return whether the limit has fallen below what was admitted before."""
        waiting, waiting_room = self._queue.size, limit // 2
        # No caller can fill the waiting room alone unless it was larger before.
        return self._running > limit or waiting > waiting_room or (waiting == waiting_room and self._queue.callers == 1)

    def _may_use_reserve(self, caller: Hashable, limit: int) -> bool:
        return self._reserved < self._limit.reserve and self._queue.held_by(caller) < max(1, limit // 2)

    def _left_in_reserve(self, limit: int) -> int:
        """Return how many places in reserve are free for callers that hold less than their share."""
        left = self._limit.reserve - self._reserved
        return left if left > 0 and self._has_fallen(limit) else 0

    def _is_known_to_have_a_share(self, credential: bytes | None) -> bool:
        """Return whether a credential belongs to a caller that would be refused once identified."""
        if not self._queue.size:
            self._credentials.clear()
            return False
        caller = None if credential is None else self._credentials.get(hash(token_of(credential)))
        if caller is None or not self._has_its_share(caller):
            return False
        self.share_refusals.value += 1
        self._reached = True
        return True

    def _has_its_share(self, caller: Hashable) -> bool:
        """Return whether a caller has so many waiting requests that the remaining room must be left to others."""
        waiting = self._queue.waiting_of(caller)
        return waiting > 0 and waiting >= self._limit.value // 2 - self._queue.size

    def check_share(self, caller: Hashable, credential: bytes | None) -> None:
        """Check that a caller may wait for one more place. The anonymous caller, None, has no share.

        Raises:
            TooManyWaiting: it has its share of the room to wait in.
            Overloaded: there is no room left.
        """
        limit = self._limit.value
        if self._queue.size >= limit // 2 and not (self._has_fallen(limit) and self._may_use_reserve(caller, limit)):
            raise Overloaded
        if caller is None or not self._has_its_share(caller):
            return
        self.share_refusals.value += 1
        if credential:
            if len(self._credentials) >= MAX_CREDENTIALS:
                self._credentials.clear()
            self._credentials[hash(token_of(credential))] = caller
        raise TooManyWaiting

    def began(self, arrived_at: float) -> float:
        """Note that work on a request begins; return how long it waited for the event loop, in seconds."""
        now = self.clock()
        elapsed = now - self._window_began
        if elapsed >= WINDOW_SECONDS:
            least = WINDOW_REQUESTS if elapsed < LONGEST_WINDOW_SECONDS else 1
            if len(self._loop_waits) >= least:
                self._look(now)
        # The request was next in line, so the previous one used the loop until now, unless it only joined the queue.
        if self._last_ran and arrived_at <= self._last_began:
            self._turns.append(now - self._last_began)
        self._last_began = now
        self._last_ran = False
        return now - arrived_at

    def identified(self, waited: float) -> None:
        """Note how long a request waited for the event loop, in seconds, once its caller is known.

        Requests with forged tokens do not count, so they cannot lower the limit for all others.
        """
        self._loop_waits.append(waited)
        self._last_identified = self._last_began

    def _look(self, now: float) -> None:
        """Evaluate the window that ends now."""
        self._limit.adjust(
            percentile(self._loop_waits),
            turn_seconds=statistics.median(self._turns) if self._turns else None,
            highest=self._highest,
            running=self._running + self._reserved,
            reached=self._reached,
        )
        self.shedding.judge(now, self._highest)
        self._loop_waits.clear()
        self._turns.clear()
        self._window_began = now
        self._highest = self.in_flight
        self._reached = False
        self._fill()

    def take_place(self, caller: Hashable) -> bool:
        """Take a place, unless all are taken or others wait for one; return whether it was taken."""
        if self._running >= self._limit.value or self._queue.size:
            self._reached = True
            return False
        self._running += 1
        self._queue.take(caller)
        self._last_ran = True
        return True

    async def wait_for_place(self, caller: Hashable, waited: float, *, goes_on: bool) -> float:
        """Wait for a free place, take it, and return how long that took, in seconds.

        `waited` is how many seconds the request has waited before. It takes precedence if it `goes_on`, because it
        continues a call.

        Raises:
            Overloaded: that took too long.
        """
        began = self.clock()
        place: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting_since[place] = began - waited
        self._queue.add(caller, place, first=goes_on)
        self._fill()
        try:
            async with asyncio.timeout(LONGEST_WAIT_SECONDS):
                given_at = await place
        except BaseException as error:
            if place.done() and not place.cancelled():  # the place was given to a request that is gone
                self.free_place(caller)
            else:
                self._queue.remove(caller, place)
                place.cancel()
            if isinstance(error, TimeoutError):
                raise Overloaded from None
            raise
        finally:
            del self._waiting_since[place]
        self._last_place_given = now = self.clock()
        self._loop_waits.append(now - given_at)
        return now - began

    def free_place(self, caller: Hashable) -> None:
        """Pass the place of a caller to the next request in line."""
        if caller in self._reserved_by:
            self._reserve(caller, -1)
        else:
            self._running -= 1
        self._queue.free(caller)
        if self._queue.size:
            self._fill()

    def _fill(self) -> None:
        """Give free places to waiting requests. Those that continue a call go first: their users have already begun.

        Those in reserve are only for callers with less than their share.
        """
        limit = self._limit.value
        while True:
            in_reserve = self._running >= limit
            if in_reserve and self._reserved >= self._limit.reserve:
                return
            given = self._queue.next(limit, only_below_share=in_reserve)
            if given is None:
                return
            caller, place = given
            if place.done():  # the request is gone
                self._queue.free(caller)
                continue
            if in_reserve:
                self._reserve(caller, 1)
            else:
                self._running += 1
            place.set_result(self.clock())

    def _reserve(self, caller: Hashable, places: int) -> None:
        """Count places in reserve that a caller takes, or frees if negative."""
        self._reserved += places
        self._reserved_by[caller] = self._reserved_by.get(caller, 0) + places
        if not self._reserved_by[caller]:
            del self._reserved_by[caller]


@final
class InFlightVisit:
    """One request on its way: it arrives, begins, enters and leaves.

    It counts `_since` its headers were complete. The credential is said to identify its caller. Until the caller is
    known, the request is one of the arrivals, `_counted_for` its credential if there may be no place for it.
    """

    _caller: Hashable = None
    _waited = 0.0
    _is_identified = False
    _has_place = False

    def __init__(
        self,
        requests: InFlight,
        since: float,
        credential: bytes | None,
        arrivals: Arrivals | None,
        counted_for: bytes | None,
    ) -> None:
        self._requests = requests
        self._since = since
        self._credential = credential
        self._arrivals = arrivals
        self._counted_for = counted_for

    def begin(self) -> None:
        """Note that work on the request begins."""
        self._waited = self._requests.began(self._since)

    def step_aside(self) -> None:
        """Stop counting the request until it enters: its client is still sending it, or its token is new."""
        arrivals = self._arrivals
        if arrivals is not None:
            self._arrivals = None
            arrivals.release(self._counted_for)

    def enter(self, caller: Hashable = None, *, goes_on: bool) -> Coroutine[Any, Any, None] | None:
        """Take a place, also again after `leave`; if all are taken, return an awaitable that waits for one.

        The caller is verified now. Requests that seem to continue a call (`goes_on`) take precedence.

        Raises:
            Overloaded: too many requests wait already, or too many of this caller; or, from the awaitable, the wait was
                too long.
        """
        requests = self._requests
        arrivals = self._arrivals
        if arrivals is None:
            requests.rejoin()
        else:
            self._arrivals = None
            if self._counted_for is None:  # on the hot path
                arrivals.size -= 1
            else:
                arrivals.release(self._counted_for)
        if not self._is_identified:
            self._is_identified = True
            requests.identified(self._waited)
        self._caller = caller
        if not requests.take_place(caller):
            requests.check_share(caller, self._credential)
            return self._wait(goes_on=goes_on)
        self._has_place = True
        requests.leg_waits.append(self._waited)
        return None

    async def _wait(self, *, goes_on: bool) -> None:
        requests = self._requests
        self._waited += await requests.wait_for_place(self._caller, self._waited, goes_on=goes_on)
        self._has_place = True
        requests.leg_waits.append(self._waited)

    def leave(self) -> None:
        """Free the place, in whatever way the request ended."""
        if self._has_place:
            self._has_place = False
            self._waited = 0.0
            self._requests.free_place(self._caller)
        if self._arrivals is not None:
            self.step_aside()
