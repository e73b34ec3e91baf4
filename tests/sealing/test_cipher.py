"""XAES-256-GCM: the public vectors, the construction, and what may enter the cache of derived keys."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher as BlockCipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from cryptography.hazmat.primitives.kdf.kbkdf import KBKDFCMAC
from hypothesis import given
from hypothesis import strategies as st

from gateway.sealing.cipher import Cipher, NotAuthentic, derive_key

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors" / "xaes-256-gcm.json").read_text("utf-8"))
KEY = bytes(range(32))
PREFIX = b"prefix-of-12"
NONCE = PREFIX + b"rest-of-this"

keys = st.binary(min_size=32, max_size=32)
nonces = st.binary(min_size=24, max_size=24)


def nonce_under(prefix_number: int, rest: bytes = b"rest-of-this") -> bytes:
    return prefix_number.to_bytes(12, "big") + rest


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=["no associated data", "associated data"])
def test_the_published_vectors_seal_and_open(vector: dict[str, str]) -> None:
    nonce = VECTORS["nonce_ascii"].encode("ascii")
    plaintext, aad = vector["plaintext_ascii"].encode("ascii"), vector["aad_ascii"].encode("ascii")
    cipher = Cipher(bytes.fromhex(vector["key_hex"]))
    assert cipher.seal(plaintext, aad, nonce).hex() == vector["ciphertext_hex"]
    assert cipher.open(bytes.fromhex(vector["ciphertext_hex"]), aad, nonce) == plaintext


def test_ten_thousand_random_messages_accumulate_to_the_published_digest() -> None:
    """The accumulated test of C2SP's own XAES-256-GCM implementation: inputs from SHAKE128, outputs into it."""
    source, sink = io.BytesIO(hashlib.shake_128().digest(4_000_000)), hashlib.shake_128()
    for _ in range(10_000):
        cipher, nonce = Cipher(source.read(32)), source.read(24)
        plaintext = source.read(source.read(1)[0])
        aad = source.read(source.read(1)[0])
        sink.update(cipher.seal(plaintext, aad, nonce))
    assert sink.hexdigest(32) == "e6b9edf2df6cec60c8cbd864e2211b597fb69a529160cd040d56c0c210081939"


@given(keys, st.binary(min_size=12, max_size=12))
def test_the_derived_key_is_the_one_of_the_block_cipher_construction(key: bytes, prefix: bytes) -> None:
    """C2SP also defines the derivation in single AES blocks; both must agree."""
    encryptor = BlockCipher(AES(key), ECB()).encryptor()
    subkey = int.from_bytes(encryptor.update(bytes(16)), "big") << 1
    if subkey >> 128:
        subkey ^= (1 << 128) | 0x87
    blocks = [bytes((0, counter)) + b"X\x00" + prefix for counter in (1, 2)]
    masked = [(int.from_bytes(block, "big") ^ subkey).to_bytes(16, "big") for block in blocks]
    assert derive_key(key, prefix) == b"".join(encryptor.update(block) for block in masked)


@given(keys, st.binary(max_size=200), st.binary(max_size=64), nonces)
def test_sealing_is_aes_gcm_under_the_derived_key(key: bytes, plaintext: bytes, aad: bytes, nonce: bytes) -> None:
    expected = AESGCM(derive_key(key, nonce[:12])).encrypt(nonce[12:], plaintext, aad)
    assert Cipher(key).seal(plaintext, aad, nonce) == expected
    assert Cipher(key).open(expected, aad, nonce) == plaintext


@given(st.data())
def test_a_change_of_key_nonce_associated_data_or_ciphertext_is_not_authentic(data: st.DataObject) -> None:
    parts = [KEY, Cipher(KEY).seal(b"the plaintext", b"bound to", NONCE), b"bound to", NONCE]
    which = data.draw(st.integers(0, 3))
    position = data.draw(st.integers(0, len(parts[which]) * 8 - 1))
    changed = bytearray(parts[which])
    changed[position // 8] ^= 1 << position % 8
    parts[which] = bytes(changed)
    key, ciphertext, aad, nonce = parts
    with pytest.raises(NotAuthentic):
        Cipher(key).open(ciphertext, aad, nonce)


def test_sealing_under_alternating_prefixes_never_uses_the_key_of_another_prefix() -> None:
    cipher = Cipher(KEY)
    for number in (1, 2, 1, 2, 2, 1):
        sealed = cipher.seal(b"plaintext", b"", nonce_under(number))
        assert Cipher(KEY).open(sealed, b"", nonce_under(number)) == b"plaintext"


def test_a_prefix_is_derived_once_for_many_seals_and_once_for_many_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    derived: list[bytes] = []

    def counting(**options: Any) -> KBKDFCMAC:
        derived.append(options["fixed"].removeprefix(b"X\x00"))
        return KBKDFCMAC(**options)

    monkeypatch.setattr("gateway.sealing.cipher.KBKDFCMAC", counting)
    cipher = Cipher(KEY)
    sealed = [(cipher.seal(b"p", b"", PREFIX + i.to_bytes(12, "big")), i) for i in range(20)]
    assert derived == [PREFIX]
    for ciphertext, i in sealed:
        cipher.open(ciphertext, b"", PREFIX + i.to_bytes(12, "big"))
    assert derived == [PREFIX, PREFIX]


def test_a_derived_key_whose_tag_failed_is_never_remembered() -> None:
    cipher = Cipher(KEY)
    for number in range(50):
        with pytest.raises(NotAuthentic):
            cipher.open(bytes(32), b"", nonce_under(number))
    assert not cipher._opening
    cipher.open(Cipher(KEY).seal(b"p", b"", NONCE), b"", NONCE)
    assert list(cipher._opening) == [PREFIX]


def test_a_failed_tag_does_not_forget_a_prefix_that_verified_before() -> None:
    cipher = Cipher(KEY)
    cipher.open(Cipher(KEY).seal(b"p", b"", NONCE), b"", NONCE)
    with pytest.raises(NotAuthentic):
        cipher.open(bytes(32), b"", NONCE)
    assert list(cipher._opening) == [PREFIX]


def test_the_least_recently_opened_prefix_is_forgotten_first() -> None:
    cipher = Cipher(KEY, cache_size=3)
    for number in (1, 2, 3, 1, 4):
        nonce = nonce_under(number)
        cipher.open(Cipher(KEY).seal(b"p", b"", nonce), b"", nonce)
    assert [int.from_bytes(prefix, "big") for prefix in cipher._opening] == [3, 1, 4]


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_key_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Cipher(bytes(length))


@pytest.mark.parametrize("length", [0, 12, 23, 25])
def test_a_nonce_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="24 bytes"):
        Cipher(KEY).seal(b"", b"", bytes(length))
    with pytest.raises(ValueError, match="24 bytes"):
        Cipher(KEY).open(bytes(16), b"", bytes(length))
