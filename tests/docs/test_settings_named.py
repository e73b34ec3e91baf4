"""Every setting that a page names exists. `tests/settings/test_settings.py` checks that each has a row."""

from __future__ import annotations

import re
from typing import Final

import pytest

from gateway.settings.model import known_variables
from tests.docs.markdown import PAGES, TOP, text_of

NAME: Final = r"\bGATEWAY_[A-Z_]*[A-Z]\b"
OF_THE_DEMO: Final = {"GATEWAY_DEMO_RELEASE"}
OF_THE_BALANCERS: Final = {
    name
    for file in ("haproxy.cfg", "Caddyfile")
    for name in re.findall(NAME, (TOP / "deploy" / file).read_text())
    if name.startswith("GATEWAY_BALANCER_")
}
"""The variables that the configuration of the shipped load balancers reads."""


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md"])
def test_every_setting_that_is_named_exists(page: str) -> None:
    named = set(re.findall(NAME, text_of(page)))
    assert named - OF_THE_DEMO - OF_THE_BALANCERS - set(known_variables()) == set()
