"""A gateway in which every replica but the first one refuses every request."""

from __future__ import annotations

import sys

from gateway.admission.inflight import InFlight
from gateway.cli import main as cli

if "r1" not in sys.argv:
    InFlight.arrive = lambda *_: None  # type: ignore[method-assign]

if __name__ == "__main__":
    sys.exit(cli.main())
