"""The slot comes out of a journal as it went in, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.upstream.asking import AskedQuestion
from gateway.sealing.packing import pack, unpack
from gateway.upstreams.client.hearing import Hearing
from gateway.upstreams.client.stateless import HttpJob
from gateway.upstreams.credentials import _HeldToken
from gateway.upstreams.ports import UpstreamCaller
from gateway.upstreams.slot import MalformedSlot, Slot

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)
QUESTIONS = st.builds(AskedQuestion, TEXT, TEXT, TEXT, st.dictionaries(TEXT, JSON, max_size=3))
SLOTS = st.builds(
    Slot,
    identity=st.binary(max_size=16),
    round=st.integers(0, 100),
    state=st.one_of(st.none(), TEXT),
    questions=st.lists(QUESTIONS, max_size=3).map(tuple),
    spent_ms=st.integers(0, 10**9),
    sent=st.booleans(),
    token=st.one_of(st.none(), TEXT),
    is_held=st.booleans(),
)


@given(SLOTS)
def test_a_slot_comes_back_as_it_was(slot: Slot) -> None:
    assert Slot.from_map(unpack(pack(slot.to_map()))) == slot


def test_no_state_is_not_an_empty_state() -> None:
    assert "state" not in Slot(b"").to_map()
    assert Slot(b"", state="").to_map()["state"] == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"era": "another"},
        {"era": None},
        {"round": "1"},
        {"round": True},
        {"upstream": "text"},
        {"state": None},
        {"asked": [["a"]]},
        {"asked": [["a", "a", "m", []]]},
        {"asked": 7},
        {"spent": 1.5},
        {"sent": 1},
        {"token": b"x"},
    ],
)
def test_a_slot_that_another_release_wrote_is_not_misread(wrong: dict[str, Any]) -> None:
    with pytest.raises(MalformedSlot):
        Slot.from_map({**Slot(b"").to_map(), **wrong})


def test_no_text_of_a_request_contains_what_only_its_upstream_may_see() -> None:
    secret = "hunter2"
    caller = UpstreamCaller(headers={"x-token": secret}, token=secret)
    headers, hearing = [(b"authorization", secret.encode())], Hearing(1, None, False, None, None)
    job = HttpJob(1, "tools/call", headers, secret.encode(), caller, 0.0, 1, False, hearing)
    for value in (caller, Slot(b"", state=secret, token=secret), _HeldToken(secret, 0.0, 1.0), job):
        assert secret not in repr(value)
