"""The token: one text opens; no other text, key, label or associated data does."""

from __future__ import annotations

import base64
import itertools
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RejectReason
from gateway.sealing import base64url
from gateway.sealing.cipher import Cipher
from gateway.sealing.envelope import (
    LABEL,
    MAX_TOKEN_CHARS,
    SEALS_PER_PREFIX,
    Opened,
    Rejected,
    Sealer,
    token_chars,
)
from gateway.sealing.keyring import KeyRing
from tests.sealing.randomness import repeatable

ENTRY_A, ENTRY_B = "00" * 31 + "0a", "00" * 31 + "0b"
AAD = b"what the token is bound to"
ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"


def make_sealer(keys: str = ENTRY_A, seals_per_prefix: int = SEALS_PER_PREFIX) -> Sealer:
    return Sealer(KeyRing.parse(keys), repeatable(), seals_per_prefix=seals_per_prefix)


SEALER = make_sealer(f"{ENTRY_A},{ENTRY_B}")
TOKEN = SEALER.seal(b"a plaintext of some bytes", AAD)
OTHER = SEALER.seal(b"another text, same length", AAD)
RAW = base64url.decode(TOKEN.removeprefix(LABEL))


def reason(token: object, aad: bytes = AAD, sealer: Sealer = SEALER, **cap: int) -> RejectReason:
    with pytest.raises(Rejected) as caught:
        sealer.open(token, aad, **cap)
    return caught.value.reason


def token_of(raw: bytes) -> str:
    return LABEL + base64url.encode(raw)


@given(st.binary(max_size=300), st.binary(max_size=100))
def test_a_sealed_value_opens_with_the_same_associated_data(plaintext: bytes, aad: bytes) -> None:
    sealer = make_sealer()
    key_id = KeyRing.parse(ENTRY_A).sealing_key.key_id
    assert sealer.open(sealer.seal(plaintext, aad), aad) == Opened(plaintext, key_id)
    assert make_sealer().open(sealer.seal(plaintext, aad), aad) == Opened(plaintext, key_id)
    assert sealer.key_id == key_id


def test_the_token_does_not_drift() -> None:
    """Fixed key, randomness, plaintext and binding give exactly this text: a change here breaks a mixed fleet."""
    assert (
        make_sealer().seal(b"plaintext", b"associated data")
        == "s1.9E3yRV_s62b_yG842VJ4bGuGsnP_NPzhnWuATv-VtlPYpIepQf8zgN_GVevWCAAf02BAaeU"
    )


def test_the_token_is_the_label_then_key_id_nonce_and_ciphertext() -> None:
    ring = KeyRing.parse(ENTRY_A)
    source = repeatable()
    nonce = source(12) + source(12)
    token = make_sealer().seal(b"plaintext", AAD)
    raw = base64.urlsafe_b64decode(token.removeprefix("s1.") + "==="[: -len(token.removeprefix("s1.")) % 4])
    assert token.startswith("s1.")
    assert set(token.removeprefix("s1.")) <= set(ALPHABET)
    assert raw[:4] == ring.sealing_key.key_id
    assert raw[4:28] == nonce
    under_the_tag = b"s1." + ring.sealing_key.key_id + AAD
    assert Cipher(ring.sealing_key.secret).open(raw[28:], under_the_tag, nonce) == b"plaintext"


@given(st.integers(0, 200))
def test_the_length_of_a_token_is_known_before_it_is_sealed(size: int) -> None:
    assert len(SEALER.seal(bytes(size), b"")) == token_chars(size)


def test_two_seals_of_the_same_thing_share_no_nonce() -> None:
    sealer = make_sealer()
    raws = [base64url.decode(sealer.seal(b"p", AAD).removeprefix(LABEL)) for _ in range(50)]
    assert len({raw[4:16] for raw in raws}) == 1
    assert len({raw[16:28] for raw in raws}) == 50


