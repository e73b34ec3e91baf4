"""Messages between processes: each opens once, at the right place and time; nothing else ever opens."""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import HopReason
from gateway.sealing.binding import hop_binding, request_id_binding, session_binding
from gateway.sealing.envelope import Sealer
from gateway.sealing.formats import HOP
from gateway.sealing.hop import (
    CLOCK_SECONDS,
    EVERYONE,
    GENERATION_SECONDS,
    MAX_NONCES,
    NO_BOOT,
    NONCE_SECONDS,
    Head,
    HopContent,
    HopRefused,
    HopSealer,
    Process,
    Role,
    SeenNonces,
    message_bytes,
)
from gateway.sealing.keyring import KeyRing
from gateway.sealing.packing import pack
from tests.sealing.randomness import repeatable

NOW = 1_800_000_000.25
NOW_MS = 1_800_000_000_250
AUDIENCE = "gateway"
URL = "http://10.0.0.7:8080"
LIMIT = 65_536
HEAD_BYTES = 59

ASKING = Process(Role.REPLICA, b"a" * 16)
ASKED = Process(Role.REPLICA, b"b" * 16)
STRANGER = Process(Role.REPLICA, b"s" * 16)
REQUEST = Head(ASKING, ASKED, b"n" * 16, NOW_MS)
REPLY = Head(ASKED, ASKING, b"r" * 16, NOW_MS + 3)
CONTENT = HopContent("answer", {"call": b"c" * 16, "text": "a private answer", "list": [1, None, 2**70, True]})
TAKEN = HopContent("answer", {"outcome": "taken"})

REQUEST_TEXT = "010101" + "61" * 16 + "62" * 16 + "6e" * 16 + "000001a3185c50fa"


def make_sealer(last: str = "0a") -> Sealer:
    return Sealer(KeyRing.parse("00" * 31 + last), repeatable())


SEALER = make_sealer()
HOPS = HopSealer(SEALER, AUDIENCE, URL)

texts = st.text(max_size=20)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
contents = st.builds(HopContent, texts, st.dictionaries(texts, values, max_size=4))
boots = st.binary(min_size=16, max_size=16).filter(lambda boot: boot != NO_BOOT)
heads = st.builds(
    Head,
    st.builds(Process, st.sampled_from(Role), boots),
    st.builds(Process, st.sampled_from(Role), boots),
    st.binary(min_size=16, max_size=16),
    st.integers(NOW_MS - 30_000, NOW_MS + 30_000),
)


def opened(
    message: bytes, hops: HopSealer = HOPS, receiver: Process = ASKED, now: float = NOW
) -> tuple[Head, HopContent]:
    return hops.open_request(message, receiver, now=now, max_bytes=LIMIT)


def refused(message: bytes, hops: HopSealer = HOPS, receiver: Process = ASKED, now: float = NOW) -> HopReason:
    with pytest.raises(HopRefused) as caught:
        opened(message, hops, receiver, now)
    assert caught.value.__cause__ is caught.value.__context__ is None
    return caught.value.reason


def reply_refused(message: bytes, hops: HopSealer = HOPS, request: Head = REQUEST) -> HopReason:
    with pytest.raises(HopRefused) as caught:
        hops.open_reply(message, request, max_bytes=LIMIT)
    return caught.value.reason


def request() -> bytes:
    return HOPS.seal_request(REQUEST, CONTENT)


def reply() -> bytes:
    return HOPS.seal_reply(REPLY, TAKEN, REQUEST)


@given(heads, contents, contents)
def test_a_request_and_its_reply_come_back_as_they_were(head: Head, asked: HopContent, answered: HopContent) -> None:
    assert opened(HOPS.seal_request(head, asked), receiver=head.receiver) == (head, asked)
    back = Head(head.receiver, head.sender, bytes(16), 0)
    message = HOPS.seal_reply(back, answered, head)
    assert HOPS.open_reply(message, head, max_bytes=LIMIT) == answered


