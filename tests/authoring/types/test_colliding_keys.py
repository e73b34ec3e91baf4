"""Numbers chosen to have the same hash never get into a set or dict together; all that honest callers send does."""

from __future__ import annotations

import collections
import time
import uuid
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv6Address, IPv6Interface
from typing import Any

import pytest
from pydantic import BaseModel, Json

from gateway.authoring.arguments import Arguments, InvalidArguments
from gateway.authoring.types.colliding_keys import MOST_COLLIDING, MOST_SPREAD

PERIOD = 2**61 - 1
"""Python hashes integers modulo this."""

MANY = 300


class Point(BaseModel, frozen=True):
    x: int
    y: int = 0


class Node(BaseModel, frozen=True):
    number: int = 0
    inner: frozenset[Node] = frozenset()


def of_names(make: Callable[[int], str]) -> dict[str, int]:
    return {make(number * PERIOD): 1 for number in range(MANY)}


def of(make: Callable[[int], Any]) -> list[Any]:
    return [make(number * PERIOD) for number in range(MANY)]


COLLIDING: dict[str, tuple[Any, Any]] = {
    "set": (set[int], of(int)),
    "set of anything": (set, of(int)),
    "set of texts of numbers": (set[int], of(str)),
    "frozenset": (frozenset[int], of(int)),
    "optional set": (set[int] | None, of(int)),
    "union of items": (set[int | str], of(int)),
    "set in a list": (list[set[int]], [of(int)]),
    "set in JSON text": (Json[set[int]], str(of(int))),
    "decimals": (set[Decimal], of(str)),
    "fractions": (set[Fraction], of(str)),
    "complex numbers of few digits": (set[complex], [f"{1000003 * number}-{number}j" for number in range(MANY)]),
    "ids": (set[uuid.UUID], of(lambda number: str(uuid.UUID(int=number)))),
    "interfaces": (set[IPv6Interface], of(lambda number: str(IPv6Address(number)))),
    "tuples": (set[tuple[int, int]], of(lambda number: [number, 2 * number])),
    "frozen models": (set[Point], of(lambda number: {"x": number})),
    "models that refer to themselves": (Node, {"inner": of(lambda number: {"number": number})}),
    "dict": (dict[int, int], of_names(str)),
    "dict of ids": (dict[uuid.UUID, int], of_names(lambda number: str(uuid.UUID(int=number)))),
    "counter": (collections.Counter[int], of_names(str)),
    "ordered dict": (collections.OrderedDict[int, int], of_names(str)),
    "defaultdict": (collections.defaultdict[int, int], of_names(str)),
}


def reading(annotation: Any) -> Callable[[Any], Any]:
    def function(given: Any) -> None: ...

    function.__annotations__["given"] = annotation
    arguments = Arguments(function)
    return lambda given: arguments.read({"given": given})["given"]


@pytest.mark.parametrize("name", COLLIDING)
def test_numbers_chosen_to_collide_are_refused(name: str) -> None:
    annotation, given = COLLIDING[name]
    with pytest.raises(InvalidArguments, match="may collide as keys"):
        reading(annotation)(given)


@pytest.mark.parametrize(("keys", "are_read"), [(MOST_SPREAD, True), (MOST_SPREAD + 1, False)], ids=["fits", "more"])
def test_keys_far_apart_are_few_because_their_places_in_a_table_can_be_chosen(keys: int, *, are_read: bool) -> None:
    read = reading(dict[int, int])
    given = {str(number << 40): 1 for number in range(keys)}
    if are_read:
        assert len(read(given)) == keys
    else:
        with pytest.raises(InvalidArguments, match="with up to 1,000 numbers"):
            read(given)


def test_keys_close_together_may_be_many() -> None:
    keys = [*range(50_000, 0, -1), *range(1_000)]
    assert reading(set[int])(keys) == set(keys)


@pytest.mark.parametrize(
    ("annotation", "given", "reason"),
    [
        (set[uuid.UUID], [*COLLIDING["ids"][1] * 4, "x"], "Input should be a valid UUID"),
        (dict[int, int], {**COLLIDING["dict"][1], "x": 1}, "a key: Input should be a valid integer"),
        (set, [*of(int), []], "Set items should be hashable"),
    ],
    ids=["set", "dict", "not hashable"],
)
def test_a_wrong_last_key_does_not_let_the_others_collide(annotation: Any, given: Any, reason: str) -> None:
    with pytest.raises(InvalidArguments, match=reason):
        reading(annotation)(given)


@pytest.mark.parametrize(
    ("annotation", "given", "value"),
    [
        (set[int], [5] * 1000, {5}),
        (set[int], list(range(-1000, 1000)), set(range(-1000, 1000))),
        (set[int], of(int)[:MOST_COLLIDING], set(of(int)[:MOST_COLLIDING])),
        (set[int], [number * 2**40 for number in range(1000)], {number * 2**40 for number in range(1000)}),
        (set[tuple[int, int]], [[x, y] for x in range(-9, 9) for y in range(-9, 9)], None),
        (dict[int, str], {str(number): "x" for number in range(1000)}, dict.fromkeys(range(1000), "x")),
        (set[int] | list[int], list(range(100)), list(range(100))),
        (set[str], [str(number) for number in of(int)], set(map(str, of(int)))),
    ],
    ids=["repeated", "small", "few", "powers", "grid", "dict", "union", "texts"],
)
def test_what_honest_callers_send_is_read_as_before(annotation: Any, given: Any, value: Any) -> None:
    read = reading(annotation)(given)
    assert read == (value if value is not None else {tuple(each) for each in given})


def test_all_problems_of_small_arguments_are_found_without_a_collision() -> None:
    def function(some: set[uuid.UUID], other: int) -> None: ...

    some = [str(uuid.UUID(int=number * PERIOD)) for number in range(4000)]
    begin = time.process_time()
    with pytest.raises(
        InvalidArguments, match=r"(?s)some: .*may collide as keys.*; other: Input should be a valid int"
    ):
        Arguments(function).read({"some": some, "other": "x"})
    assert time.process_time() - begin < 0.3  # colliding, these take more than half a second
