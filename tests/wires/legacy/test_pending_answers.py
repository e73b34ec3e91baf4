"""Answers of clients find the call that waits for them, once, and nothing else does."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission.bodies import EXTRA_BYTES, BodyBudget
from gateway.errors import InsufficientScope, Overloaded, TooManyBodyBytes
from gateway.protocol.strict_json import weight
from gateway.wires.legacy.pending_answers import AnswersTooLarge, Lapsed, Leaving, WaitingCall, WaitingCalls
from tests.authorities import ADA, authorities, caller, nothing
from tests.wires.legacy.holding import room

BOOT = b"b" * 16
YES = b'{"result":{"action":"accept"}}'
NO = b'{"error":{"code":-1,"message":"no"}}'
MAX_BYTES = 100
SHARE = 2**21


def numbered() -> Callable[[int], bytes]:
    numbers = itertools.count()
    return lambda size: next(numbers).to_bytes(size, "big")


def make_calls(limit: int = 100) -> WaitingCalls:
    return WaitingCalls(BOOT, numbered(), authorities(), max_bytes=MAX_BYTES, limit=limit)


@contextmanager
def expecting(*keys: str) -> Iterator[tuple[WaitingCalls, WaitingCall]]:
    """Open a call that expects these answers."""
    calls = make_calls()
    with calls.open(ADA, nothing, room()) as call:
        call.expect(keys)
        yield calls, call


async def begin_to_wait(call: WaitingCall) -> asyncio.Task[dict[str, bytes]]:
    waiting = asyncio.create_task(call.answers())
    await asyncio.sleep(0)
    return waiting


async def test_a_call_continues_with_the_last_answer_that_it_expects() -> None:
    with expecting("first", "second") as (calls, call):
        waiting = await begin_to_wait(call)
        assert calls.deliver(BOOT, call.call_id, "second", NO, ADA)
        await asyncio.sleep(0)
        assert not waiting.done()
        assert calls.deliver(BOOT, call.call_id, "first", YES, ADA)
        assert list((await waiting).items()) == [("first", YES), ("second", NO)]


async def test_an_answer_may_come_before_anybody_waits_for_it() -> None:
    with expecting("key") as (calls, call):
        assert calls.deliver(BOOT, call.call_id, "key", YES, ADA)
        assert await call.answers() == {"key": YES}
        assert await call.answers() == {"key": YES}


async def test_a_call_that_expects_nothing_does_not_wait() -> None:
    with make_calls().open(ADA, nothing, room()) as call:
        call.expect([])
        assert await call.answers() == {}


async def test_a_call_that_has_not_asked_takes_no_answer() -> None:
    calls = make_calls()
    with calls.open(ADA, nothing, room()) as call:
        assert not calls.deliver(BOOT, call.call_id, "key", YES, ADA)


async def test_an_answer_counts_once_and_the_first_one_counts() -> None:
    with expecting("key", "key", "other") as (calls, call):
        assert calls.deliver(BOOT, call.call_id, "key", YES, ADA)
        assert not calls.deliver(BOOT, call.call_id, "key", NO, ADA)
        assert calls.deliver(BOOT, call.call_id, "other", YES, ADA)
        assert not calls.deliver(BOOT, call.call_id, "other", NO, ADA)
        assert await call.answers() == {"key": YES, "other": YES}


async def test_what_nobody_waits_for_is_not_taken() -> None:
    calls = make_calls()
    with calls.open(ADA, nothing, room()) as call, calls.open(ADA, nothing, room()) as other:
        call.expect(["key"])
        other.expect(["other"])
        assert not calls.deliver(b"c" * 16, call.call_id, "key", YES, ADA)
        assert not calls.deliver(b"", call.call_id, "key", YES, ADA)
        assert not calls.deliver(BOOT, b"?" * 16, "key", YES, ADA)
        assert not calls.deliver(BOOT, other.call_id, "key", YES, ADA)
        assert not calls.deliver(BOOT, call.call_id, "other", YES, ADA)
        waiting = await begin_to_wait(call)
        assert not waiting.done()
        assert calls.deliver(BOOT, call.call_id, "key", YES, ADA)
        assert await waiting == {"key": YES}


async def test_a_call_asks_again_and_what_it_asked_before_is_over() -> None:
    with expecting("key", "unanswered") as (calls, call):
        assert calls.deliver(BOOT, call.call_id, "key", YES, ADA)
        call.expect(["key~2"])
        assert not calls.deliver(BOOT, call.call_id, "key", NO, ADA)
        assert not calls.deliver(BOOT, call.call_id, "unanswered", NO, ADA)
        waiting = await begin_to_wait(call)
        assert not waiting.done()
        assert calls.deliver(BOOT, call.call_id, "key~2", NO, ADA)
        assert await waiting == {"key~2": NO}
        call.expect(["key~3"])
        waiting = await begin_to_wait(call)
        assert not waiting.done()
        assert calls.deliver(BOOT, call.call_id, "key~3", YES, ADA)
        assert await waiting == {"key~3": YES}


async def test_a_call_that_is_over_takes_no_answer_and_leaves_nothing_behind() -> None:
    calls = make_calls()
    with suppress(LookupError), calls.open(ADA, nothing, room()) as call:
        call.expect(["key"])
        raise LookupError
    assert not calls.deliver(BOOT, call.call_id, "key", YES, ADA)
    assert len(calls) == 0


async def test_a_wait_that_is_given_up_can_be_taken_up_again() -> None:
    with expecting("key") as (calls, call):
        waiting = await begin_to_wait(call)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert calls.deliver(BOOT, call.call_id, "key", YES, ADA)
        assert await call.answers() == {"key": YES}


async def test_no_more_calls_wait_than_may() -> None:
    calls = make_calls(limit=2)
    with calls.open(ADA, nothing, room()), calls.open(ADA, nothing, room()):
        assert len(calls) == 2
        with pytest.raises(Overloaded), calls.open(ADA, nothing, room()):
            pass
    with calls.open(ADA, nothing, room()):
        assert len(calls) == 1


async def test_calls_are_identified_by_sixteen_random_bytes() -> None:
    asked: list[int] = []
    source = numbered()

    def random_bytes(size: int) -> bytes:
        asked.append(size)
        return source(size)

    calls = WaitingCalls(BOOT, random_bytes, authorities(), max_bytes=MAX_BYTES)
    assert calls.boot == BOOT
    with calls.open(ADA, nothing, room()) as first, calls.open(ADA, nothing, room()) as second:
        assert first.call_id != second.call_id
    assert asked == [16, 16]


@given(
    st.lists(st.lists(st.sampled_from("abc"), unique=True), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abcd")), max_size=30),
)
def test_each_call_ends_up_with_the_first_answer_to_each_of_its_keys(
    expected: list[list[str]], deliveries: list[tuple[int, str]]
) -> None:
    calls = make_calls()
    open_calls = [calls.open(ADA, nothing, room()) for _ in expected]
    waiting = [context.__enter__() for context in open_calls]
    for call, keys in zip(waiting, expected, strict=True):
        call.expect(keys)
    first: dict[tuple[int, str], bytes] = {}
    for number, (index, key) in enumerate(deliveries):
        response = b"%d" % number
        call_id = waiting[index].call_id if index < len(waiting) else b"nobody"
        wanted = index < len(waiting) and key in expected[index] and (index, key) not in first
        assert calls.deliver(BOOT, call_id, key, response, ADA) == wanted
        if wanted:
            first[index, key] = response
    for index, (call, keys) in enumerate(zip(waiting, expected, strict=True)):
        if all((index, key) in first for key in keys):
            answers = asyncio.run(call.answers())
            assert answers == {key: first[index, key] for key in keys}
    for context in open_calls:
        context.__exit__(None, None, None)
    assert len(calls) == 0


async def test_a_process_that_shuts_down_lets_no_call_wait() -> None:
    calls = make_calls()
    with calls.open(ADA, nothing, room()) as waiting_call, calls.open(ADA, nothing, room()) as answered:
        waiting_call.expect(["first", "second"])
        answered.expect(["key"])
        assert calls.deliver(BOOT, waiting_call.call_id, "first", YES, ADA)
        assert calls.deliver(BOOT, answered.call_id, "key", YES, ADA)
        waiting = await begin_to_wait(waiting_call)
        calls.close()
        with pytest.raises(Leaving):
            await waiting
        assert await answered.answers() == {"key": YES}
        answered.expect(["again"])
        with pytest.raises(Leaving):
            await answered.answers()
    with calls.open(ADA, nothing, room()) as later:
        later.expect(["key"])
        with pytest.raises(Leaving):
            await later.answers()


async def test_a_call_continues_with_the_authority_of_its_answer() -> None:
    calls, other = make_calls(), replace(ADA, scopes=frozenset({"more"}))
    with calls.open(ADA, nothing, room()) as call:
        call.expect(["key"])
        assert call.authority is ADA
        assert calls.deliver(BOOT, call.call_id, "key", YES, other)
        assert call.authority is other


async def test_an_answer_of_too_little_authority_is_refused_and_another_one_still_taken() -> None:
    calls, began = make_calls(), caller("ada", "admin")
    with calls.open(replace(began, session=b"s"), lambda _registry: frozenset({"admin"}), room()) as call:
        call.expect(["key"])
        for authority in (replace(ADA, session=b"s"), began, replace(began, session=b"t")):
            with pytest.raises(InsufficientScope):
                calls.deliver(BOOT, call.call_id, "key", YES, authority)
        assert not calls.deliver(BOOT, call.call_id, "key", YES, replace(caller("eve", "admin"), session=b"s"))
        assert not calls.deliver(BOOT, call.call_id, "other", YES, ADA)
        assert calls.deliver(BOOT, call.call_id, "key", YES, replace(began, session=b"s"))


async def test_a_call_whose_authority_has_ended_does_not_continue_even_with_all_answers() -> None:
    calls, short = make_calls(), replace(ADA, ends_at=time.time() + 0.05)
    with calls.open(short, nothing, room()) as waiting_call, calls.open(short, nothing, room()) as answered:
        waiting_call.expect(["key"])
        answered.expect(["key"])
        assert calls.deliver(BOOT, answered.call_id, "key", YES, short)
        with pytest.raises(Lapsed):
            await waiting_call.answers()
        assert not calls.deliver(BOOT, waiting_call.call_id, "key", YES, ADA)
        with pytest.raises(Lapsed):
            await answered.answers()


async def test_an_answer_that_its_caller_has_no_room_for_ends_its_call_and_counts_nothing() -> None:
    calls, budget = make_calls(), BodyBudget(0, SHARE)
    with budget.hold("ada") as body, budget.hold("ada") as held, calls.open(ADA, nothing, held) as call:
        call.expect(["key", "other"])
        body.grow(SHARE)
        body.keep(EXTRA_BYTES - weight(YES) + 1)
        assert calls.deliver(BOOT, call.call_id, "key", YES, ADA)
        with pytest.raises(TooManyBodyBytes):
            await call.answers()
        body.clear()
        assert budget.held_bytes == 0


async def test_the_answers_that_a_call_keeps_count_until_it_ends() -> None:
    calls, budget = make_calls(), BodyBudget(0, SHARE)
    with budget.hold("ada") as held, calls.open(ADA, nothing, held) as call:
        for number, keeps in enumerate([True, True, False, True]):
            call.expect([str(number)], keeps=keeps)
            assert calls.deliver(BOOT, call.call_id, str(number), YES, ADA)
            assert list(await call.answers()) == [str(number)]
            assert budget.held_bytes == [1, 2, 1, 2][number] * weight(YES)
    assert budget.held_bytes == 0


async def test_an_answer_of_many_values_counts_as_the_memory_that_it_takes() -> None:
    calls, budget, dense = make_calls(), BodyBudget(0, SHARE), b"[" * 20 + b"]" * 20
    with budget.hold("ada") as held, calls.open(ADA, nothing, held) as call:
        call.expect(["key"])
        assert calls.deliver(BOOT, call.call_id, "key", dense, ADA)
        assert budget.held_bytes == weight(dense) > 2 * len(dense)


@pytest.mark.parametrize("rounds", [[["a", "b", "c"]], [["a", "b"], ["c"]], [["a"], ["b"], ["c"]]])
async def test_a_call_whose_answers_are_too_large_together_ends(rounds: list[list[str]]) -> None:
    calls, third = make_calls(), b" " * (MAX_BYTES // 3)
    with calls.open(ADA, nothing, room()) as call:
        for keys in rounds[:-1]:
            call.expect(keys)
            assert all(calls.deliver(BOOT, call.call_id, key, third, ADA) for key in keys)
            assert len(await call.answers()) == len(keys)
        call.expect(rounds[-1])
        *before, last = rounds[-1]
        assert all(calls.deliver(BOOT, call.call_id, key, third, ADA) for key in before)
        assert calls.deliver(BOOT, call.call_id, last, third + b"  ", ADA)
        with pytest.raises(AnswersTooLarge):
            await call.answers()


async def test_answers_that_a_call_does_not_keep_may_be_larger_together() -> None:
    calls = make_calls()
    with calls.open(ADA, nothing, room()) as call:
        for key in ("a", "b", "c"):
            call.expect([key], keeps=False)
            assert calls.deliver(BOOT, call.call_id, key, b" " * MAX_BYTES, ADA)
            assert len(await call.answers()) == 1
