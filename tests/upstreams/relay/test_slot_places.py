"""The place in a slot: where a request of a task was about to be sent, so that another worker can join its call."""

from __future__ import annotations

import msgspec
import pytest

from gateway.protocol.upstream.asking import AskedRound
from gateway.sealing.packing import pack, unpack
from gateway.upstreams.slot import MalformedSlot, Slot

SENT = Slot(b"", sent=True)
PLACED = msgspec.structs.replace(SENT, place="h1.x")


def test_a_place_comes_back_as_it_was() -> None:
    for slot in (SENT, PLACED):
        assert Slot.from_map(unpack(pack(slot.to_map()))) == slot
    with pytest.raises(MalformedSlot):
        Slot.from_map({**SENT.to_map(), "place": b"h1.x"})


def test_a_request_that_was_about_to_be_sent_can_be_sent_again_only_to_a_place() -> None:
    assert not SENT.can_resend
    assert PLACED.can_resend


def test_a_round_that_is_asked_has_another_place() -> None:
    asked = PLACED.asked(AskedRound((), "h1.y"), is_held=True)
    assert asked.place is None, "the next request begins nothing"
    assert asked.can_resend
