"""Reading 1 MiB of the worst JSON costs at most ten times as much CPU time as 1 MiB of text, wherever it is sent."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.protocol.strict_json import MAX_VALUES
from tests.integration.fleet import Fleet
from tests.security.costs import Measured, Sent, call, measured, text_of
from tests.security.hostile_bodies import KINDS, LONG_TEXTS, TEXT

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[2] / "docs" / "understand" / "security.md"
SIZE = 2**20 - 2**10
MOST_TIMES = 10
TRIES = 6
"""How often a request over the limit is measured again, with text beside it: the machine may be busy."""

FORGED = ',"requestState":"s1.forged"'


def in_arguments(value: str) -> Sent:
    """Send a value to a tool that takes anything."""
    return call("unchecked", f'{{"value":{value}}}')


def with_a_state(value: str) -> Sent:
    """Make the replica digest the arguments, too, before it can reject the state."""
    return call("unchecked", f'{{"value":{value}}}', FORGED)


def in_answers(value: str) -> Sent:
    """Send it as the answer to a question that nobody asked."""
    return call("unchecked", "{}", f',"inputResponses":{{"who":{{"action":"accept","content":{{"v":{value}}}}}}}')


def in_meta(value: str) -> Sent:
    """Send it in `_meta`, which nobody reads."""
    sent = call("unchecked", "{}")
    return replace(sent, meta=f'{sent.meta[:-1]},"example.com/x":{value}}}')


def without_session(value: str) -> Sent:
    """Send it on a handshake wire."""
    return replace(call("unchecked", f'{{"value":{value}}}'), version="DRAFT-2026-v1", meta="{}")


PLACES: dict[str, Callable[[str], Sent]] = {
    "arguments": in_arguments,
    "arguments with a state": with_a_state,
    "answers": in_answers,
    "`_meta`": in_meta,
    "a request of the draft": without_session,
}
VALUES: dict[str, Callable[[int], str]] = {**{name: kind.filled for name, kind in KINDS.items()}, **LONG_TEXTS}
TABLE = {
    "empty arrays": "empty arrays",
    "arrays 90 deep": "arrays, 90 deep",
    "objects 90 deep": "objects, 90 deep",
    "rows of objects": "rows of objects",
    "names of fractions": "an object of many names",
    "fractions": "fractions",
    "small exponents": "numbers such as `1e-300`",
    "different texts": "short texts",
    "a text of escapes": "one text of escapes",
}
"""The kinds in the table of the page, by name."""


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    environ = {"GATEWAY_TOOLS": "tests.security.cost_tools"}
    with Fleet(tmp_path_factory.mktemp("bodies"), environ, names=["r1"]) as fleet, measured(fleet["r1"]) as replica:
        yield replica


@pytest.fixture(scope="module")
def of_text() -> dict[str, float]:
    """Return what text costs at each place, in seconds of CPU time; filled when it is first needed."""
    return {}


def times_text(replica: Measured, make: Callable[[str], Sent], value: str, known: dict[str, float]) -> float:
    """Return how many times the CPU time of text a value costs. Measured again while that is too much."""
    name, text = make.__name__, make(TEXT.filled(SIZE))
    if name not in known:
        known[name] = min(replica.cost(text)[0].cpu for _ in range(5))
    sent = make(value)
    lowest = replica.cost(sent)[0].cpu
    for _ in range(TRIES):
        if lowest <= MOST_TIMES * known[name]:
            break
        lowest = min(lowest, replica.cost(sent)[0].cpu)
        known[name] = max(known[name], replica.cost(text)[0].cpu)  # as busy as the machine is now
    return lowest / known[name]


@pytest.mark.parametrize("place", PLACES)
def test_no_json_costs_more_than_ten_times_what_text_costs(
    replica: Measured, place: str, of_text: dict[str, float]
) -> None:
    dear = {}
    for name, fill in VALUES.items():
        times = times_text(replica, PLACES[place], fill(SIZE), of_text)
        if times > MOST_TIMES:
            dear[name] = round(times, 1)
    assert not dear


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_is_accepted_up_to_the_limit_and_refused_above(replica: Measured, name: str) -> None:
    kind = KINDS[name]
    assert text_of(replica.send(in_arguments(kind.filled(SIZE)))) == "fits"
    everything = in_arguments(kind.filled(SIZE, sys.maxsize))
    is_too_much = kind.weight * kind.count(SIZE, sys.maxsize) > MAX_VALUES
    expected = f"The body has more than {MAX_VALUES} JSON values" if is_too_much else "fits"
    assert text_of(replica.send(everything)).startswith(expected)


def test_what_is_over_the_limit_is_refused_for_less_than_it_would_cost(replica: Measured) -> None:
    text = min(replica.cost(in_arguments(TEXT.filled(SIZE)))[0].cpu for _ in range(5))
    unit = KINDS["empty arrays"]
    refused = min(replica.cost(in_arguments(unit.filled(SIZE, sys.maxsize)))[0].cpu for _ in range(5))
    assert refused < MOST_TIMES * text


def test_the_page_shows_what_json_costs(replica: Measured, of_text: dict[str, float]) -> None:
    """The page is right within a factor of two: CPU times of one machine differ from those of another."""
    rows = dict(re.findall(r"^\| ([^|]+?) \| (\d+) \|$", PAGE.read_text(), re.MULTILINE))
    for name, words in TABLE.items():
        times = max(times_text(replica, make, VALUES[name](SIZE), of_text) for make in (in_arguments, with_a_state))
        assert times <= 2 * int(rows[words]), words
