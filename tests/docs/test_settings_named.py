"""Every setting that a page names exists. `tests/settings/test_settings.py` checks that each has a row."""

from __future__ import annotations

import re
from typing import Final

import pytest

from gateway.settings.model import known_variables
from tests.docs.markdown import PAGES, text_of

OF_THE_DEMO: Final = {"GATEWAY_DEMO_RELEASE"}


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md"])
def test_every_setting_that_is_named_exists(page: str) -> None:
    named = set(re.findall(r"\bGATEWAY_[A-Z_]*[A-Z]\b", text_of(page)))
    assert named - OF_THE_DEMO - set(known_variables()) == set()
