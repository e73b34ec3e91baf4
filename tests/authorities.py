"""Callers and what they may do, for tests that need nothing of it."""

from __future__ import annotations

import math
import time

from gateway.authoring.registry import Registry
from gateway.calls.authority import Authorities, Authority
from gateway.sealing.principal import Principal


def caller(sub: str, *scopes: str) -> Authority:
    """Return somebody with these scopes, whose token does not end."""
    return Authority(Principal("", sub, ""), frozenset(scopes), math.inf)


ADA = caller("ada")


def nothing(_registry: Registry) -> frozenset[str]:
    """Return no scopes."""
    return frozenset()


def authorities() -> Authorities:
    """Return what ends nothing but what time ends."""
    return Authorities(Registry(), time.time, lambda _key: False)