def test_a_process_takes_a_fresh_prefix_first_and_after_so_many_seals() -> None:
    assert Sealer(KeyRing.parse(ENTRY_A), repeatable())._seals_per_prefix == 2**20
    sealer = make_sealer(seals_per_prefix=3)
    tokens = [sealer.seal(b"p", AAD) for _ in range(7)]
    prefixes = [base64url.decode(token.removeprefix(LABEL))[4:16] for token in tokens]
    assert [len(list(run)) for _, run in itertools.groupby(prefixes)] == [3, 3, 1]
    assert all(make_sealer().open(token, AAD).plaintext == b"p" for token in tokens)


def test_any_other_character_at_any_position_never_opens() -> None:
    for position in range(len(LABEL), len(TOKEN)):
        for character in ALPHABET + "+/=. \n":
            if character != TOKEN[position]:
                reason(TOKEN[:position] + character + TOKEN[position + 1 :])


def test_a_token_cut_anywhere_never_opens() -> None:
    for length in range(len(TOKEN)):
        reason(TOKEN[:length])
        reason(TOKEN[length + 1 :])
    for length in range(len(RAW)):
        expected = RejectReason.MALFORMED if length < 44 else RejectReason.NOT_AUTHENTIC
        assert reason(token_of(RAW[:length])) is expected


def test_a_longer_token_never_opens() -> None:
    for addition in ("A", "AA", "AAAA", "=", "==", " ", "\n", "\x00", ".", LABEL, TOKEN):
        reason(TOKEN + addition)
        reason(addition + TOKEN)
    for more in (b"\x00", bytes(16), RAW):
        assert reason(token_of(RAW + more)) is RejectReason.NOT_AUTHENTIC


def test_two_tokens_spliced_anywhere_never_open() -> None:
    assert len(TOKEN) == len(OTHER)
    raw_other = base64url.decode(OTHER.removeprefix(LABEL))
    for cut in range(len(RAW)):
        spliced = RAW[:cut] + raw_other[cut:]
        if spliced not in (RAW, raw_other):
            assert reason(token_of(spliced)) is RejectReason.NOT_AUTHENTIC
    for cut in range(len(TOKEN)):
        spliced_text = TOKEN[:cut] + OTHER[cut:]
        if spliced_text not in (TOKEN, OTHER):
            reason(spliced_text)


def test_the_id_of_another_key_of_the_ring_never_opens() -> None:
    other_id = KeyRing.parse(ENTRY_B).sealing_key.key_id
    assert reason(token_of(other_id + RAW[4:])) is RejectReason.NOT_AUTHENTIC


def test_the_key_id_is_under_the_tag() -> None:
    """Even a second key with the same secret cannot claim a token under its own id."""
    ring = KeyRing.parse(ENTRY_A)
    nonce = RAW[4:28]
    without_id = Cipher(ring.sealing_key.secret).seal(b"plaintext", b"s1." + AAD, nonce)
    assert reason(token_of(ring.sealing_key.key_id + nonce + without_id)) is RejectReason.NOT_AUTHENTIC


def test_the_label_is_under_the_tag() -> None:
    ring = KeyRing.parse(ENTRY_A)
    nonce = RAW[4:28]
    without_label = Cipher(ring.sealing_key.secret).seal(b"plaintext", ring.sealing_key.key_id + AAD, nonce)
    assert reason(token_of(ring.sealing_key.key_id + nonce + without_label)) is RejectReason.NOT_AUTHENTIC


@pytest.mark.parametrize("label", ["", "s1", "S1.", "s2.", "s1:", ".", " s1.", "s1. "])
def test_another_label_is_malformed(label: str) -> None:
    assert reason(label + TOKEN.removeprefix(LABEL)) is RejectReason.MALFORMED


