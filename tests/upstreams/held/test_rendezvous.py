"""Which holder has the connection of a key."""

from __future__ import annotations

from collections import Counter

from gateway.upstreams.held.rendezvous import ranked

HOLDERS = [f"http://h-{number}:8080" for number in range(4)]
KEYS = [f"key {number}".encode() for number in range(2000)]


def test_a_holder_that_leaves_the_list_moves_only_its_own_keys() -> None:
    before = {key: ranked(key, HOLDERS)[0] for key in KEYS}
    for gone in HOLDERS:
        left = [holder for holder in HOLDERS if holder != gone]
        moved = {key for key in KEYS if ranked(key, left)[0] != before[key]}
        assert moved == {key for key in KEYS if before[key] == gone}


def test_the_next_holder_in_order_is_the_one_that_has_the_key_without_the_first() -> None:
    for key in KEYS[:100]:
        first, second, *_ = ranked(key, HOLDERS)
        assert ranked(key, [holder for holder in HOLDERS if holder != first])[0] == second


def test_the_order_of_the_list_makes_no_difference() -> None:
    assert all(ranked(key, HOLDERS) == ranked(key, HOLDERS[::-1] * 2) for key in KEYS[:100])


def test_each_holder_has_its_share() -> None:
    shares = Counter(ranked(key, HOLDERS)[0] for key in KEYS)
    assert all(400 < shares[holder] < 600 for holder in HOLDERS)
