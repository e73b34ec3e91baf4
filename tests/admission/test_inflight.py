"""Which requests are admitted, which wait, which go first, and which legs are shed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable

import pytest

from gateway.admission import inflight
from gateway.admission.inflight import WINDOW_REQUESTS, WINDOW_SECONDS, InFlight, InFlightVisit
from gateway.admission.leg_limit import AdaptiveLimit, FixedLimit
from gateway.admission.shedding import LONGEST_WINDOW_SECONDS
from gateway.errors import Overloaded, TooManyWaiting
from tests.clocks import Clock

TARGET = 0.05


@pytest.fixture
def clock() -> Clock:
    return Clock()


def adaptive(clock: Clock) -> tuple[AdaptiveLimit, InFlight]:
    limit = AdaptiveLimit(TARGET)
    return limit, InFlight(limit, TARGET, clock)


def arrive(load: InFlight) -> InFlightVisit:
    visit = load.arrive()
    assert visit is not None
    return visit


def enter(load: InFlight) -> InFlightVisit:
    """Admit a request that does not have to wait."""
    visit = arrive(load)
    visit.begin()
    assert visit.enter(goes_on=False) is None
    return visit


async def line_up(load: InFlight, *, goes_on: bool = False) -> tuple[InFlightVisit, asyncio.Future[None]]:
    """Admit a request that has to wait."""
    visit = arrive(load)
    visit.begin()
    waiting = visit.enter(goes_on=goes_on)
    assert waiting is not None
    future = asyncio.ensure_future(waiting)
    await asyncio.sleep(0)
    assert not future.done()
    return visit, future


async def let_run() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_up_to_the_limit_all_are_worked_on_half_as_many_wait_and_the_rest_is_refused(clock: Clock) -> None:
    load = InFlight(FixedLimit(4), TARGET, clock)
    for _ in range(4):
        enter(load)
    lines = [await line_up(load) for _ in range(2)]
    assert load.arrive() is None
    assert (load.in_flight, load.waiting) == (6, 2)
    for visit, future in lines:
        future.cancel()
        await let_run()
        visit.leave()
    assert (load.in_flight, load.waiting) == (4, 0)


async def test_a_request_that_ends_makes_room_for_the_first_in_line(clock: Clock) -> None:
    load = InFlight(FixedLimit(2), TARGET, clock)
    first, second = enter(load), enter(load)
    _, waiting = await line_up(load)
    first.leave()
    await let_run()
    assert waiting.done()
    assert load.waiting == 0
    second.leave()
    enter(load)


async def test_a_request_that_continues_a_call_is_served_first(clock: Clock) -> None:
    load = InFlight(FixedLimit(6), TARGET, clock)
    working = [enter(load) for _ in range(6)]
    _, fresh = await line_up(load)
    _, going_on = await line_up(load, goes_on=True)
    working[0].leave()
    await let_run()
    assert going_on.done()
    assert not fresh.done()
    working[1].leave()
    await let_run()
    assert fresh.done()


async def test_no_request_overtakes_those_that_wait(clock: Clock) -> None:
    load = InFlight(FixedLimit(4), TARGET, clock)
    working = [enter(load) for _ in range(4)]
    _, waiting = await line_up(load)
    working[0].leave()  # the place is given, although its new owner has not run yet
    late = arrive(load)
    late.begin()
    second = late.enter(goes_on=False)
    assert second is not None
    task = asyncio.ensure_future(second)
    await let_run()
    assert waiting.done()
    assert not task.done()
    task.cancel()
    await let_run()


async def test_a_request_that_stops_waiting_is_skipped_and_costs_no_place(clock: Clock) -> None:
    load = InFlight(FixedLimit(4), TARGET, clock)
    working = [enter(load) for _ in range(4)]
    gone, waiting = await line_up(load)
    _, next_in_line = await line_up(load)
    waiting.cancel()
    await let_run()
    gone.leave()
    working[0].leave()
    await let_run()
    assert next_in_line.done()


async def test_a_place_given_to_a_request_that_has_just_ended_goes_to_the_next(clock: Clock) -> None:
    load = InFlight(FixedLimit(4), TARGET, clock)
    working = [enter(load) for _ in range(4)]
    gone, waiting = await line_up(load)
    _, next_in_line = await line_up(load)
    working[0].leave()  # gives the place
    waiting.cancel()  # before its new owner could run
    await let_run()
    gone.leave()
    assert next_in_line.done()
    assert load.in_flight == 4


async def test_a_request_that_waits_too_long_is_refused(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflight, "LONGEST_WAIT_SECONDS", 0.0)
    load = InFlight(FixedLimit(2), TARGET, clock)
    for _ in range(2):
        enter(load)
    visit = arrive(load)
    visit.begin()
    waiting = visit.enter(goes_on=False)
    assert waiting is not None
    with pytest.raises(Overloaded):
        await waiting
    visit.leave()
    assert load.in_flight == 2


async def test_a_request_whose_client_is_still_sending_takes_nobodys_place(clock: Clock) -> None:
    load = InFlight(FixedLimit(1), TARGET, clock)
    slow = arrive(load)
    slow.step_aside()
    slow.step_aside()
    quick = enter(load)
    slow.begin()
    with pytest.raises(Overloaded):
        slow.enter(goes_on=False)
    slow.leave()
    quick.leave()
    assert load.in_flight == 0
    enter(load)


async def test_leaving_twice_frees_one_place(clock: Clock) -> None:
    load = InFlight(FixedLimit(2), TARGET, clock)
    first = enter(load)
    enter(load)
    first.leave()
    first.leave()
    assert (load.in_flight, load.waiting) == (1, 0)


def pass_window(load: InFlight, clock: Clock, wait: float, requests: int = WINDOW_REQUESTS) -> None:
    """Let requests wait that long for the event loop, and evaluate them when their window is over."""
    visits = [arrive(load) for _ in range(requests)]
    clock.now += wait
    for visit in visits:
        visit.begin()
        assert visit.enter(goes_on=False) is None
        visit.leave()
    clock.now += WINDOW_SECONDS
    enter(load).leave()


async def test_a_short_leg_is_finished_and_a_long_one_shed_while_requests_wait_too_long(clock: Clock) -> None:
    load = InFlight(FixedLimit(100), TARGET, clock)
    working = [enter(load) for _ in range(20)]
    pass_window(load, clock, wait=0.0)
    assert not load.shedding.wants_shed(clock.now - 10.0)
    pass_window(load, clock, wait=2 * TARGET)
    assert load.queue_wait_p90 == pytest.approx(2 * TARGET)
    assert not load.shedding.wants_shed(clock.now - TARGET / 2)
    shed = sum(load.shedding.wants_shed(clock.now - 1.0) for _ in range(100))
    # Twice the target: half of the requests in flight were too many.
    assert shed == pytest.approx((len(working) + WINDOW_REQUESTS) / 2, abs=1)
    pass_window(load, clock, wait=TARGET / 2)
    assert not load.shedding.wants_shed(clock.now - 1.0)


async def test_the_wait_that_is_shown_is_never_zero_while_requests_wait(clock: Clock) -> None:
    load = InFlight(FixedLimit(10), TARGET, clock)
    tool_seconds, calls_left, shown = 2.0, 40, []
    working: list[tuple[float, InFlightVisit]] = []
    lines: list[tuple[InFlightVisit, asyncio.Future[None]]] = []
    while calls_left or working or lines:
        for _ in range(calls_left):  # all refused requests come again
            if (visit := load.arrive()) is None:
                break
            calls_left -= 1
            visit.begin()
            if (wait := visit.enter(goes_on=False)) is None:
                working.append((clock.now, visit))
            else:
                lines.append((visit, asyncio.ensure_future(wait)))
                await let_run()
        clock.now += 0.25
        shown += [load.queue_wait_p90] if load.waiting else []
        for done in [one for one in working if clock.now - one[0] >= tool_seconds]:
            done[1].leave()
            working.remove(done)
        await let_run()
        working += [(clock.now, visit) for visit, future in lines if future.done()]
        lines = [one for one in lines if not one[1].done()]

    assert len(shown) > 3 * tool_seconds / 0.25 - 1
    assert min(shown) > 0
    assert max(shown) == pytest.approx(tool_seconds)


async def test_the_wait_that_is_shown_ends_when_nobody_has_waited_lately(clock: Clock) -> None:
    load = InFlight(FixedLimit(100), TARGET, clock)
    pass_window(load, clock, wait=2 * TARGET)
    assert load.queue_wait_p90 == pytest.approx(2 * TARGET)
    clock.now += LONGEST_WINDOW_SECONDS + 0.1
    assert load.queue_wait_p90 == 0


async def test_sheds_go_by_the_waits_that_have_ended(clock: Clock) -> None:
    load = InFlight(FixedLimit(4), TARGET, clock)
    for _ in range(4):
        enter(load)
    visit, future = await line_up(load)
    clock.now += 1.0
    assert load.queue_wait_p90 == pytest.approx(1.0)
    assert not load.shedding.wants_shed(clock.now - 1.0)
    future.cancel()
    await let_run()
    visit.leave()
    assert load.queue_wait_p90 == 0


async def test_no_leg_is_shed_for_what_is_long_past(clock: Clock) -> None:
    load = InFlight(FixedLimit(100), TARGET, clock)
    enter(load)
    pass_window(load, clock, wait=2 * TARGET)
    clock.now += LONGEST_WINDOW_SECONDS + 0.1
    assert not load.shedding.wants_shed(clock.now - 1.0)


async def test_few_requests_are_looked_at_later(clock: Clock) -> None:
    load = InFlight(FixedLimit(100), TARGET, clock)
    enter(load)
    pass_window(load, clock, wait=2 * TARGET, requests=2)
    assert not load.shedding.wants_shed(clock.now - 1.0)
    clock.now += LONGEST_WINDOW_SECONDS
    enter(load)
    assert load.shedding.wants_shed(clock.now - 1.0)


async def test_a_replica_that_leaves_sheds_every_leg_that_runs(clock: Clock) -> None:
    load = InFlight(FixedLimit(100), TARGET, clock)
    load.shedding.drain()
    assert all(load.shedding.wants_shed(clock.now) for _ in range(1000))


async def test_legs_that_begin_after_the_drain_are_kept_until_the_notice_is_over(clock: Clock) -> None:
    load = InFlight(FixedLimit(100), TARGET, clock)
    load.shedding.drain()
    clock.now += 2.0
    assert not load.shedding.wants_shed(clock.now - 1.0)
    assert load.shedding.wants_shed(clock.now - 3.0)
    load.shedding.end_notice()
    assert load.shedding.wants_shed(clock.now - 1.0)


async def test_waiting_for_a_place_does_not_make_the_limit_fall(clock: Clock) -> None:
    limit, load = adaptive(clock)
    first = limit.value
    working = [enter(load) for _ in range(first)]
    lines: list[tuple[InFlightVisit, Awaitable[None]]] = [await line_up(load) for _ in range(first // 2)]
    assert load.arrive() is None
    clock.now += 1.0  # they compute nothing, so the loop is idle
    for visit in working:
        visit.leave()
    await let_run()
    for visit, waiting in lines:
        await waiting
        visit.leave()
    clock.now += LONGEST_WINDOW_SECONDS
    enter(load).leave()
    assert limit.value > first
    assert load.queue_wait_p90 > TARGET


async def test_waiting_for_the_event_loop_makes_the_limit_fall(clock: Clock) -> None:
    limit, load = adaptive(clock)
    pass_window(load, clock, wait=2 * TARGET, requests=100)
    assert load.limit == limit.value == 50


async def test_one_long_pause_among_quick_turns_does_not_make_the_limit_fall_below_what_is_well_served(
    clock: Clock,
) -> None:
    limit, load = adaptive(clock)
    for _ in range(20):
        visits = [arrive(load) for _ in range(limit.value)]
        clock.now += 1.0  # the machine did something else
        for visit in visits:
            clock.now += 0.001
            visit.begin()
            if (waiting := visit.enter(goes_on=False)) is not None:
                waiting.close()
        for visit in visits:
            visit.leave()
    assert limit.value == pytest.approx(TARGET / 0.001 / 1.5, abs=1)


async def test_lining_up_does_not_count_as_a_turn_of_the_event_loop(clock: Clock) -> None:
    limit, load = adaptive(clock)
    for _ in range(30):
        working = [enter(load) for _ in range(limit.value)]
        waiting = [arrive(load) for _ in range(limit.value // 2)]
        clock.now += 10 * TARGET
        lines = []
        for visit in waiting:
            clock.now += 0.000_01
            visit.begin()
            lines.append(asyncio.ensure_future(visit.enter(goes_on=False) or asyncio.sleep(0)))
        await let_run()
        for visit in working:
            visit.leave()
        await asyncio.gather(*lines)
        for visit in waiting:
            visit.leave()
        assert limit.value <= 128


def arrive_as(load: InFlight, caller: str) -> InFlightVisit | None:
    visit = load.arrive(caller.encode())
    if visit is not None:
        visit.begin()
    return visit


async def line_up_as(load: InFlight, caller: str | None, *, goes_on: bool = False) -> asyncio.Future[None]:
    """Admit a request of a caller, whether or not it has to wait."""
    visit = arrive_as(load, caller or "")
    if visit is None:
        raise Overloaded
    try:
        waiting = visit.enter(caller, goes_on=goes_on)
    except Overloaded:
        visit.leave()
        raise
    future = asyncio.ensure_future(waiting or asyncio.sleep(0))
    future.add_done_callback(lambda done: visit.leave() if done.cancelled() else None)
    await asyncio.sleep(0)
    return future


async def fill_as(load: InFlight, caller: str | None) -> list[asyncio.Future[None]]:
    """Admit requests of a caller until one is refused."""
    lines = []
    with contextlib.suppress(Overloaded):
        while True:
            lines.append(await line_up_as(load, caller))
    return lines


async def test_a_caller_leaves_room_to_wait_in_and_the_next_free_place_to_another(clock: Clock) -> None:
    load = InFlight(FixedLimit(8), TARGET, clock)
    working = []
    for _ in range(8):
        visit = arrive_as(load, "greedy")
        assert visit is not None
        assert visit.enter("greedy", goes_on=False) is None
        working.append(visit)
    waiting = await fill_as(load, "greedy")
    assert len(waiting) == 2
    assert load.share_refusals.value == 1
    refused = InFlightVisit(load, clock(), None, load._arrivals, None)
    load._arrivals.size += 1
    with pytest.raises(TooManyWaiting):
        refused.enter("greedy", goes_on=False)

    other = await line_up_as(load, "other")
    assert load.callers_waiting == 2
    working[0].leave()
    await let_run()
    assert other.done()
    assert not any(line.done() for line in waiting)


async def test_a_caller_that_waits_for_its_share_is_refused_by_its_credential_and_others_are_not(clock: Clock) -> None:
    load = InFlight(FixedLimit(8), TARGET, clock)
    first = arrive_as(load, "greedy")
    assert first is not None
    assert first.enter("greedy", goes_on=False) is None
    waiting = [line for line in await fill_as(load, "greedy") if not line.done()]
    in_flight = load.in_flight
    for refusals in range(2, 50):
        assert arrive_as(load, "greedy") is None
        assert load.share_refusals.value == refusals
    assert load.refusal is TooManyWaiting
    for spelling in (b"bearer greedy", b"Bearer  greedy", b"Bearer greedy\t", b"Bearer greedy \t "):
        assert load.arrive(spelling) is None
    assert load.in_flight == in_flight
    assert arrive_as(load, "other") is not None

    for line in waiting:
        line.cancel()
    await let_run()
    assert arrive_as(load, "greedy") is not None


async def test_greedy_callers_together_leave_room_for_one_more(clock: Clock) -> None:
    load = InFlight(FixedLimit(16), TARGET, clock)
    for caller in ("one", "two", "three"):
        await fill_as(load, caller)
    other = await line_up_as(load, "other")
    assert not other.done()


async def test_the_anonymous_caller_has_no_share(clock: Clock) -> None:
    load = InFlight(FixedLimit(8), TARGET, clock)
    assert len(await fill_as(load, None)) == 12
    assert load.share_refusals.value == 0


async def test_no_caller_gets_more_than_half_of_the_places_while_others_wait(clock: Clock) -> None:
    load = InFlight(FixedLimit(8), TARGET, clock)
    working: list[tuple[str, InFlightVisit]] = []

    async def come(caller: str) -> None:
        visit = arrive_as(load, caller)
        if visit is None:
            return
        try:
            waiting = visit.enter(caller, goes_on=True)
            if waiting is not None:
                await waiting
        except Overloaded:
            visit.leave()
        else:
            working.append((caller, visit))

    tasks = [asyncio.create_task(come("greedy")) for _ in range(10)]
    await let_run()
    tasks += [asyncio.create_task(come("other")) for _ in range(2)]
    await let_run()
    for _ in range(20):
        caller, visit = working.pop(0)
        visit.leave()
        tasks.append(asyncio.create_task(come(caller)))
        tasks.append(asyncio.create_task(come("other")))
        await let_run()
    assert sum(caller == "greedy" for caller, _ in working) == 4
    for task in tasks:
        task.cancel()


async def test_a_caller_whose_request_is_gone_as_its_turn_comes_loses_nobody_a_place(clock: Clock) -> None:
    load = InFlight(FixedLimit(4), TARGET, clock)
    working = [enter(load) for _ in range(4)]
    _, gone = await line_up(load)
    _, next_in_line = await line_up(load)
    gone.cancel()  # has not run yet, so it is still in line
    working[0].leave()
    await let_run()
    assert next_in_line.done()
    assert not next_in_line.cancelled()


def fallen_limit(load: InFlight, limit: AdaptiveLimit, value: int, *, of: int) -> list[InFlightVisit]:
    """Let one caller run more requests than the limit allows afterwards, and return them."""
    limit.value = of
    running = []
    for _ in range(of):
        visit = arrive_as(load, "greedy")
        assert visit is not None
        assert visit.enter("greedy", goes_on=False) is None
        running.append(visit)
    limit.value = value
    return running


async def served(load: InFlight, caller: str) -> bool:
    """Return whether a request of a caller is served at once."""
    try:
        line = await line_up_as(load, caller)
    except Overloaded:
        return False
    await let_run()
    if not line.done():
        line.cancel()
    return not line.cancelled()


@pytest.mark.parametrize("value", [4, 13, 40])
async def test_a_limit_that_has_fallen_leaves_places_in_reserve_to_others(clock: Clock, value: int) -> None:
    limit, load = adaptive(clock)
    running = fallen_limit(load, limit, value, of=60)
    greedy = await fill_as(load, "greedy")
    assert not any(line.done() for line in greedy)
    reserve = max(4, value // 8)
    held = []
    for number in range(reserve):
        visit = arrive_as(load, "other")
        assert visit is not None, number
        waiting = visit.enter("other", goes_on=False)
        assert waiting is not None
        await asyncio.wait_for(waiting, 1)
        held.append(visit)
        if len(held) >= max(1, value // 2):
            break
    held[0].leave()
    assert await served(load, "third")
    for visit in (*held[1:], *running):
        visit.leave()
    await let_run()
    for line in greedy:
        assert line.done()


async def test_a_caller_with_its_share_uses_no_place_in_reserve(clock: Clock) -> None:
    limit, load = adaptive(clock)
    fallen_limit(load, limit, 13, of=60)
    greedy = await fill_as(load, "greedy")
    await let_run()
    assert not any(line.done() for line in greedy)
    for line in greedy:
        line.cancel()


async def test_a_caller_with_its_share_does_not_wait_for_places_in_reserve_that_others_leave(clock: Clock) -> None:
    limit, load = adaptive(clock)
    limit.value = 60
    for number in range(limit.value):
        assert await served(load, ("waiting", "idle")[number % 2])
    lines = [await line_up_as(load, "waiting") for _ in range(2)]
    limit.value = 4
    visit = arrive_as(load, "idle")
    assert visit is not None
    with pytest.raises(Overloaded):
        visit.enter("idle", goes_on=False)
    visit.leave()
    assert await served(load, "other")
    for line in lines:
        line.cancel()


async def test_a_limit_that_rises_again_counts_the_places_in_reserve(clock: Clock) -> None:
    limit, load = adaptive(clock)
    running = fallen_limit(load, limit, 4, of=60)
    in_reserve = limit.reserve
    assert [await served(load, f"other{number}") for number in range(in_reserve)] == [True] * in_reserve
    clock.now += LONGEST_WINDOW_SECONDS
    load.began(clock.now)
    assert limit.value > len(running) + in_reserve


async def test_others_are_served_although_a_caller_has_more_waiting_than_there_is_room_for_now(clock: Clock) -> None:
    limit, load = adaptive(clock)
    limit.value = 60
    for _ in range(60):
        visit = arrive_as(load, "greedy")
        assert visit is not None
        assert visit.enter("greedy", goes_on=False) is None
    greedy = await fill_as(load, "greedy")
    assert len(greedy) > 4
    limit.value = 4
    assert [await served(load, f"other{number}") for number in range(4)] == [True] * 4
    assert not await served(load, "one too many")
    for line in greedy:
        line.cancel()


async def test_one_more_caller_than_there_are_places_in_reserve_may_find_out_whose_its_request_is(clock: Clock) -> None:
    limit, load = adaptive(clock)
    fallen_limit(load, limit, 4, of=60)
    visits = [load.arrive(b"caller %d" % number) for number in range(10)]
    may_come = limit.reserve + 1
    assert [visit is not None for visit in visits] == [True] * may_come + [False] * (10 - may_come)


async def test_a_place_in_reserve_that_is_free_again_can_be_used_again(clock: Clock) -> None:
    limit, load = adaptive(clock)
    fallen_limit(load, limit, 4, of=60)
    for _ in range(3 * limit.reserve):
        visit = arrive_as(load, "other")
        assert visit is not None
        waiting = visit.enter("other", goes_on=False)
        assert waiting is not None
        await asyncio.wait_for(waiting, 1)
        visit.leave()


async def test_more_waiting_than_there_is_room_for_now_is_a_fallen_limit_too(clock: Clock) -> None:
    limit, load = adaptive(clock)
    running = fallen_limit(load, limit, 60, of=60)
    greedy = await fill_as(load, "greedy")
    limit.value = 20
    for visit in running[limit.value :]:
        visit.leave()
    assert load.waiting == len(greedy) > limit.value // 2
    assert await served(load, "other")
    for line in greedy:
        line.cancel()


async def test_a_limit_that_has_risen_is_used_at_once(clock: Clock) -> None:
    limit, load = adaptive(clock)
    fallen_limit(load, limit, 60, of=60)
    greedy = await fill_as(load, "greedy")
    limit.value = 200
    clock.now += LONGEST_WINDOW_SECONDS
    visit = load.arrive()
    assert visit is not None
    visit.begin()
    await let_run()
    assert all(line.done() for line in greedy)


async def test_a_fixed_limit_is_never_exceeded(clock: Clock) -> None:
    load = InFlight(FixedLimit(8), TARGET, clock)
    for _ in range(8):
        enter(load)
    lines = [await line_up_as(load, f"caller{number}") for number in range(4)]
    assert load.arrive() is None
    assert not any(line.done() for line in lines)
    for line in lines:
        line.cancel()


async def test_requests_that_only_wait_do_not_hold_a_limit_that_has_fallen(clock: Clock) -> None:
    limit, load = adaptive(clock)
    fallen_limit(load, limit, 13, of=60)
    assert await served(load, "other")
    clock.now += LONGEST_WINDOW_SECONDS
    visit = arrive_as(load, "other")  # nothing has waited for the event loop since
    assert visit is not None
    assert load.limit > 60
    assert visit.enter("other", goes_on=False) is None
