"""The capabilities that a client declared, read from the object it sent."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.engine.capabilities import supports


@pytest.mark.parametrize("nothing", [None, False])
def test_null_and_false_declare_nothing(nothing: Any) -> None:
    assert not supports({"roots": {"listChanged": nothing}}, ("roots", "listChanged"))
    assert not supports({"tomorrow": nothing}, ("tomorrow",))
    assert supports({"roots": {"listChanged": True}}, ("roots", "listChanged"))


def test_each_name_in_a_list_of_names_is_declared() -> None:
    modes = ("tasks", "responses", "modes")
    declared: dict[str, Any] = {"tasks": {"responses": {"modes": ["streaming", "tomorrow", {}, None]}}}
    assert [name for name in ("task", "streaming", "tomorrow") if supports(declared, (*modes, name))] == [
        "streaming",
        "tomorrow",
    ]
    assert not supports(declared, (*modes, "streaming", "more"))
