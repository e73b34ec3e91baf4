"""Associated data: two different bindings never give the same bytes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sealing.binding import (
    Purpose,
    associated_data,
    cursor_binding,
    field_binding,
    hop_binding,
    owner,
    request_id_binding,
    request_state_binding,
    session_binding,
)
from gateway.sealing.principal import Principal

# Few letters and NUL, so texts that could be split in several ways are frequent.
texts = st.text(alphabet="ab?\x00\x01é\ud800", max_size=4)
blobs = st.binary(max_size=5) | st.sampled_from([b"", b"\x00", b"\x00\x00\x00\x01", b"\x00\x00\x00\x00"])
principals = st.none() | st.builds(Principal, texts, texts, texts)
bindings = st.tuples(st.sampled_from(Purpose), texts, principals, st.lists(blobs, max_size=4).map(tuple))

ALICE = Principal("https://issuer.example", "alice", "editor")
DIGEST = bytes(range(32))


@given(bindings, bindings)
def test_different_bindings_give_different_bytes(
    first: tuple[Purpose, str, Principal | None, tuple[bytes, ...]],
    second: tuple[Purpose, str, Principal | None, tuple[bytes, ...]],
) -> None:
    same = associated_data(*first[:3], *first[3]) == associated_data(*second[:3], *second[3])
    assert same == (first == second)


@given(st.tuples(texts, texts, texts, texts), bindings)
def test_a_field_at_rest_is_never_bound_like_something_of_a_caller(
    place: tuple[str, str, str, str], other: tuple[Purpose, str, Principal | None, tuple[bytes, ...]]
) -> None:
    assert field_binding(*place) != associated_data(*other[:3], *other[3])


@given(st.tuples(texts, texts, texts, texts), st.tuples(texts, texts, texts, texts))
def test_different_places_at_rest_give_different_bytes(
    first: tuple[str, str, str, str], second: tuple[str, str, str, str]
) -> None:
    assert (field_binding(*first) == field_binding(*second)) == (first == second)


@given(texts, texts, texts)
def test_text_cannot_move_from_one_field_into_the_next(audience: str, method: str, target: str) -> None:
    moved = request_state_binding(audience, ALICE, method + target[:1], target[1:], DIGEST)
    assert (moved == request_state_binding(audience, ALICE, method, target, DIGEST)) == (not target)


@given(texts)
def test_an_anonymous_caller_is_not_a_principal_of_empty_strings(audience: str) -> None:
    nobody = Principal("", "", "")
    assert request_state_binding(audience, None, "m", "t", b"") != request_state_binding(
        audience, nobody, "m", "t", b""
    )
    assert session_binding(audience, None) != session_binding(audience, nobody)
    assert request_id_binding(audience, None) != request_id_binding(audience, nobody)
    assert cursor_binding(audience, None, "m") != cursor_binding(audience, nobody, "m")


def test_each_thing_that_a_request_state_is_bound_to_counts() -> None:
    variants = [
        request_state_binding("aud", ALICE, "tools/call", "echo", DIGEST),
        request_state_binding("aud2", ALICE, "tools/call", "echo", DIGEST),
        request_state_binding("aud", None, "tools/call", "echo", DIGEST),
        request_state_binding(
            "aud", Principal("https://other.example", "alice", "editor"), "tools/call", "echo", DIGEST
        ),
        request_state_binding(
            "aud", Principal("https://issuer.example", "bob", "editor"), "tools/call", "echo", DIGEST
        ),
        request_state_binding("aud", Principal("https://issuer.example", "alice", "cli"), "tools/call", "echo", DIGEST),
        request_state_binding("aud", ALICE, "prompts/get", "echo", DIGEST),
        request_state_binding("aud", ALICE, "tools/call", "echo2", DIGEST),
        request_state_binding("aud", ALICE, "tools/call", "echo", DIGEST[::-1]),
    ]
    assert len(set(variants)) == len(variants)


def test_each_purpose_is_a_world_of_its_own() -> None:
    made = [associated_data(purpose, "aud", ALICE, b"x") for purpose in Purpose]
    assert len(set(made)) == len(list(Purpose))
    assert session_binding("aud", ALICE) != request_id_binding("aud", ALICE)


def test_each_thing_that_a_field_at_rest_is_bound_to_counts() -> None:
    variants = {field_binding(*place) for place in itertools.product(("a", "b"), repeat=4)}
    assert len(variants) == 16


def test_the_encoding_does_not_drift() -> None:
    """Sealed values outlive the process that sealed them: this encoding is a stored format."""
    assert request_state_binding("aud", Principal("i", "s", ""), "m", "t", b"\xff") == (
        b"request-state\x00" + b"\x00\x00\x00\x03aud"
        b"\x01" + b"\x00\x00\x00\x01i" + b"\x00\x00\x00\x01s" + b"\x00\x00\x00\x00"
        b"\x00\x00\x00\x01m" + b"\x00\x00\x00\x01t" + b"\x00\x00\x00\x01\xff"
    )
    assert cursor_binding("", None, "m") == b"cursor\x00" + b"\x00\x00\x00\x00" + b"\x00" + b"\x00\x00\x00\x01m"
    assert session_binding("é", None) == b"session\x00" + b"\x00\x00\x00\x02\xc3\xa9" + b"\x00"
    assert request_id_binding("", None) == b"return-address\x00" + b"\x00\x00\x00\x00" + b"\x00"
    assert field_binding("a", "o", "t", "f") == (
        b"field-at-rest\x00" + b"\x00\x00\x00\x01a" + b"\x02"
        b"\x00\x00\x00\x01o" + b"\x00\x00\x00\x01t" + b"\x00\x00\x00\x01f"
    )


def test_a_lone_surrogate_binds_like_no_other_character() -> None:
    bound = {session_binding(audience, None) for audience in ("\ud800", "\udfff", "?", "\ufffd", "")}
    assert len(bound) == 5


def test_no_purpose_label_contains_the_byte_that_ends_it() -> None:
    assert all(b"\x00" not in purpose.value and purpose.value for purpose in Purpose)


def test_a_principal_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        ALICE.subject = "mallory"  # type: ignore[misc]


@given(st.tuples(principals, texts), st.tuples(principals, texts))
def test_different_callers_and_deployments_have_different_owners(
    first: tuple[Principal | None, str], second: tuple[Principal | None, str]
) -> None:
    assert (owner(*first, b"secret") == owner(*second, b"secret")) == (first == second)


def test_an_owner_is_the_same_hash_in_every_process_that_has_the_secret_and_in_no_other() -> None:
    alice = owner(ALICE, "gateway", b"secret")
    assert alice == owner(Principal("https://issuer.example", "alice", "editor"), "gateway", b"secret")
    assert alice != owner(ALICE, "gateway", b"another")
    assert len(bytes.fromhex(owner(None, "gateway", b"secret"))) == 32


def test_each_thing_that_a_message_between_processes_is_bound_to_counts() -> None:
    one, other = ("replica", b"1" * 16), ("replica", b"2" * 16)
    usual: dict[str, Any] = {
        "audience": "aud",
        "direction": "request",
        "sender": one,
        "receiver": other,
        "url": "http://r1:8080",
        "nonce": b"n" * 16,
        "time_ms": 1,
        "answered": b"",
    }
    changes: list[dict[str, Any]] = [
        {},
        {"audience": "aud2"},
        {"direction": "reply"},
        {"sender": ("worker", b"1" * 16)},
        {"sender": ("replica", b"3" * 16)},
        {"receiver": ("worker", b"2" * 16)},
        {"receiver": ("replica", b"3" * 16)},
        {"sender": other, "receiver": one},
        {"url": "http://r2:8080"},
        {"nonce": b"m" * 16},
        {"time_ms": 2},
        {"answered": b"n" * 16},
    ]
    assert len({hop_binding(**{**usual, **change}) for change in changes}) == len(changes)


@given(st.tuples(texts, texts, texts, blobs, texts, blobs, texts, blobs, st.integers(0, 3), blobs), bindings)
def test_a_message_between_processes_is_never_bound_like_something_of_a_caller(
    message: tuple[str, str, str, bytes, str, bytes, str, bytes, int, bytes],
    other: tuple[Purpose, str, Principal | None, tuple[bytes, ...]],
) -> None:
    audience, direction, role, boot, to_role, to_boot, url, nonce, time_ms, answered = message
    bound = hop_binding(
        audience, direction, (role, boot), (to_role, to_boot), url, nonce=nonce, time_ms=time_ms, answered=answered
    )
    assert bound != associated_data(*other[:3], *other[3])
