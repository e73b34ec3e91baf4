"""Canonical unpadded base64url: one text for each byte string, and nothing else decodes."""

from __future__ import annotations

import base64
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.sealing import base64url

ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"


@given(st.binary(max_size=200))
def test_text_is_the_standard_librarys_without_padding_and_decodes_again(data: bytes) -> None:
    text = base64url.encode(data)
    assert text == base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
    assert base64url.decode(text) == data


@given(st.text(alphabet=ALPHABET + "+/= \n\t\x00é", max_size=12))
@example("AA==")
@example("AA=")
@example("AB")
@example("AAB")
@example("A")
def test_any_text_that_decodes_is_the_only_one_for_its_bytes(text: str) -> None:
    try:
        data = base64url.decode(text)
    except ValueError:
        return
    assert base64url.encode(data) == text


@pytest.mark.parametrize("length", [1, 2, 4, 5, 31, 32])
def test_every_last_character_with_trailing_bits_is_refused(length: int) -> None:
    text = base64url.encode(bytes(length))
    accepted = [last for last in ALPHABET if _decodes(text[:-1] + last)]
    assert len(accepted) == (4 if length % 3 == 1 else 16)


@pytest.mark.parametrize("stranger", ["+", "/", "=", " ", "\n", "\r", "\t", "\x00", "é", "\ud800", "\uff21", "~"])
def test_a_character_outside_the_alphabet_is_refused_at_every_position(stranger: str) -> None:
    for length in (3, 4, 5, 48, 100):
        text = base64url.encode(bytes(length))
        for position in range(len(text) + 1):
            assert not _decodes(text[:position] + stranger + text[position:])
            assert not _decodes(text[:position] + stranger + text[position + 1 :]) or position == len(text)


@pytest.mark.parametrize("padding", ["=", "==", "===", "===="])
def test_padding_is_refused_even_where_it_would_be_right(padding: str) -> None:
    for length in range(7):
        assert not _decodes(base64url.encode(bytes(length)) + padding)


def _decodes(text: str) -> bool:
    try:
        base64url.decode(text)
    except ValueError:
        return False
    return True
