"""A caller's identity, and the scopes and claims of its token."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gateway import Principal
from gateway.sealing.principal import Claims

ADA = Principal("https://id.example.com", "ada", "app")


def test_scopes_and_claims_are_no_part_of_the_identity() -> None:
    held = ADA.holding(scopes={"read"}, claims={"email": "ada@example.com"})
    assert (held, hash(held)) == (ADA, hash(ADA))
    assert {ADA: "found"}[held] == "found"
    assert held != Principal("https://id.example.com", "bob", "app").holding(scopes={"read"})


def test_a_principal_without_a_token_grants_and_tells_nothing() -> None:
    assert (ADA.scopes, dict(ADA.claims)) == (frozenset(), {})


def test_claims_keep_their_values_and_absent_ones_are_absent() -> None:
    told = {"email": "ada@example.com", "groups": ["staff", "ops"], "address": {"zip": 2**70}, "admin": None, "å": 1.5}
    claims = ADA.holding(claims=told).claims
    assert dict(claims) == claims == told
    assert "phone" not in claims
    assert claims.get("phone") is None
    assert (len(claims), list(claims)) == (5, list(told))


def test_a_tool_cannot_change_what_other_calls_see() -> None:
    held = ADA.holding(scopes=["read"], claims={"groups": ["staff"]})
    held.claims["groups"].append("admin")
    assert held.claims["groups"] == ["staff"]
    with pytest.raises(TypeError):
        held.claims["groups"] = ["admin"]  # type: ignore[index]
    for name in ("scopes", "claims", "subject"):
        with pytest.raises(AttributeError):
            setattr(held, name, {"admin"})


def test_neither_the_principal_nor_its_claims_show_a_claim() -> None:
    held = ADA.holding(scopes={"read"}, claims={"email": "ada@example.com"})
    assert "ada@" not in f"{held!r} {held} {held.claims!r} {held.claims}"


@pytest.mark.parametrize("value", [math.nan, "\ud800", object(), b"bytes"])
def test_a_claim_that_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        Claims.of({"claim": value})