def test_nothing_that_is_sealed_can_be_read_on_the_way() -> None:
    message = request()
    assert b"private" not in message
    assert b"call" not in message
    assert URL.encode() not in message


def test_a_message_is_as_long_as_said() -> None:
    plaintext = pack({"v": HOP.writes, "kind": CONTENT.kind, "body": CONTENT.body})
    assert len(request()) == message_bytes(len(plaintext))


def test_the_format_does_not_drift() -> None:
    """Fixed key, randomness and content give exactly these bytes: a change here breaks a mixed fleet."""
    message = HopSealer(make_sealer(), AUDIENCE, URL).seal_request(REQUEST, TAKEN)
    assert message[:HEAD_BYTES].hex() == REQUEST_TEXT
    assert message[HEAD_BYTES:].startswith(b"s1.")
    assert hashlib.sha256(message).hexdigest() == "d3e385740252b6bcce9a1faf3e983b4a3c0cefa5a8c609a323acdc1274fbb65b"


@pytest.mark.parametrize("message", [request(), reply()], ids=["request", "reply"])
def test_one_changed_bit_at_any_byte_never_opens(message: bytes) -> None:
    """Format, roles, boot ids, nonce, time, key id, the token's own nonce, ciphertext and tag."""
    for position, bit in itertools.product(range(len(message)), range(8)):
        changed = bytearray(message)
        changed[position] ^= 1 << bit
        refused(bytes(changed))
        reply_refused(bytes(changed))


@pytest.mark.parametrize(
    ("region", "reason"),
    [
        (0, HopReason.NEWER_SCHEMA),
        (1, HopReason.OTHER_RECEIVER),
        (2, HopReason.OTHER_RECEIVER),
        (3, HopReason.NOT_AUTHENTIC),
        (19, HopReason.OTHER_RECEIVER),
        (35, HopReason.NOT_AUTHENTIC),
        (51, HopReason.STALE),
        (58, HopReason.NOT_AUTHENTIC),
        (59, HopReason.MALFORMED),
        (62, HopReason.UNKNOWN_KEY),
        (80, HopReason.NOT_AUTHENTIC),
        (-2, HopReason.NOT_AUTHENTIC),
    ],
    ids=[
        "format",
        "sender",
        "receiver",
        "sender_boot",
        "receiver_boot",
        "nonce",
        "year",
        "millisecond",
        "label",
        "key",
        "token_nonce",
        "tag",
    ],
)
def test_a_changed_region_is_refused_for_what_it_is(region: int, reason: HopReason) -> None:
    changed = bytearray(request())
    in_token = region >= HEAD_BYTES or region < 0
    changed[region] = ord("A" if changed[region] != ord("A") else "B") if in_token else changed[region] ^ 2
    assert refused(bytes(changed)) is reason


@given(st.integers(0, 400), st.integers(0, 400), st.binary(max_size=40))
def test_a_message_cut_spliced_or_lengthened_never_opens(start: int, end: int, filling: bytes) -> None:
    for message in (request(), reply()):
        changed = message[:start] + filling + message[start + end :]
        if changed != message:
            refused(changed)
            reply_refused(changed)


@given(st.binary(max_size=300))
def test_anything_at_all_is_only_ever_refused(garbage: bytes) -> None:
    refused(garbage)
    reply_refused(garbage)
    refused(request()[:HEAD_BYTES] + garbage)


def test_a_message_for_another_process_does_not_open() -> None:
    message = request()
    assert refused(message, receiver=STRANGER) is HopReason.OTHER_RECEIVER
    assert refused(message, receiver=ASKING) is HopReason.OTHER_RECEIVER
    for url in ("", "http://10.0.0.8:8080", URL + "/", "https://10.0.0.7:8080"):
        assert refused(message, HopSealer(SEALER, AUDIENCE, url)) is HopReason.NOT_AUTHENTIC
        assert reply_refused(reply(), HopSealer(SEALER, AUDIENCE, url)) is HopReason.NOT_AUTHENTIC


