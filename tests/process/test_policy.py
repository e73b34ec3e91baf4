"""The policy of legs is what the environment says."""

from __future__ import annotations

import pytest

from gateway.engine.policy import LegPolicy
from gateway.settings.model import Settings


@pytest.mark.setting("strict_asks", "show_errors", "max_answers", "max_result_bytes")
def test_each_setting_of_legs_reaches_the_policy() -> None:
    environ = {
        "GATEWAY_STRICT_ASKS": "on",
        "GATEWAY_SHOW_ERRORS": "on",
        "GATEWAY_MAX_ANSWERS": "7",
        "GATEWAY_MAX_RESULT_BYTES": "2048",
    }
    expected = LegPolicy(strict_asks=True, shows_errors=True, max_answers=7, max_result_bytes=2048)
    assert LegPolicy.of(Settings.load(environ)) == expected
