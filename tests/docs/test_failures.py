"""The settings in `docs/run/failures.md` exist and have the defaults that the page gives."""

from __future__ import annotations

import re

from gateway.settings.model import Settings
from tests.docs.markdown import text_of


def test_a_default_on_the_page_is_the_default() -> None:
    defaults = re.findall(r"`GATEWAY_([A-Z_]+)` \((\d+)\)", text_of("docs/run/failures.md"))
    assert len(defaults) > 3
    for name, value in defaults:
        assert float(Settings.model_fields[name.lower()].default) == float(value), name