def test_a_message_of_another_deployment_or_key_does_not_open() -> None:
    assert refused(request(), HopSealer(SEALER, "gateway2", URL)) is HopReason.NOT_AUTHENTIC
    assert refused(request(), HopSealer(make_sealer("0b"), AUDIENCE, URL)) is HopReason.UNKNOWN_KEY
    assert reply_refused(reply(), HopSealer(SEALER, "gateway2", URL)) is HopReason.NOT_AUTHENTIC
    assert reply_refused(reply(), HopSealer(make_sealer("0b"), AUDIENCE, URL)) is HopReason.UNKNOWN_KEY


def test_a_request_to_a_process_whose_boot_id_is_not_known_opens_at_its_url_alone() -> None:
    head = replace(REQUEST, receiver=Process(Role.REPLICA, NO_BOOT))
    message = HOPS.seal_request(head, CONTENT)
    assert opened(message, receiver=ASKED) == opened(message, receiver=STRANGER) == (head, CONTENT)
    assert refused(message, HopSealer(SEALER, AUDIENCE, "http://other:8080")) is HopReason.NOT_AUTHENTIC
    answer = HOPS.seal_reply(Head(STRANGER, ASKING, b"r" * 16, NOW_MS), TAKEN, head)
    assert HOPS.open_reply(answer, head, max_bytes=LIMIT) == TAKEN


def test_a_message_to_everyone_opens_at_every_process_of_the_deployment_whatever_its_url() -> None:
    head = replace(REQUEST, receiver=Process(Role.REPLICA, EVERYONE))
    message = HopSealer(SEALER, AUDIENCE, "").seal_request(head, CONTENT)
    other = HopSealer(SEALER, AUDIENCE, "http://other:8080")
    assert opened(message) == opened(message, other, STRANGER) == (head, CONTENT)
    assert refused(message, HopSealer(SEALER, "gateway2", URL)) is HopReason.NOT_AUTHENTIC
    assert refused(message, HopSealer(make_sealer("0b"), AUDIENCE, URL)) is HopReason.UNKNOWN_KEY
    assert refused(message, now=NOW + CLOCK_SECONDS + 1) is HopReason.STALE


def test_a_message_to_one_process_cannot_be_made_one_to_everyone_nor_the_reverse() -> None:
    for boot in (ASKED.boot, NO_BOOT):
        to_one = bytearray(HOPS.seal_request(replace(REQUEST, receiver=Process(Role.REPLICA, boot)), CONTENT))
        to_one[19:35] = EVERYONE
        assert refused(bytes(to_one)) is HopReason.NOT_AUTHENTIC
        to_all = bytearray(HOPS.seal_request(replace(REQUEST, receiver=Process(Role.REPLICA, EVERYONE)), CONTENT))
        to_all[19:35] = boot
        assert refused(bytes(to_all)) is HopReason.NOT_AUTHENTIC


def test_a_boot_id_cannot_be_taken_out_or_put_in_afterwards() -> None:
    message = bytearray(request())
    message[19:35] = NO_BOOT
    assert refused(bytes(message)) is HopReason.NOT_AUTHENTIC
    message = bytearray(HOPS.seal_request(replace(REQUEST, receiver=Process(Role.REPLICA, NO_BOOT)), CONTENT))
    message[19:35] = ASKED.boot
    assert refused(bytes(message)) is HopReason.NOT_AUTHENTIC


