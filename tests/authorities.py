"""Callers and their rights, for tests in which these do not matter."""

from __future__ import annotations

import math
import time

from gateway.calls.authority import Authorities, Authority
from gateway.registry.registry import Registry
from gateway.sealing.principal import Principal


def caller(sub: str, *scopes: str) -> Authority:
    """Return a caller with these scopes, whose token does not expire."""
    return Authority(Principal("", sub, ""), frozenset(scopes), math.inf)


ADA = caller("ada")


def nothing(_registry: Registry) -> frozenset[str]:
    """Return no scopes."""
    return frozenset()


def authorities() -> Authorities:
    """Return an end that only time brings about."""
    return Authorities(Registry(), time.time, lambda _key: False)
