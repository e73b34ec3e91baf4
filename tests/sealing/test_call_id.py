"""Ids of calls: equal for an equal request, on both sides of a rotation; for any other request, another one."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.sealing.binding import request_state_binding
from gateway.sealing.call_id import CallIds
from gateway.sealing.keyring import KeyRing
from gateway.sealing.principal import Principal

KEYS = ["00" * 31 + "0a", "00" * 31 + "0b", "00" * 31 + "0c"]
NAME = "0123456789abcdef"
ADA = Principal("https://login.example.com", "ada", "app")
REQUEST = ("prod", ADA, "tools/call", "pay", hashlib.sha256(b'{"amount":5}').digest())
BINDING = request_state_binding(*REQUEST)


def entropy(keys: list[str], name: str = NAME, binding: bytes = BINDING) -> bytes:
    return CallIds(KeyRing.parse(",".join(keys))).entropy(name, binding, 32)


def key_id(key: str) -> bytes:
    return KeyRing.parse(key).sealing_key.key_id


def test_it_is_a_mac_of_the_name_and_the_binding_under_a_key_of_its_own() -> None:
    secret = KeyRing.parse(KEYS[0]).sealing_key.secret
    extracted = hmac.digest(bytes(32), secret, "sha256")
    key = hmac.digest(extracted, b"sealed-gateway/call-id/v1\x01", "sha256")
    assert entropy(KEYS[:1]) == hmac.digest(key, b"\0\0\0\x10" + NAME.encode() + BINDING, "sha256")


@given(st.permutations(KEYS))
def test_the_order_of_the_keys_does_not_count(keys: list[str]) -> None:
    assert entropy(keys) == entropy(KEYS)


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_one_phase_of_a_rotation_changes_it_and_the_key_ids_say_which(before: bytes, after: bytes) -> None:
    old, new = before.hex(), after.hex()
    assume(key_id(old) != key_id(new))
    phases = [entropy(keys) for keys in ([old], [old, new], [new, old], [new])]
    changes = [phase for phase in (1, 2, 3) if phases[phase] != phases[phase - 1]]
    assert changes == ([1] if key_id(new) < key_id(old) else [3])


@pytest.mark.parametrize(
    "other",
    [
        ("test", *REQUEST[1:]),
        (*REQUEST[:1], None, *REQUEST[2:]),
        (*REQUEST[:1], Principal(ADA.issuer, "eve", ADA.client_id), *REQUEST[2:]),
        (*REQUEST[:1], Principal(ADA.issuer, ADA.subject, "other app"), *REQUEST[2:]),
        (*REQUEST[:2], "prompts/get", *REQUEST[3:]),
        (*REQUEST[:3], "refund", *REQUEST[4:]),
        (*REQUEST[:4], hashlib.sha256(b'{"amount":6}').digest()),
    ],
)
def test_the_same_name_of_another_request_gives_another_one(other: tuple[str, Principal, str, str, bytes]) -> None:
    assert entropy(KEYS, binding=request_state_binding(*other)) != entropy(KEYS)


@given(st.text(max_size=70), st.binary(max_size=70), st.text(max_size=70), st.binary(max_size=70))
def test_no_two_requests_run_into_each_other(name: str, binding: bytes, other: str, other_binding: bytes) -> None:
    assume((name, binding) != (other, other_binding))
    assert entropy(KEYS, name, binding) != entropy(KEYS, other, other_binding)