def test_a_message_that_is_sent_back_is_neither_request_nor_reply() -> None:
    """The head names the sender. A rewritten head would fit, but the message still has the other direction."""
    assert refused(request(), receiver=ASKING) is HopReason.OTHER_RECEIVER
    assert reply_refused(request()) is HopReason.OTHER_RECEIVER
    turned = HOPS.seal_request(Head(ASKED, ASKING, b"n" * 16, NOW_MS), TAKEN)
    assert reply_refused(turned) is HopReason.NOT_AUTHENTIC
    assert refused(reply(), receiver=ASKING) is HopReason.NOT_AUTHENTIC
    assert refused(HOPS.seal_reply(REQUEST, TAKEN, replace(REPLY, nonce=b""))) is HopReason.NOT_AUTHENTIC


def test_a_reply_answers_its_own_request_alone() -> None:
    message = reply()
    assert HOPS.open_reply(message, REQUEST, max_bytes=LIMIT) == TAKEN
    assert reply_refused(message, request=replace(REQUEST, nonce=b"m" * 16)) is HopReason.NOT_AUTHENTIC
    assert reply_refused(message, request=replace(REQUEST, sender=STRANGER)) is HopReason.OTHER_RECEIVER
    assert reply_refused(message, request=replace(REQUEST, receiver=STRANGER)) is HopReason.OTHER_RECEIVER


@pytest.mark.parametrize("drift_ms", [-30_000, -29_999, 0, 30_000])
def test_clocks_may_differ_by_thirty_seconds(drift_ms: int) -> None:
    message = HOPS.seal_request(replace(REQUEST, time_ms=NOW_MS + drift_ms), CONTENT)
    assert opened(message)[1] == CONTENT


@pytest.mark.parametrize("drift_ms", [-NOW_MS, -3_600_000, -30_001, 30_001, 3_600_000, 2**64 - 1 - NOW_MS])
def test_a_request_of_another_time_is_stale(drift_ms: int) -> None:
    message = HOPS.seal_request(replace(REQUEST, time_ms=NOW_MS + drift_ms), CONTENT)
    assert refused(message) is HopReason.STALE


def test_a_message_that_is_too_long_is_refused_before_it_is_decoded() -> None:
    for open_it in (
        lambda message: HOPS.open_request(message, ASKED, now=NOW, max_bytes=len(request()) - 1),
        lambda message: HOPS.open_reply(message, REQUEST, max_bytes=len(reply()) - 1),
    ):
        with pytest.raises(HopRefused, match="too_large"):
            open_it(request())
    assert HOPS.open_request(request(), ASKED, now=NOW, max_bytes=len(request()))[1] == CONTENT


def test_nothing_else_that_we_seal_is_a_message() -> None:
    head = request()[:HEAD_BYTES]
    plaintext = pack({"v": HOP.writes, "kind": "answer", "body": {}})
    for aad in (session_binding(AUDIENCE, None), request_id_binding(AUDIENCE, None), b""):
        assert refused(head + SEALER.seal(plaintext, aad).encode()) is HopReason.NOT_AUTHENTIC


@pytest.mark.parametrize(
    "payload",
    [
        None,
        [],
        7,
        {},
        {"v": HOP.writes},
        {"v": HOP.writes, "kind": 1, "body": {}},
        {"v": HOP.writes, "kind": "answer", "body": []},
    ],
    ids=repr,
)
def test_anything_but_a_map_of_ours_inside_is_malformed(payload: object) -> None:
    assert refused(_with_payload(payload)) is HopReason.MALFORMED


def test_a_higher_schema_is_refused_and_unknown_fields_do_not_matter() -> None:
    payload = {"v": HOP.writes, "kind": "answer", "body": {"later": 1}, "later": [b""]}
    assert opened(_with_payload(payload))[1] == HopContent("answer", {"later": 1})
    assert refused(_with_payload({**payload, "v": HOP.reads + 1})) is HopReason.NEWER_SCHEMA


def _with_payload(payload: object) -> bytes:
    sender, receiver = (("replica", process.boot) for process in (ASKING, ASKED))
    aad = hop_binding(AUDIENCE, "request", sender, receiver, URL, nonce=REQUEST.nonce, time_ms=NOW_MS)
    return request()[:HEAD_BYTES] + SEALER.seal(pack(payload), aad).encode()


