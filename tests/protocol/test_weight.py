"""A body counts as what it takes in memory when it is decoded, up to a documented factor."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from gateway.protocol import strict_json
from gateway.protocol.strict_json import DECODED_TIMES, decode, encode, weight
from tests.cpu_time import least_seconds
from tests.security.hostile_bodies import DEAR, KINDS, LONG_TEXTS, Kind, nested

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("only_new_objects")]

DENSEST = {
    **{name: KINDS[name] for name in ("empty arrays", "empty objects", "arrays 90 deep", "different texts", "names")},
    "objects without names 90 deep": nested('{"":', "}"),
    "objects with different names": Kind('{"#":"\u0100"}', DEAR),
    "a wide text in a list": Kind('["\u0100"]', 1 + DEAR),
    "fractions in lists": Kind("[1.5]", DEAR),
    "wide texts": Kind('"\u0100"'),
    "names of wide texts": Kind('"#":"\u0100"', is_object=True),
    "objects of eleven names": Kind("{" + ",".join(f'"{name}#":1.5' for name in "abcdefghijk") + "}", 10 + DEAR),
}
KIB = 1024

FULL_OF_MARKS = {name for name in LONG_TEXTS if "commas" in name or "brackets" in name}


def decoded_bytes(body: bytes) -> int:
    """Return how much memory a body takes when it is decoded."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        value = decode(body)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    del value
    return after - before


def takes_at_most(body: bytes, size: int) -> bool:
    """Return whether a body takes no more memory than this when it is decoded.

    Other work of the process adds to what is measured, and a first measurement fills caches. So the
    least of a few is the nearest to the truth.
    """
    return any(decoded_bytes(body) <= size for _ in range(4))


@pytest.mark.parametrize("size", [4 * KIB, 60 * KIB, 150 * KIB, 300 * KIB, KIB * KIB])
@pytest.mark.parametrize("name", DENSEST)
def test_decoded_json_takes_no_more_than_the_documented_factor_of_what_it_weighs(name: str, size: int) -> None:
    body = DENSEST[name].filled(size).encode()

    assert takes_at_most(body, DECODED_TIMES * weight(body))


@pytest.mark.parametrize("name", DENSEST)
def test_decoded_json_takes_no_more_memory_than_is_estimated(name: str) -> None:
    body = encode(decode(DENSEST[name].filled(300 * KIB).encode()))

    assert takes_at_most(body, strict_json.decoded_bytes(body))


@pytest.mark.parametrize(("character", "times"), [("a", 1), ("é", 3), ("\u4e00", 3), ("😀", 5)])
def test_a_long_text_is_estimated_by_its_widest_character(character: str, times: int) -> None:
    body = encode([character + "a" * 60 * KIB])

    estimated = strict_json.decoded_bytes(body)

    assert estimated <= times * len(body) + KIB
    # What measures the coverage of tests allocates a little, too.
    assert takes_at_most(body, estimated + 8 * KIB)


@pytest.mark.parametrize("name", sorted(LONG_TEXTS.keys() - FULL_OF_MARKS))
def test_a_text_weighs_its_size(name: str) -> None:
    body = LONG_TEXTS[name](60 * KIB).encode()

    assert weight(body) <= 2 * len(body)


def test_json_inside_a_text_weighs_its_size() -> None:
    body = encode(KINDS["rows of objects"].filled(60 * KIB))

    assert weight(body) <= 2 * len(body)


def test_a_text_that_is_full_of_commas_weighs_three_times_its_size() -> None:
    body = LONG_TEXTS["a text of commas"](60 * KIB).encode()

    assert weight(body) <= 3 * len(body)


@pytest.mark.parametrize("name", LONG_TEXTS)
def test_to_weigh_json_takes_a_small_part_of_the_time_that_the_dearest_takes_to_be_decoded(name: str) -> None:
    body = LONG_TEXTS[name](KIB * KIB).encode()
    dearest = LONG_TEXTS["objects of many texts, and a text of commas"](KIB * KIB).encode()

    assert 3 * least_seconds(weight, body) < least_seconds(decode, dearest)


def test_an_emoji_makes_a_text_wide_and_its_weight_allows_for_that() -> None:
    body = f'"😀{"a" * 60 * KIB}"'.encode()

    assert weight(body) == len(body)
    assert takes_at_most(body, DECODED_TIMES * weight(body))


def test_rows_of_a_table_weigh_less_than_twice_their_size() -> None:
    body = KINDS["rows of objects"].filled(300 * KIB).encode()

    assert len(body) <= weight(body) < 2 * len(body)
