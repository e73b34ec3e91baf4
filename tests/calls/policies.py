"""Policies for legs."""

from __future__ import annotations

from dataclasses import replace

from gateway.engine.leg_policy import LegPolicy
from gateway.settings.model import Settings

POLICY = LegPolicy.of(Settings())
"""What follows from the defaults of all settings."""

STRICT = replace(POLICY, strict_asks=True)
