"""The wire-independent task: its transitions, its retention, and the names of its questions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.journal import Journal
from gateway.tasks import stored_journal as rest
from gateway.tasks.model import Phase, Retention
from gateway.tasks.question_keys import wire_keys
from gateway.tasks.retention import expires_ms, poll_interval_ms

MAX = 1_000_000


def test_a_task_that_is_done_or_cancelled_has_ended() -> None:
    assert [phase for phase in Phase if phase.ended] == [Phase.DONE, Phase.CANCELLED]


@pytest.mark.parametrize(
    ("retention", "ended", "expires"),
    [
        (Retention("created", 500), None, 1_500),
        (Retention("created", 500), 1_200, 1_500),
        (Retention("ended", 500), None, 1_000 + MAX),
        (Retention("ended", 500), 1_200, 1_700),
        (Retention("created", 2 * MAX), None, 1_000 + MAX),
        (Retention("ended", 2 * MAX), 1_200, 1_200 + MAX),
    ],
)
def test_a_task_expires_by_its_retention_and_no_later_than_is_granted(
    retention: Retention, ended: int | None, expires: int
) -> None:
    assert expires_ms(retention, 1_000, ended, MAX) == expires


@given(younger=st.integers(0, 10**9), years=st.integers(0, 10**9))
def test_the_older_a_task_the_rarer_it_should_be_asked_about(younger: int, years: int) -> None:
    assert 500 <= poll_interval_ms(younger) <= poll_interval_ms(younger + years) <= 10_000


def test_the_interval_grows_with_age() -> None:
    assert [poll_interval_ms(age) for age in (0, 5_000, 20_000, 10**7)] == [500, 500, 2_000, 10_000]


def test_a_key_asked_again_is_numbered_and_never_repeats() -> None:
    asked: dict[str, int] = {}
    seen: list[str] = []
    for keys in (["a", "b"], ["a"], ["a", "b"]):
        names = wire_keys(keys, asked)
        seen += names.values()
        asked = {**asked, **{key: asked.get(key, 0) + 1 for key in keys}}
    assert seen == ["a", "b", "a~2", "a~3", "b~2"]


keys = st.text(min_size=1, max_size=5)
values = st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=2), max_leaves=3)
digests = st.binary(min_size=12, max_size=12)
answers = st.dictionaries(st.just("result"), values, min_size=1)


@given(
    head=st.dictionaries(st.sampled_from(["flow", "seed", "pending", "later"]), values),
    answered=st.dictionaries(keys, st.lists(st.tuples(digests, answers), min_size=1, max_size=2), max_size=3),
    steps=st.dictionaries(keys, values, max_size=3),
    checkpoint=st.none() | st.fixed_dictionaries({"version": st.integers(), "value": values}),
)
def test_a_journal_comes_back_whole_from_its_parts(
    head: dict[str, object],
    answered: dict[str, list[tuple[bytes, object]]],
    steps: dict[str, object],
    checkpoint: dict[str, object] | None,
) -> None:
    journal: dict[str, object] = dict(head)
    journal.update({name: part for name, part in (("answers", answered), ("steps", steps)) if part})
    if checkpoint is not None:
        journal["checkpoint"] = checkpoint
    fields = rest.split(journal)
    assert all(rest.is_journal(name) for name in fields)
    assert rest.join({**fields, "phase": "running", "n:key": 1}) == journal


def test_an_answer_that_came_meanwhile_is_recorded_as_a_leg_would_have() -> None:
    entropy = iter([bytes(32)])
    journal = Journal.begin(now_ms=1, flow_max_ms=1, random_bytes=lambda size: next(entropy)[:size])
    journal.pending = {"k": b"new", "other": b"o"}
    journal.answers = {"k": {b"old": {"result": 1}}}
    stored = journal.to_map()
    before = repr(stored)
    changed = dict(stored)
    rest.record(changed, "k", b"new", {"result": 2})
    rest.record(changed, "k", b"new", {"result": 3})
    assert repr(stored) == before
    journal.record("k", b"new", {"result": 3})
    assert Journal.from_map(changed) == journal
    rest.record(changed, "other", b"o", {"result": 4})
    assert "pending" not in changed
