"""A gateway that accepts every request, and hands nothing on."""

from __future__ import annotations

import math
import sys
import time

from gateway.admission.inflight import InFlight
from gateway.admission.leg_limit import FixedLimit
from gateway.cli import main as cli
from gateway.process import replica
from gateway.settings.model import Settings


def take_on_everything(settings: Settings) -> InFlight:
    return InFlight(FixedLimit(1_000_000), math.inf, time.monotonic)


replica._load = take_on_everything

if __name__ == "__main__":
    sys.exit(cli.main())
