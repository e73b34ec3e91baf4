"""Settings that a page names exist, with the default that it gives; `test_settings.py` checks the rows of the table."""

from __future__ import annotations

import re
from typing import Final

import pytest

from gateway.settings.model import Settings, known_variables
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

DEFAULTS: Final = {
    "docs/run/failures.md": 4,
    "docs/run/tasks.md": 6,
    "docs/run/upgrading.md": 2,
    "docs/start/clients.md": 4,
}
"""Page → how many defaults it gives at least."""


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md"])
def test_every_setting_that_is_named_exists(page: str) -> None:
    named = set(re.findall(NAME, text_of(page)))
    assert named - OF_THE_DEMO - OF_THE_BALANCERS - set(known_variables()) == set()


@pytest.mark.parametrize("page", DEFAULTS)
def test_a_default_that_is_told_is_the_default(page: str) -> None:
    told = re.findall(r"`GATEWAY_([A-Z_]+)` \((\d+)\)", text_of(page))
    assert len(told) >= DEFAULTS[page]
    for name, value in told:
        assert float(Settings.model_fields[name.lower()].default) == float(value), name
