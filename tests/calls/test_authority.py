"""The rights of callers end with their authority: once, and not before."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import replace

import pytest

from gateway.calls.authority import Authorities, Authority
from gateway.errors import InsufficientScope
from gateway.registry.registry import Registry
from gateway.sealing.principal import Principal
from tests.authorities import ADA, authorities, nothing

SECONDS = 10
ADMIN = frozenset({"admin"})
KEYED = replace(ADA, key=b"k")


class Ended:
    """Counts how often something ends."""

    def __init__(self) -> None:
        self.times = 0
        self._happened = asyncio.Event()

    def __call__(self) -> None:
        self.times += 1
        self._happened.set()

    async def wait(self) -> None:
        async with asyncio.timeout(SECONDS):
            await self._happened.wait()


async def test_it_ends_when_the_token_does() -> None:
    ended, ends_at = Ended(), time.time() + 0.05
    with authorities().watching(replace(ADA, ends_at=ends_at), nothing, ended):
        assert ended.times == 0
        await ended.wait()
        assert time.time() >= ends_at
    assert ended.times == 1


async def test_a_timer_that_comes_early_by_the_clock_of_the_tokens_looks_again() -> None:
    now, looks = 0.0, asyncio.Event()

    def clock() -> float:
        looks.set()
        return now

    ended = Ended()
    with Authorities(Registry(), clock, lambda _key: False).watching(replace(ADA, ends_at=0.02), nothing, ended):
        for _ in range(3):
            looks.clear()
            await asyncio.wait_for(looks.wait(), SECONDS)
        assert ended.times == 0
        now = 0.02
        await ended.wait()


async def test_one_that_is_over_already_ends_at_once() -> None:
    ended = Ended()
    with authorities().watching(replace(ADA, ends_at=time.time()), nothing, ended):
        assert ended.times == 1


async def test_it_ends_when_its_key_has_left_and_no_other_does() -> None:
    left: set[bytes] = set()
    all_of_them = Authorities(Registry(), time.time, left.__contains__)
    mine, other = Ended(), Ended()
    with all_of_them.watching(KEYED, nothing, mine), all_of_them.watching(replace(KEYED, key=b"o"), nothing, other):
        all_of_them.review()
        assert (mine.times, other.times) == (0, 0)
        left.add(b"k")
        all_of_them.review()
        all_of_them.review()
        assert (mine.times, other.times) == (1, 0)


async def test_it_ends_when_what_is_served_takes_a_scope_that_the_token_lacks() -> None:
    today = Registry()

    def needs(registry: Registry) -> frozenset[str]:
        return ADMIN if registry is today else frozenset()

    all_of_them = authorities()
    lacks, grants, nobody = Ended(), Ended(), Ended()
    with (
        all_of_them.watching(ADA, needs, lacks),
        all_of_them.watching(replace(ADA, scopes=ADMIN), needs, grants),
        all_of_them.watching(Authority(None, frozenset(), math.inf), needs, nobody),
    ):
        all_of_them.serve(Registry())
        assert lacks.times == 0
        all_of_them.serve(today)
        assert (lacks.times, grants.times, nobody.times) == (1, 0, 0)
        assert not all_of_them.hold(ADA, needs)


async def test_nothing_ends_that_is_not_watched_any_more() -> None:
    left: set[bytes] = set()
    all_of_them, ended = Authorities(Registry(), time.time, left.__contains__), Ended()
    with all_of_them.watching(replace(KEYED, ends_at=time.time() + 0.02), nothing, ended):
        pass
    left.add(b"k")
    all_of_them.review()
    await asyncio.sleep(0.05)
    assert ended.times == 0


async def test_it_continues_under_another_token_for_as_long_as_that_lasts() -> None:
    ended, ends_at = Ended(), time.time() + 0.15
    with authorities().watching(replace(ADA, ends_at=time.time() + 0.05), nothing, ended) as standing:
        assert standing.pass_to(replace(ADA, ends_at=ends_at), b"")
        await ended.wait()
        assert time.time() >= ends_at
        assert not standing.pass_to(ADA, b"")
    assert ended.times == 1


async def test_another_token_has_to_reach_as_far() -> None:
    def needs(_registry: Registry) -> frozenset[str]:
        return ADMIN

    admin = replace(ADA, scopes=ADMIN, session=b"s")
    with authorities().watching(admin, needs, Ended()) as standing:
        assert not standing.pass_to(replace(admin, principal=Principal("", "eve", "")), b"s")
        assert not standing.pass_to(replace(admin, ends_at=time.time()), b"s")
        with pytest.raises(InsufficientScope, match="This needs the scopes: admin") as lacking:
            standing.pass_to(replace(admin, scopes=frozenset()), b"s")
        with pytest.raises(InsufficientScope, match="another session") as elsewhere:
            standing.pass_to(replace(admin, session=b"t"), b"s")
        assert lacking.value.required == elsewhere.value.required == ADMIN
        assert standing.caller is admin
        assert standing.pass_to(replace(admin, session=b""), b"")
