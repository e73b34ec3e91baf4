"""Which names of an upstream are served."""

from __future__ import annotations

from gateway.protocol.upstream.globs import is_served, matches


def test_a_name_matches_any_of_the_globs() -> None:
    assert matches(["a", "search_*"], "search_code")
    assert not matches(["a", "search_*"], "Search_code")
    assert not matches([], "a")


def test_denying_wins_over_allowing() -> None:
    assert is_served("read", allow=["*"], deny=["delete_*"])
    assert not is_served("delete_all", allow=["*", "delete_all"], deny=["delete_*"])
    assert not is_served("other", allow=["read"], deny=[])
