"""The journal and its stored form, which moves between releases."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.journal import Checkpoint, Journal, MalformedJournal
from gateway.sealing.packing import pack, unpack

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
DIGESTS = st.binary(min_size=12, max_size=12)
REQUIRED = ("flow", "seed", "start", "deadline", "legs", "rounds")
JOURNALS = st.builds(
    Journal,
    flow_id=st.text(),
    seed=st.binary(),
    started_ms=st.integers(),
    deadline_ms=st.integers(),
    legs=st.integers(min_value=0),
    input_rounds=st.integers(min_value=0),
    pending=st.dictionaries(st.text(), DIGESTS, max_size=3),
    answers=st.dictionaries(
        st.text(),
        st.dictionaries(DIGESTS, st.dictionaries(st.text(), JSON_VALUES, max_size=3), min_size=1, max_size=2),
        max_size=3,
    ),
    steps=st.dictionaries(st.text(), JSON_VALUES, max_size=3),
    checkpoint=st.none()
    | st.builds(Checkpoint, version=st.integers(), value=JSON_VALUES, logs=st.integers(min_value=0)),
    progress=st.none() | st.integers() | st.floats(allow_nan=False),
    logs=st.integers(min_value=0),
    trace=st.none() | st.binary(),
    unknown=st.dictionaries(st.from_regex(r"x-[a-z]{1,5}", fullmatch=True), JSON_VALUES, max_size=2),
)
JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5) | st.integers() | st.binary(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def fresh() -> Journal:
    return Journal.begin(now_ms=1_000, flow_max_ms=60_000, random_bytes=lambda size: bytes(range(size)))


def test_a_new_flow_has_an_id_a_seed_and_a_deadline() -> None:
    journal = fresh()
    assert journal.flow_id == bytes(range(16)).hex()
    assert journal.seed == bytes(range(16, 32))
    assert (journal.started_ms, journal.deadline_ms) == (1_000, 61_000)


@given(JOURNALS)
def test_a_journal_comes_back_as_it_was_packed(journal: Journal) -> None:
    assert Journal.from_map(unpack(pack(journal.to_map()))) == journal


@given(JOURNALS, st.dictionaries(st.from_regex(r"y-[a-z]{1,5}", fullmatch=True), JSON_VALUES, max_size=3))
def test_fields_of_a_newer_release_are_kept_and_written_back(journal: Journal, newer: dict[str, Any]) -> None:
    read = Journal.from_map(unpack(pack({**journal.to_map(), **newer})))
    read.legs += 1
    assert {name: read.to_map()[name] for name in newer} == newer


def test_the_form_at_rest_is_fixed_for_all_releases() -> None:
    """Neighbouring releases read it: if these names change, every running call is stranded."""
    journal = fresh()
    assert journal.to_map().keys() == {"flow", "seed", "start", "deadline", "legs", "rounds"}
    journal.pending["p"] = b"d"
    journal.record("a", b"d", {"result": {}})
    journal.steps["s"] = 1
    rest = journal.to_map()
    assert rest["pending"] == {"p": b"d"}
    assert rest["answers"] == {"a": [(b"d", {"result": {}})]}
    assert rest["steps"] == {"s": 1}


@given(
    JUNK
    | st.dictionaries(
        st.sampled_from(
            (*REQUIRED, "pending", "answers", "steps", "checkpoint", "logs", "trace"),
        ),
        JUNK,
    )
)
def test_junk_is_a_malformed_journal_and_nothing_else(junk: Any) -> None:
    rest = {**fresh().to_map(), **junk} if isinstance(junk, dict) else junk
    with contextlib.suppress(MalformedJournal):
        again = Journal.from_map(rest)
        assert Journal.from_map(again.to_map()) == again


@pytest.mark.parametrize(
    "part",
    [
        {"flow": 1},
        {"seed": "text"},
        {"start": True},
        {"deadline": 1.5},
        {"legs": None},
        {"rounds": "1"},
        {"pending": []},
        {"pending": {"k": "text"}},
        {"pending": {1: b"d"}},
        {"answers": {"k": [[b"d"]]}},
        {"answers": {"k": [[b"d", []]]}},
        {"answers": {"k": 5}},
        {"answers": {b"k": []}},
        {"answers": []},
        {"steps": [1]},
        {"steps": {1: 2}},
        {"checkpoint": 1},
        {"checkpoint": ["1", 2]},
        {"checkpoint": [1]},
        {"checkpoint": {"version": 1, "logs": 0}},
        {"progress": "1"},
        {"logs": None},
        {"trace": "text"},
    ],
    ids=str,
)
def test_a_part_of_another_type_is_malformed(part: dict[str, Any]) -> None:
    with pytest.raises(MalformedJournal):
        Journal.from_map({**fresh().to_map(), **part})


def test_anything_but_a_map_is_malformed_even_if_it_could_become_one() -> None:
    with pytest.raises(MalformedJournal):
        Journal.from_map(list(fresh().to_map().items()))  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_part_is_malformed(name: str) -> None:
    rest = fresh().to_map()
    del rest[name]
    with pytest.raises(MalformedJournal):
        Journal.from_map(rest)


def test_recording_an_answer_ends_the_wait_for_it_and_for_nothing_else() -> None:
    journal = fresh()
    journal.pending = {"a": b"new", "b": b"d"}
    journal.record("a", b"old", {"result": {}})
    assert journal.pending == {"a": b"new", "b": b"d"}
    journal.record("a", b"new", {"result": {"x": 1}})
    assert journal.pending == {"b": b"d"}
    assert journal.answers == {"a": {b"old": {"result": {}}, b"new": {"result": {"x": 1}}}}


def test_forgetting_an_answer_leaves_those_to_other_questions() -> None:
    journal = fresh()
    journal.record("a", b"old", {"result": {}})
    journal.record("a", b"new", {"result": {}})
    journal.forget("a", b"new")
    assert journal.answers == {"a": {b"old": {"result": {}}}}
    journal.forget("a", b"old")
    journal.forget("a", b"old")
    assert journal.answers == {}