@pytest.mark.parametrize(
    "head",
    [
        replace(REQUEST, nonce=b""),
        replace(REQUEST, sender=Process(Role.REPLICA, b"a" * 15)),
        replace(REQUEST, receiver=Process(Role.REPLICA, b"a" * 17)),
    ],
)
def test_a_head_of_another_size_is_not_sealed(head: Head) -> None:
    with pytest.raises(ValueError, match="16"):
        HOPS.seal_request(head, CONTENT)


def test_a_nonce_counts_once_for_as_long_as_its_message_could_be_accepted() -> None:
    """A message from a clock 30 s ahead is accepted for a minute."""
    seen = SeenNonces()
    seen.add(b"n", NOW)
    for later in (0, CLOCK_SECONDS, NONCE_SECONDS):
        with pytest.raises(HopRefused, match="replayed"):
            seen.add(b"n", NOW + later)
    assert NONCE_SECONDS == 60
    seen.add(b"n", NOW + NONCE_SECONDS + 0.001)
    assert len(seen) == 1


def test_no_more_nonces_are_remembered_than_may_and_the_newest_is_refused() -> None:
    seen = SeenNonces(limit=3)
    for number in range(3):
        seen.add(bytes([number]), NOW + number)
    with pytest.raises(HopRefused, match="overloaded"):
        seen.add(b"x", NOW + 3)
    with pytest.raises(HopRefused, match="replayed"):
        seen.add(b"\x00", NOW + 3)
    seen.add(b"x", NOW + 2 + 60.5)
    assert len(seen) == 1


def test_a_million_nonces_a_minute_are_remembered_in_less_than_100_bytes_each() -> None:
    seconds = NONCE_SECONDS + GENERATION_SECONDS
    assert 1_000_000 * seconds // NONCE_SECONDS == MAX_NONCES
    seen = SeenNonces()
    of_one = 1_000_000 * GENERATION_SECONDS // NONCE_SECONDS
    for number in range(of_one):
        seen.add(os.urandom(16), NOW + number * GENERATION_SECONDS / of_one)
    (generation,) = seen._generations
    used = sys.getsizeof(generation.nonces) + sum(map(sys.getsizeof, generation.nonces))
    assert used / of_one < 100
    seen.add(b"n", NOW + GENERATION_SECONDS)
    assert len(seen._generations) == 2


def test_a_clock_that_is_set_back_forgets_no_nonce() -> None:
    seen = SeenNonces()
    seen.add(b"first", NOW)
    seen.add(b"later", NOW + 30)
    seen.add(b"back", NOW - 30)
    for nonce in (b"first", b"later", b"back"):
        with pytest.raises(HopRefused, match="replayed"):
            seen.add(nonce, NOW + 60)


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(-5, 90)), max_size=60))
def test_no_message_is_taken_twice_however_the_clock_moves(events: list[tuple[int, float]]) -> None:
    """Each event is a repeated message and the seconds by which the receiver's clock has moved by then."""
    seen, now, taken = SeenNonces(), NOW, set[int]()
    sent = {number: HOPS.seal_request(replace(REQUEST, nonce=bytes([number]) * 16), CONTENT) for number in range(6)}
    for number, seconds in events:
        now += seconds
        try:
            head, _ = opened(sent[number], now=now)
            seen.add(head.nonce, now)
        except HopRefused:
            continue
        assert number not in taken
        taken.add(number)


def test_two_processes_never_make_the_same_message() -> None:
    one, other = (HopSealer(Sealer(KeyRing.parse("00" * 31 + "0a"), os.urandom), AUDIENCE, URL) for _ in range(2))
    assert one.seal_request(REQUEST, CONTENT) != other.seal_request(REQUEST, CONTENT)
