"""Ids derived from the secret seed of a journal."""

from __future__ import annotations

import hashlib
import hmac

from gateway.engine.keys import derived_id, derived_random, derived_uuid

SEED, OTHER = bytes(range(16)), bytes(range(1, 17))


def test_an_id_is_the_same_for_the_same_seed_and_name_alone() -> None:
    assert derived_id(SEED, b"ada") == derived_id(SEED, b"ada")
    assert len({derived_id(seed, name) for seed in (SEED, OTHER) for name in (b"ada", b"eve", b"")}) == 6


def test_an_id_is_under_the_seed_as_its_key_and_is_nothing_that_a_tool_gets() -> None:
    assert derived_id(SEED, b"ada") == hmac.new(SEED, b"sealed-gateway/id\0ada", hashlib.sha256).digest()
    assert not derived_id(SEED, b"ada").startswith(derived_uuid(SEED, "ada").bytes[:4])
    assert derived_random(SEED, "ada") != int.from_bytes(derived_id(SEED, b"ada")[:7], "big") / 2**56
