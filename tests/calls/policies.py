"""The policy for legs that follows from the defaults of all settings."""

from __future__ import annotations

from gateway.process.services import leg_policy
from gateway.settings.model import Settings

POLICY = leg_policy(Settings())
