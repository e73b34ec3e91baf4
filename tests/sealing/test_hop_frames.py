"""A stream of frames is read as it was written, up to the place where somebody has touched it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import HopReason
from gateway.sealing.envelope import Sealer
from gateway.sealing.formats import HOP_FRAME
from gateway.sealing.hop import NO_BOOT, Head, HopContent, HopRefused, HopSealer, Process, Role
from gateway.sealing.hop_frames import (
    MAX_FRAME_BYTES,
    FrameKind,
    FrameReader,
    FrameWriter,
    StreamReason,
    StreamRefused,
)
from gateway.sealing.keyring import KeyRing
from tests.sealing.randomness import repeatable

AUDIENCE = "gateway"
URL = "http://10.0.0.7:8080"
ASKING = Process(Role.WORKER, b"a" * 16)
ASKED = Process(Role.REPLICA, b"b" * 16)
OTHER = Process(Role.REPLICA, b"o" * 16)
REQUEST = Head(ASKING, ASKED, b"n" * 16, 1_800_000_000_250)
ANOTHER = replace(REQUEST, nonce=b"m" * 16)
LIMIT = 1_000_000
PART_BYTES = MAX_FRAME_BYTES - 18 - 44

Body: TypeAlias = dict[str, Any]
BODIES: Sequence[Body] = ({"n": 1, "data": b"one"}, {"n": 2}, {"n": 3, "text": "the last"})

bodies = st.lists(
    st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(max_size=20) | st.binary(max_size=20)),
    min_size=1,
    max_size=5,
)


def make_sealer(last: str = "0a") -> Sealer:
    return Sealer(KeyRing.parse("00" * 31 + last), repeatable())


SEALER = make_sealer()


def frames_of(
    written: Sequence[Body], request: Head = REQUEST, sender: Process = ASKED, sealer: Sealer = SEALER
) -> list[bytes]:
    """Return the frames of a stream, each with its length, and one without content after each body but the last."""
    writer = FrameWriter(AUDIENCE, URL, request, sender)
    frames: list[bytes] = []
    for body in written[:-1]:
        frames += [writer.body(sealer, body, is_last=False), writer.alive(sealer)]
    return [*frames, writer.body(sealer, written[-1], is_last=True)]


class Reading:
    """Reads a stream as far as it opens."""

    def __init__(
        self,
        stream: bytes,
        request: Head = REQUEST,
        sealer: Sealer = SEALER,
        *,
        step: int = 0,
        audience: str = AUDIENCE,
        url: str = URL,
        max_bytes: int = LIMIT,
    ) -> None:
        self.bodies: list[Body] = []
        self.reason: HopReason | None = None
        self.reader = FrameReader(audience, url, request, max_bytes=max_bytes)
        try:
            for start in range(0, len(stream), step or len(stream) or 1):
                self.reader.feed(stream[start : start + (step or len(stream))])
                while (body := self.reader.next_body(sealer)) is not None:
                    self.bodies.append(body)
        except HopRefused as refused:
            self.reason = refused.reason

    @property
    def is_complete(self) -> bool:
        return self.reader.is_complete


@given(bodies, st.integers(1, 200))
def test_bodies_come_back_as_they_were_however_their_stream_arrives(written: list[Body], step: int) -> None:
    reading = Reading(b"".join(frames_of(written)), step=step)
    assert reading.bodies == written
    assert reading.is_complete
    assert reading.reader.boot == ASKED.boot


@pytest.mark.parametrize("size", [0, 1, PART_BYTES - 20, PART_BYTES, 3 * PART_BYTES, 900_000])
def test_a_body_of_any_size_is_cut_and_put_together_again(size: int) -> None:
    data = os.urandom(size)
    stream = b"".join(frames_of([{"data": data}, {"data": data}]))
    lengths = list(_lengths(stream))
    assert max(lengths) <= MAX_FRAME_BYTES
    assert len(lengths) == 3 + 2 * (size // PART_BYTES) or size < PART_BYTES
    reading = Reading(stream, step=10_000)
    assert reading.bodies == [{"data": data}] * 2


def _lengths(stream: bytes) -> Iterator[int]:
    while stream:
        length = int.from_bytes(stream[:4], "big")
        yield length
        stream = stream[4 + length :]


def test_a_body_over_the_limit_is_refused_before_all_of_it_has_arrived() -> None:
    frames = b"".join(frames_of([{"data": bytes(5 * PART_BYTES)}]))
    reading = Reading(frames[: 3 * MAX_FRAME_BYTES + 20], max_bytes=2 * PART_BYTES)
    assert (reading.reason, reading.bodies) == (HopReason.TOO_LARGE, [])
    assert Reading(frames, max_bytes=5 * PART_BYTES + 20).bodies


def test_several_bodies_may_have_more_than_the_limit_of_each() -> None:
    written = [{"data": bytes(1000)}] * 5
    assert Reading(b"".join(frames_of(written)), max_bytes=1010).bodies == written


Attack: TypeAlias = Callable[[list[bytes], list[bytes]], list[bytes]]
"""Takes the frames of two streams, and returns what the reader of the first one gets."""

places = st.integers(0, 4)


@st.composite
def attacks(draw: st.DrawFn) -> Attack:
    """Draw a change of the order of frames: they are left out, repeated, moved, or come from another stream."""
    place, other = draw(places), draw(places)
    changes: list[Attack] = [
        lambda frames, _: frames[:place] + frames[place + 1 :],
        lambda frames, _: frames[: place + 1] + frames[place:],
        lambda frames, _: [*frames[:place], frames[other], *frames[place + 1 :]],
        lambda frames, _: [*frames[:place], frames[other], *frames[place:]],
        lambda frames, strange: [*frames[:place], strange[other], *frames[place + 1 :]],
        lambda frames, strange: frames[:place] + strange[place:],
        lambda frames, strange: [*frames[:place], strange[other], *frames[place:]],
        lambda frames, _: frames[:place],
        lambda frames, _: frames[:place][::-1] + frames[place:],
    ]
    return draw(st.sampled_from(changes))


def strangers() -> list[list[bytes]]:
    """Return answers to another request, of another process, to another one, of another time, and with another key."""
    written = [{"n": -1}, {"n": -2}, {"n": -3}]
    return [
        frames_of(written, ANOTHER),
        frames_of(written, sender=OTHER),
        frames_of(written, replace(REQUEST, sender=OTHER)),
        frames_of(written, replace(REQUEST, time_ms=REQUEST.time_ms + 1)),
        frames_of(written, sealer=make_sealer("0b")),
    ]


@given(attacks(), st.sampled_from(strangers()))
def test_frames_that_are_moved_dropped_repeated_or_strange_end_the_stream(attack: Attack, strange: list[bytes]) -> None:
    whole = frames_of(BODIES)
    attacked = attack(whole, strange)
    reading = Reading(b"".join(attacked))
    untouched = next((n for n, pair in enumerate(zip(whole, attacked, strict=False)) if pair[0] != pair[1]), len(whole))
    untouched = min(untouched, len(attacked))
    assert reading.bodies == list(BODIES)[: (untouched + 1) // 2]
    assert reading.is_complete is (untouched == len(whole))
    assert (reading.reason is None) is (untouched == len(whole) or untouched == len(attacked))


def test_one_changed_bit_at_any_byte_never_opens() -> None:
    """Lengths, format, kinds, boot ids, key ids, nonces, ciphertexts and tags."""
    whole = b"".join(frames_of(BODIES[:2]))
    for place, bit in itertools.product(range(len(whole)), range(8)):
        stream = bytearray(whole)
        stream[place] ^= 1 << bit
        reading = Reading(bytes(stream))
        assert reading.bodies == list(BODIES)[: len(reading.bodies)]
        assert not reading.is_complete


@given(st.binary(max_size=300))
def test_garbage_is_never_a_body(garbage: bytes) -> None:
    reading = Reading(garbage)
    assert (reading.bodies, reading.is_complete) == ([], False)


@pytest.mark.parametrize("end", [0, 1, 3, 4, 30, -1])
def test_a_stream_that_is_cut_is_not_complete(end: int) -> None:
    stream = b"".join(frames_of(BODIES))
    reading = Reading(stream[:end])
    assert not reading.is_complete
    assert reading.reason is None


def test_whatever_follows_the_last_frame_is_ignored() -> None:
    stream = b"".join(frames_of(BODIES))
    reading = Reading(stream + b"garbage" * 10)
    assert (reading.bodies, reading.is_complete, reading.reason) == (list(BODIES), True, None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"url": "http://10.0.0.8:8080"}, HopReason.NOT_AUTHENTIC),
        ({"audience": "other"}, HopReason.NOT_AUTHENTIC),
        ({"request": replace(REQUEST, sender=Process(Role.REPLICA, ASKING.boot))}, HopReason.NOT_AUTHENTIC),
        ({"sealer": make_sealer("0b")}, HopReason.UNKNOWN_KEY),
    ],
    ids=["url", "audience", "role", "key"],
)
def test_a_stream_belongs_to_one_place_and_one_deployment(changes: dict[str, Any], reason: HopReason) -> None:
    reading = Reading(b"".join(frames_of(BODIES)), **changes)
    assert (reading.bodies, reading.reason) == ([], reason)


def test_a_request_that_is_sent_back_is_no_frame_and_a_frame_is_no_request() -> None:
    message = HopSealer(SEALER, AUDIENCE, URL).seal_stream_request(REQUEST, HopContent("ask", {}))
    for reflected in (message, len(message).to_bytes(4, "big") + message):
        assert Reading(reflected).bodies == []
    back = frames_of(BODIES, replace(REQUEST, sender=ASKED, receiver=ASKING), ASKING)
    assert Reading(b"".join(back)).reason is HopReason.OTHER_RECEIVER


def test_only_the_process_that_was_asked_answers_but_another_one_may_say_that_it_is_not() -> None:
    assert Reading(b"".join(frames_of(BODIES, sender=OTHER))).reason is HopReason.OTHER_RECEIVER
    refusal = FrameWriter(AUDIENCE, URL, REQUEST, OTHER).refusal(SEALER, StreamReason.OTHER_PROCESS)
    with pytest.raises(StreamRefused) as caught:
        Reading(refusal)
    assert (caught.value.reason, caught.value.boot) == (StreamReason.OTHER_PROCESS, OTHER.boot)


def test_where_no_process_is_named_none_answers_but_says_which_one_it_is() -> None:
    anyone = replace(REQUEST, receiver=Process(Role.REPLICA, NO_BOOT))
    assert Reading(b"".join(frames_of(BODIES, anyone)), anyone).reason is HopReason.OTHER_RECEIVER
    with pytest.raises(StreamRefused) as caught:
        Reading(FrameWriter(AUDIENCE, URL, anyone, ASKED).refusal(SEALER, StreamReason.OTHER_PROCESS), anyone)
    assert caught.value.boot == ASKED.boot


def test_frames_of_two_processes_do_not_mix() -> None:
    one, other = frames_of(BODIES), frames_of(BODIES, sender=OTHER)
    for place in range(1, len(one)):
        mixed = Reading(b"".join(one[:place] + other[place:]))
        assert (mixed.reason, mixed.is_complete) == (HopReason.OTHER_RECEIVER, False)


def test_a_refusal_of_another_request_is_none() -> None:
    refusal = FrameWriter(AUDIENCE, URL, ANOTHER, ASKED).refusal(SEALER, StreamReason.DRAINING)
    assert Reading(refusal).reason is HopReason.NOT_AUTHENTIC


def test_a_stream_survives_a_rotation_of_the_keys() -> None:
    old, new = "00" * 31 + "0a", "00" * 31 + "0b"
    before, after = (Sealer(KeyRing.parse(ring), repeatable()) for ring in (f"{old},{new}", f"{new},{old}"))
    writer = FrameWriter(AUDIENCE, URL, REQUEST, ASKED)
    reader = FrameReader(AUDIENCE, URL, REQUEST, max_bytes=LIMIT)
    reader.feed(writer.body(before, {"n": 1}, is_last=False))
    assert reader.next_body(after) == {"n": 1}
    reader.feed(writer.body(after, {"n": 2}, is_last=True))
    assert reader.next_body(before) == {"n": 2}


def test_a_frame_of_a_later_release_is_named_as_such() -> None:
    stream = bytearray(b"".join(frames_of(BODIES)))
    stream[4] = HOP_FRAME.reads + 1
    assert Reading(bytes(stream)).reason is HopReason.NEWER_SCHEMA


def test_the_format_does_not_drift() -> None:
    stream = frames_of([{"outcome": "taken"}], sealer=make_sealer())[0]
    assert stream[:22].hex() == "0000004d" + "0103" + ASKED.boot.hex()
    assert [kind.value for kind in FrameKind] == [1, 2, 3, 4, 5]
    assert [role.value for role in Role] == [1, 2]
