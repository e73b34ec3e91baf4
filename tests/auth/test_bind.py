"""A process without authentication can only be reached from its own machine."""

from __future__ import annotations

import pytest

from gateway.auth import check_bind
from gateway.errors import ConfigurationError


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.9.10", "::1", "[::1]", "localhost", "LOCALHOST", "::ffff:127.0.0.1"]
)
def test_a_loopback_address_needs_no_identity(host: str) -> None:
    check_bind("none", host)


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "", "192.168.1.2", "example.org", "127.0.0.1.example.org", "localhost.", "::ffff:10.0.0.1"],
)
def test_any_other_address_does(host: str) -> None:
    with pytest.raises(ConfigurationError, match="GATEWAY_AUTH=none") as caught:
        check_bind("none", host)
    assert "\n" not in str(caught.value)
    check_bind("jwt", host)
