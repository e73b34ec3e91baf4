"""What the operator decides about legs if no setting says anything else."""

from __future__ import annotations

from gateway.process.services import leg_policy
from gateway.settings.model import Settings

POLICY = leg_policy(Settings())
