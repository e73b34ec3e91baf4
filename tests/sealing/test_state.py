"""The sealed journal: everything in it comes back, in time, for this release and its neighbours."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RejectReason
from gateway.sealing.envelope import Rejected, Sealer
from gateway.sealing.formats import REQUEST_STATE
from gateway.sealing.keyring import KeyRing
from gateway.sealing.packing import pack, unpack
from gateway.sealing.state import OpenedState, StateTooLarge, open_state, seal_state
from tests.sealing.randomness import repeatable

AAD = b"what the state is bound to"
NOW = 1_800_000_000
LIMIT = 65_536
RING = KeyRing.parse("00" * 31 + "0a")

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
journals = st.dictionaries(st.text(max_size=4), json_values, max_size=5)


def make_sealer() -> Sealer:
    return Sealer(RING, repeatable())


SEALER = make_sealer()


def sealed(journal: dict[str, Any], expires_at: float = NOW + 3600) -> str:
    return seal_state(SEALER, journal, aad=AAD, now=NOW, expires_at=expires_at, max_bytes=LIMIT)


def opened(token: object, now: float = NOW, aad: bytes = AAD, max_bytes: int = LIMIT) -> OpenedState:
    return open_state(SEALER, token, aad=aad, now=now, max_bytes=max_bytes)


def reason(token: object, now: float = NOW, aad: bytes = AAD, max_bytes: int = LIMIT) -> RejectReason:
    with pytest.raises(Rejected) as caught:
        opened(token, now, aad, max_bytes)
    return caught.value.reason


def with_payload(payload: object) -> str:
    return SEALER.seal(pack(payload), AAD)


@given(journals)
def test_every_journal_comes_back_as_it_was(journal: dict[str, Any]) -> None:
    state = opened(sealed(journal))
    assert state == (journal, RING.sealing_key.key_id)
    assert repr(state.journal) == repr(journal)


@given(json_values)
def test_every_value_packs_and_unpacks_to_the_same_value_and_type(value: Any) -> None:
    assert repr(unpack(pack(value))) == repr(value)


def test_the_state_does_not_drift() -> None:
    """Fixed key, randomness, times and journal give exactly this text: a change here breaks a mixed fleet."""
    token = seal_state(
        make_sealer(),
        {"answers": {"resolution": {"resolution": "Duplicate"}}, "big": 2**64, "seed": b"\x00\xff"},
        aad=AAD,
        now=float(NOW),
        expires_at=NOW + 3600.5,
        max_bytes=LIMIT,
    )
    assert token == (
        "s1.9E3yRV_s62b_yG842VJ4bGuGsnP_NPzhnWuATgtYoTsVuYOl_vQN7i_qVm0OM6M4F4MXRYtNu135dGuAfXWLqum"
        "tMu7eIgo74D9wxi64fGgJ9K6VzCCAkyarSnu-M-E4bMKbYQfNz2q1g38pIbb7-AfrrxRjrJEYXThgHZXaI84NkEP6S"
        "rxeb6FZ6FWVdMPF"
    )


def test_inside_is_a_map_of_schema_times_and_journal() -> None:
    plaintext = SEALER.open(sealed({"a": 1}, NOW + 60), AAD).plaintext
    assert msgspec.msgpack.decode(plaintext) == {"v": REQUEST_STATE.writes, "iat": NOW, "exp": NOW + 60, "j": {"a": 1}}


def test_text_and_bytes_stay_apart() -> None:
    journal = {"text": "abc", "bytes": b"abc", "nested": [b"", ""]}
    assert opened(sealed(journal)).journal == journal


@pytest.mark.parametrize(
    "number",
    [2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**64 + 1, -(2**63), -(2**63) - 1, 2**127, -(2**127), 255 - 2**72, 10**20_000],
    ids=lambda number: f"{number.bit_length()} bits",
)
def test_integers_of_any_size_come_back_exactly_at_any_depth(number: int) -> None:
    """Also beyond the 4300 decimal digits that the interpreter writes."""
    assert opened(sealed({"n": [{"m": number}, True]})).journal == {"n": [{"m": number}, True]}
    assert opened(sealed({"n": number, "t": (number, 1)})).journal == {"n": number, "t": [number, 1]}


def test_fields_of_the_journal_that_nobody_knows_are_kept_and_sealed_again() -> None:
    from_a_newer_release = {"answers": {}, "added_later": {"deep": [1, b"\x00"]}, "flag": None}
    first = opened(sealed(from_a_newer_release)).journal
    assert opened(sealed(first)).journal == from_a_newer_release


@pytest.mark.parametrize("expires_at", [NOW + 60, NOW + 60.0, NOW + 59.5])
def test_a_state_is_good_until_just_before_its_expiry_and_expired_exactly_at_it(expires_at: float) -> None:
    token = sealed({"a": 1}, expires_at)
    assert opened(token, math.nextafter(expires_at, 0)).journal == {"a": 1}
    assert reason(token, expires_at) is RejectReason.EXPIRED
    assert reason(token, expires_at + 1e9) is RejectReason.EXPIRED


def test_a_state_without_a_comparable_expiry_never_counts_as_alive() -> None:
    assert reason(sealed({}, math.nan)) is RejectReason.EXPIRED


@pytest.mark.parametrize(
    "payload",
    [
        None,
        [],
        "text",
        {},
        {"v": "1", "exp": NOW + 1, "j": {}},
        {"v": True, "exp": NOW + 1, "j": {}},
        {"v": 1.0, "exp": NOW + 1, "j": {}},
        {"exp": NOW + 1, "j": {}},
        {"v": REQUEST_STATE.writes, "j": {}},
        {"v": REQUEST_STATE.writes, "exp": None, "j": {}},
        {"v": REQUEST_STATE.writes, "exp": True, "j": {}},
        {"v": REQUEST_STATE.writes, "exp": str(NOW + 1), "j": {}},
        {"v": REQUEST_STATE.writes, "exp": NOW + 1},
        {"v": REQUEST_STATE.writes, "exp": NOW + 1, "j": None},
        {"v": REQUEST_STATE.writes, "exp": NOW + 1, "j": [1]},
    ],
    ids=repr,
)
def test_a_payload_of_another_shape_is_malformed(payload: object) -> None:
    assert reason(with_payload(payload)) is RejectReason.MALFORMED


@pytest.mark.parametrize(
    "plaintext",
    [
        b"",
        b"\xc1",
        b"\x81\xa1v",
        b"\xa1\xff",
        b"\x81\xa1v\x01\x00",
        b"\x81\xa1v\xd4\x05\x00",
        b"\x91" * 50_000 + b"\xc0",
    ],
    ids=["empty", "invalid", "cut", "not utf-8", "trailing", "unknown extension", "too deep"],
)
def test_a_plaintext_that_is_not_message_pack_is_malformed(plaintext: bytes) -> None:
    assert reason(SEALER.seal(plaintext, AAD), max_bytes=200_000) is RejectReason.MALFORMED


@pytest.mark.parametrize("data", [b"\xd4\x05\x00", b"\x81\x81\x01\x01\x01"], ids=["extension", "map as a key"])
def test_data_that_pack_never_makes_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a packed value|unknown extension 5"):
        unpack(data)


@given(st.binary(max_size=60))
def test_unpacking_arbitrary_bytes_gives_a_value_or_a_value_error(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        unpack(data)


def test_a_state_over_the_cap_is_refused_with_its_size_and_is_not_sealed() -> None:
    exact = len(sealed({"a": "x" * 1000}))
    journal = {"a": "x" * 1000}
    token = seal_state(SEALER, journal, aad=AAD, now=NOW, expires_at=NOW + 3600, max_bytes=exact)
    assert len(token) == exact

    def no_randomness(size: int) -> bytes:
        raise AssertionError(size)

    with pytest.raises(StateTooLarge) as caught:
        seal_state(Sealer(RING, no_randomness), journal, aad=AAD, now=NOW, expires_at=NOW + 3600, max_bytes=exact - 1)
    assert (caught.value.size, caught.value.limit) == (exact, exact - 1)
    assert str(caught.value) == f"The state of this call takes {exact} bytes; the limit is {exact - 1}"


def test_a_presented_state_over_the_cap_is_too_large() -> None:
    token = sealed({"a": "x" * 1000})
    assert opened(token, max_bytes=len(token)).journal == {"a": "x" * 1000}
    assert reason(token, max_bytes=len(token) - 1) is RejectReason.TOO_LARGE


def test_a_state_bound_to_something_else_is_not_authentic_even_when_expired() -> None:
    """The binding is checked before the content: an expired state of another caller reveals nothing."""
    token = sealed({"a": 1}, NOW - 1)
    assert reason(token, aad=b"another request") is RejectReason.NOT_AUTHENTIC


@pytest.mark.parametrize("thing", [None, "", 0, {}, [], b"s1.", "s1.", "null"], ids=repr)
def test_anything_but_a_token_is_malformed(thing: object) -> None:
    assert reason(thing) is RejectReason.MALFORMED


def test_a_value_message_pack_cannot_encode_is_an_error_of_the_caller() -> None:
    with pytest.raises(TypeError):
        pack({"a": object()})
    with pytest.raises(ValueError, match="surrogates"):
        pack({"a": "\ud800"})
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="nested too deeply"):
        pack(deep)


def test_a_hundred_levels_of_nesting_come_back() -> None:
    value: Any = 2**70
    for _ in range(100):
        value = [value]
    assert opened(sealed({"a": value})).journal == {"a": value}
