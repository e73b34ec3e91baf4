"""The definition of one caller."""

from __future__ import annotations

import pytest

from gateway.admission.bodies import BodyBudget
from gateway.admission.caller_limits import CallerLimits
from gateway.errors import RateLimited, TooManyStreams
from gateway.sealing.principal import Principal
from gateway.settings.rates import Rate

ALICE = Principal("https://issuer.example", "alice", "app")


@pytest.fixture
def limits() -> CallerLimits:
    return CallerLimits(Rate(1, 3600, 1), streams=1, clock=lambda: 0.0, bodies=BodyBudget(4096, 1024))


SAME = {
    "one user at two places": ((ALICE, "192.0.2.1"), (ALICE, "::1")),
    "nobody at one address": ((None, "192.0.2.1"), (None, "192.0.2.1")),
    "nobody in one IPv6 network": ((None, "2001:db8:0:1::1"), (None, "2001:db8:0:1:ffff::2")),
    "an IPv4 address both ways": ((None, "192.0.2.1"), (None, "::ffff:192.0.2.1")),
    "an address with a zone": ((None, "fe80::1%eth0"), (None, "fe80::2")),
    "no address": ((None, ""), (None, "")),
}
OTHER = {
    "two users at one place": ((ALICE, "192.0.2.1"), (Principal("https://issuer.example", "bob", "app"), "192.0.2.1")),
    "one user of two clients": ((ALICE, "::1"), (Principal("https://issuer.example", "alice", "other"), "::1")),
    "a user and nobody": ((ALICE, "192.0.2.1"), (None, "192.0.2.1")),
    "two addresses": ((None, "192.0.2.1"), (None, "192.0.2.2")),
    "two IPv6 networks": ((None, "2001:db8:0:1::1"), (None, "2001:db8:0:2::1")),
    "two IPv4 addresses as IPv6": ((None, "::ffff:192.0.2.1"), (None, "::ffff:192.0.2.2")),
    "no addresses": ((None, "no:address"), (None, "another:one")),
}

Pair = tuple[tuple[Principal | None, str], tuple[Principal | None, str]]


@pytest.mark.parametrize("pair", SAME.values(), ids=SAME)
def test_these_count_as_one_caller(limits: CallerLimits, pair: Pair) -> None:
    first, second = pair
    limits.admit(*first)
    with pytest.raises(RateLimited):
        limits.admit(*second)
    with limits.stream(*first), pytest.raises(TooManyStreams), limits.stream(*second):
        pytest.fail("a second stream opened")


@pytest.mark.parametrize("pair", OTHER.values(), ids=OTHER)
def test_these_count_as_different_callers(limits: CallerLimits, pair: Pair) -> None:
    first, second = pair
    limits.admit(*first)
    limits.admit(*second)
    with limits.stream(*first), limits.stream(*second):
        pass


def test_without_a_rate_any_number_passes() -> None:
    limits = CallerLimits(None, streams=1, clock=lambda: 0.0, bodies=BodyBudget(4096, 1024))
    for _ in range(1000):
        limits.admit(ALICE, "192.0.2.1")