@pytest.mark.parametrize("size", [0, 1, 2])
def test_the_same_bytes_written_otherwise_are_malformed(size: int) -> None:
    """Each remainder of the length modulo 3, with bytes that need both characters special to base64url."""
    raw = RAW[:4] + bytes(2) + b"\xfb\xef\xbe\xff\xff\xff" * 4 + bytes(16 + size)
    text = base64url.encode(raw)
    assert reason(LABEL + text) is RejectReason.NOT_AUTHENTIC
    padded = base64.urlsafe_b64encode(raw).decode("ascii")
    writings = [
        text.replace("-", "+"),
        text.replace("_", "/"),
        base64.b64encode(raw).decode("ascii"),
        text + "=",
        text + "==",
        text[:20] + "\n" + text[20:],
        text + "\n",
        " " + text,
    ]
    if padded != text:
        writings.append(padded)
        writings.append(text[:-1] + ALPHABET[ALPHABET.index(text[-1]) + 1])
    assert text not in writings
    for writing in writings:
        assert reason(LABEL + writing) is RejectReason.MALFORMED


@pytest.mark.parametrize(
    "thing",
    [
        None,
        "",
        LABEL,
        0,
        1.5,
        True,
        [],
        {},
        [TOKEN],
        {"token": TOKEN},
        TOKEN.encode("ascii"),
        object(),
        "\ud800",
        "null",
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_anything_but_a_token_is_malformed(thing: object) -> None:
    assert reason(thing) is RejectReason.MALFORMED


def test_other_associated_data_is_not_authentic() -> None:
    for aad in (b"", AAD[:-1], AAD + b"\x00", AAD.upper()):
        assert reason(TOKEN, aad) is RejectReason.NOT_AUTHENTIC


def test_a_token_of_another_key_is_of_an_unknown_key() -> None:
    assert reason(TOKEN, sealer=make_sealer(ENTRY_B)) is RejectReason.UNKNOWN_KEY


def test_a_token_over_the_cap_is_too_large_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SEALER.open(TOKEN, AAD, max_chars=len(TOKEN)).plaintext == b"a plaintext of some bytes"

    def unexpected(text: str) -> bytes:
        raise AssertionError(text)

    monkeypatch.setattr(base64url, "decode", unexpected)
    assert reason(TOKEN, max_chars=len(TOKEN) - 1) is RejectReason.TOO_LARGE
    assert reason("x" * (MAX_TOKEN_CHARS + 1)) is RejectReason.TOO_LARGE


def test_a_derived_key_of_a_forged_token_is_never_remembered() -> None:
    sealer = make_sealer()
    (cipher,) = sealer._ciphers.values()
    for number in range(20):
        forged = RAW[:4] + number.to_bytes(12, "big") + RAW[16:]
        assert reason(token_of(forged), sealer=sealer) is RejectReason.NOT_AUTHENTIC
    assert not cipher._opening
    sealer.open(TOKEN, AAD)
    assert list(cipher._opening) == [RAW[4:16]]


def test_a_rejection_carries_neither_the_token_nor_a_cause() -> None:
    with pytest.raises(Rejected) as caught:
        SEALER.open(token_of(RAW[:-1] + b"\x00"), AAD)
    assert str(caught.value) == "not_authentic"
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@given(st.text() | st.text(alphabet=ALPHABET + "+/=.", max_size=100).map(lambda text: LABEL + text))
def test_arbitrary_text_is_only_ever_rejected(text: str) -> None:
    reason(text)


@given(st.binary(max_size=120), st.sampled_from([b"", RAW[:4], RAW[:16], RAW[:28], RAW[:-1]]))
def test_arbitrary_bytes_in_a_token_are_only_ever_rejected(noise: bytes, head: bytes) -> None:
    if head + noise != RAW:
        reason(token_of(head + noise))


@given(st.binary() | st.lists(st.integers()) | st.floats() | st.dictionaries(st.text(), st.text()))
def test_arbitrary_values_are_only_ever_rejected(value: object) -> None:
    assert reason(value) is RejectReason.MALFORMED


@given(st.data())
def test_arbitrary_edits_of_a_token_are_only_ever_rejected(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(TOKEN)))
    end = data.draw(st.integers(start, len(TOKEN)))
    edited = TOKEN[:start] + data.draw(st.text(alphabet=ALPHABET, max_size=8) | st.text(max_size=3)) + TOKEN[end:]
    if edited != TOKEN:
        reason(edited)
