"""The key ring: what an operator may write, how keys rotate, and that no key is ever shown."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ConfigurationError, RejectReason
from gateway.sealing.envelope import Rejected, Sealer
from gateway.sealing.keyring import KeyRing, SealKey, generate_entry

OLD = bytes(range(32))
NEW = bytes(range(100, 132))
BASE64URL = string.ascii_letters + string.digits + "-_"


def spelled(entry: bytes) -> str:
    return base64.urlsafe_b64encode(entry).rstrip(b"=").decode("ascii")


def refusal(text: str | None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        KeyRing.parse(text)
    return str(caught.value)


def sealer(text: str) -> Sealer:
    chunks = itertools.count(1)
    return Sealer(KeyRing.parse(text), lambda size: next(chunks).to_bytes(size, "big"))


def test_a_key_is_hkdf_sha256_of_the_entry_and_its_id_a_hash_of_the_key() -> None:
    extracted = hmac.digest(bytes(32), OLD, "sha256")
    secret = hmac.digest(extracted, b"sealed-gateway/v1\x01", "sha256")
    key = KeyRing.parse(OLD.hex()).sealing_key
    assert key.secret == secret
    assert key.key_id == hashlib.sha256(b"sealed-gateway/kid" + secret).digest()[:4]


def test_the_derivation_does_not_drift() -> None:
    assert KeyRing.parse(OLD.hex()).sealing_key.key_id.hex() == "ada2c752"


@pytest.mark.parametrize("spelling", [OLD.hex(), OLD.hex().upper(), spelled(OLD)], ids=["hex", "HEX", "base64url"])
def test_hex_and_base64url_spell_the_same_key(spelling: str) -> None:
    assert KeyRing.parse(spelling).keys == (SealKey.from_entry(OLD),)


@pytest.mark.parametrize(
    "layout",
    ["{0},{1}", "{0}\n{1}", " {0} , {1} ", "\n{0}\n\n{1}\n", "{0}\r\n{1}\r\n", ",,{0},\n,\t{1},", "{0},\n{1}"],
)
def test_commas_and_newlines_separate_and_blanks_and_empty_items_do_not_count(layout: str) -> None:
    ring = KeyRing.parse(layout.format(OLD.hex(), spelled(NEW)))
    assert ring.keys == (SealKey.from_entry(OLD), SealKey.from_entry(NEW))


@pytest.mark.parametrize("text", [None, "", " ", ",", "\n", " , \r\n,"], ids=repr)
def test_no_key_is_refused_and_the_message_says_what_to_do(text: str | None) -> None:
    assert refusal(text) == (
        "GATEWAY_SEAL_KEYS: no key; make one with `gateway keys new` and give the same value to every replica"
    )


@pytest.mark.parametrize(
    "bad",
    [
        "password",
        OLD.hex()[:-1],
        OLD.hex() + "0",
        OLD.hex()[:-2] + "zz",
        "0x" + OLD.hex(),
        " ".join(OLD.hex()[i : i + 32] for i in (0, 32)),
        spelled(OLD) + "=",
        spelled(OLD)[:-1],
        spelled(bytes(33)),
        base64.b64encode(b"\xfb" * 32).decode("ascii").rstrip("="),
        "é" * 43,
        "\uff11" * 64,
    ],
)
def test_an_entry_that_is_not_exactly_32_bytes_is_refused_by_its_position(bad: str) -> None:
    message = refusal(f"{NEW.hex()},{bad}")
    assert message.startswith("GATEWAY_SEAL_KEYS: key 2 of 2 is neither 64 hex digits nor 43 unpadded base64url")
    assert "gateway keys new" in message
    assert bad not in message


def test_a_base64url_entry_with_trailing_bits_is_refused() -> None:
    bad = spelled(OLD)[:-1] + "9"
    message = refusal(bad)
    assert "key 1 of 1 is not the base64url form of 32 bytes" in message
    assert bad not in message


def test_the_same_key_twice_is_refused_in_any_spelling() -> None:
    message = refusal(f"{OLD.hex()},{NEW.hex()},{spelled(OLD)}")
    assert message == "GATEWAY_SEAL_KEYS: keys 1 and 3 are the same; remove one"


def test_two_keys_that_share_a_key_id_are_refused() -> None:
    message = refusal(f"{33945:064x},{54788:064x}")
    assert message.startswith("GATEWAY_SEAL_KEYS: keys 1 and 2 happen to share a key id; replace one of them")


def test_the_message_names_the_setting_it_was_given() -> None:
    with pytest.raises(ConfigurationError, match=r"^GATEWAY_SEAL_KEYS_FILE: no key"):
        KeyRing.parse("", setting="GATEWAY_SEAL_KEYS_FILE")


@given(st.text(max_size=80) | st.text(alphabet=BASE64URL + ",\n =", min_size=40, max_size=90))
def test_any_text_is_a_ring_or_one_line_that_echoes_no_entry(text: str) -> None:
    try:
        ring = KeyRing.parse(text)
    except ConfigurationError as error:
        message = str(error)
        assert "\n" not in message
        entries = [part.strip() for part in text.replace("\n", ",").split(",")]
        assert not any(entry in message for entry in entries if len(entry) > 12)
    else:
        assert ring.keys


@given(st.binary(min_size=32, max_size=32))
def test_a_generated_entry_is_43_characters_and_a_ring(entry: bytes) -> None:
    asked: list[int] = []

    def random_bytes(size: int) -> bytes:
        asked.append(size)
        return entry

    text = generate_entry(random_bytes)
    assert len(text) == 43
    assert asked == [32]
    assert KeyRing.parse(text).keys == (SealKey.from_entry(entry),)


def test_replicas_of_neighbouring_stages_of_a_rotation_open_each_others_tokens() -> None:
    """`old` → `old,new` → `new,old` → `new`, with both stages serving while one is rolled out."""
    old, new = OLD.hex(), spelled(NEW)
    stages = [sealer(text) for text in (old, f"{old},{new}", f"{new},{old}", new)]
    for earlier, later in itertools.pairwise(stages):
        assert later.open(earlier.seal(b"p", b"aad"), b"aad").plaintext == b"p"
        assert earlier.open(later.seal(b"q", b"aad"), b"aad").plaintext == b"q"


def test_the_first_key_seals_and_the_key_id_names_it() -> None:
    old, new = SealKey.from_entry(OLD).key_id, SealKey.from_entry(NEW).key_id
    before, after = sealer(f"{OLD.hex()},{NEW.hex()}"), sealer(f"{NEW.hex()},{OLD.hex()}")
    assert after.open(before.seal(b"p", b""), b"").key_id == old
    assert before.open(after.seal(b"p", b""), b"").key_id == new


def test_a_token_of_a_removed_key_is_of_an_unknown_key() -> None:
    token = sealer(OLD.hex()).seal(b"p", b"")
    with pytest.raises(Rejected) as caught:
        sealer(NEW.hex()).open(token, b"")
    assert caught.value.reason is RejectReason.UNKNOWN_KEY


def test_no_repr_shows_a_key() -> None:
    ring = KeyRing.parse(f"{OLD.hex()},{spelled(NEW)}")
    shown = repr(ring) + str(ring) + repr(ring.sealing_key) + repr(sealer(OLD.hex()))
    for key, entry in zip(ring.keys, (OLD, NEW), strict=True):
        for secret in (key.secret, entry):
            assert secret.hex() not in shown
            assert spelled(secret) not in shown
            assert repr(secret) not in shown
    assert repr(ring.sealing_key.key_id) in shown
