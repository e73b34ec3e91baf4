"""Catalogue cursors: the same for all callers, made only by us, and valid for one list."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.errors import RejectReason
from gateway.sealing import base64url
from gateway.sealing import list_cursor as cursor
from gateway.sealing.envelope import Rejected, Sealer
from gateway.sealing.keyring import KeyRing
from gateway.sealing.list_cursor import CursorMaker, ListPlace

OLD, NEW = "00" * 31 + "0a", "00" * 31 + "0b"
MAKER = CursorMaker(KeyRing.parse(OLD))
CURSOR = MAKER.make("tools/list", "weather")
RAW = base64url.decode(CURSOR.removeprefix("c1."))

any_text = st.text(st.characters())


def reason(presented: object, list_name: str = "tools/list", maker: CursorMaker = MAKER) -> RejectReason:
    with pytest.raises(Rejected) as caught:
        maker.read(list_name, presented)
    return caught.value.reason


@given(any_text, any_text)
@example("tools/list", "\ud800")
def test_a_cursor_continues_after_the_entry_it_was_made_for(list_name: str, last: str) -> None:
    made = MAKER.make(list_name, last)
    assert MAKER.read(list_name, made) == last
    assert CursorMaker(KeyRing.parse(OLD)).read(list_name, made) == last


@given(any_text, any_text)
def test_every_replica_makes_the_same_cursor(list_name: str, last: str) -> None:
    assert MAKER.make(list_name, last) == CursorMaker(KeyRing.parse(f"{OLD},{NEW}")).make(list_name, last)


def test_the_cursor_does_not_drift() -> None:
    """A change here rejects cursors from another release of a mixed fleet."""
    assert CURSOR == "c1.9E3yRbJn-ENIgu-RQYjZBMbm0-13ZWF0aGVy"


def test_the_cursor_is_key_id_then_a_mac_of_list_and_entry_then_the_entry() -> None:
    secret = KeyRing.parse(OLD).sealing_key
    key = hmac.digest(hmac.digest(bytes(32), secret.secret, "sha256"), b"sealed-gateway/cursor/v1\x01", "sha256")
    mac = hmac.new(key, b"\x00\x00\x00\x0atools/listweather", hashlib.sha256).digest()[:16]
    assert secret.key_id + mac + b"weather" == RAW


def test_a_cursor_of_another_list_does_not_open() -> None:
    for other in ("prompts/list", "tools/lis", "tools/listw", "", "TOOLS/LIST"):
        assert reason(CURSOR, other) is RejectReason.NOT_AUTHENTIC


@given(
    st.lists(st.text("ab\x00", max_size=4), min_size=2, max_size=2),
    st.lists(st.text("ab\x00", max_size=4), min_size=2, max_size=2),
)
def test_list_and_entry_never_run_into_each_other(one: list[str], other: list[str]) -> None:
    made, again = (base64url.decode(MAKER.make(*pair).removeprefix("c1."))[4:20] for pair in (one, other))
    assert (made == again) == (one == other)


def test_an_entry_cannot_be_exchanged() -> None:
    forged = "c1." + base64url.encode(RAW[:20] + b"winter!")
    assert reason(forged) is RejectReason.NOT_AUTHENTIC
    assert reason("c1." + base64url.encode(RAW[:20])) is RejectReason.NOT_AUTHENTIC


def test_the_first_key_makes_and_every_key_reads() -> None:
    before, during, after = (CursorMaker(KeyRing.parse(text)) for text in (OLD, f"{NEW},{OLD}", NEW))
    old, new = before.make("l", "x"), during.make("l", "x")
    assert old != new == after.make("l", "x")
    assert during.read("l", old) == during.read("l", new) == after.read("l", new) == "x"
    assert reason(old, "l", after) is RejectReason.UNKNOWN_KEY
    assert reason(new, "l", before) is RejectReason.UNKNOWN_KEY


@pytest.mark.parametrize(
    "presented",
    [
        None, 1, True, b"c1.", [], {}, "", "c1", "c1.", "c1.A", "c1.!!!!", "c1.AAAA", "c1.é", "c1.\ud800",
        "c1." + base64url.encode(RAW[:19]), CURSOR + "=", CURSOR + " ", " " + CURSOR, CURSOR.upper(),
        CURSOR.removeprefix("c1."), "s1." + CURSOR.removeprefix("c1."), "c2." + CURSOR.removeprefix("c1."),
    ],
)  # fmt: skip
def test_anything_without_the_form_of_a_cursor_is_malformed(presented: Any) -> None:
    assert reason(presented) is RejectReason.MALFORMED


def test_a_sealed_state_is_not_a_cursor_and_a_cursor_not_a_sealed_state() -> None:
    sealer = Sealer(KeyRing.parse(OLD), bytes)
    assert reason(sealer.seal(b"p", b"")) is RejectReason.MALFORMED
    with pytest.raises(Rejected):
        sealer.open(CURSOR, b"")


@given(st.text() | st.text("c1.AZaz09-_=").map("c1.".__add__) | st.binary(max_size=60).map(
    lambda raw: "c1." + base64url.encode(raw)
) | st.binary(max_size=60).map(lambda raw: "c1." + base64url.encode(RAW[:4] + raw)))  # fmt: skip
def test_junk_is_always_rejected(presented: str) -> None:
    assert reason(presented) in {RejectReason.MALFORMED, RejectReason.UNKNOWN_KEY, RejectReason.NOT_AUTHENTIC}


def test_the_mac_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(expected: bytes, presented: bytes) -> bool:
        compared.append((expected, presented))
        return False

    monkeypatch.setattr("gateway.sealing.list_cursor.hmac.compare_digest", compare)
    assert reason(CURSOR) is RejectReason.NOT_AUTHENTIC
    assert compared == [(RAW[4:20], RAW[4:20])]


@given(any_text, any_text, st.integers(0, 999_999_999), st.integers(0, 999_999_999))
@example("1.2", "3.4.5.x", 0, 0)
def test_a_place_survives_its_text(part: str, name: str, part_at: int, at: int) -> None:
    place = ListPlace(part, name, part_at, at)
    assert ListPlace.read(place.text) == place
    assert ListPlace.read(MAKER.read("l", MAKER.make("l", place.text))) == place


def test_the_text_of_a_place_does_not_drift() -> None:
    """A change here rejects cursors from another release of a mixed fleet."""
    assert ListPlace("time", "time__now", 1, 249).text == "1.249.4.timetime__now"
    assert ListPlace("", "echo", 0, 3).text == "0.3.0.echo"


@given(any_text | st.from_regex(r"[0-9.\-]{0,12}[a-z]{0,3}"))
def test_any_other_text_is_no_place(text: str) -> None:
    place = ListPlace.read(text)
    assert place is None or (place.part_at >= 0 and place.at >= 0 and text.endswith(place.part + place.name))


@pytest.mark.parametrize(
    "text", ["", "echo", "1.2.3", "1.2.9.one", "-1.0.1.one", "1.0.-1.one", "1.1.1", "9999999999.0.0.x"]
)
def test_a_text_without_the_form_of_a_place_is_none(text: str) -> None:
    assert ListPlace.read(text) is None


def test_keys_are_derived_once(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = CursorMaker(KeyRing.parse(f"{NEW},{OLD}"))
    monkeypatch.setattr(cursor, "HKDF", None)
    assert maker.read("l", maker.make("l", "x")) == "x"
