"""A gateway that forgets the answers of a call between two legs."""

from __future__ import annotations

import sys
from typing import Any

from gateway.cli import main as cli
from gateway.engine.journal import Journal
from gateway.sealing.envelope import Sealer
from gateway.tokens.request_state import SealedCarrier

open_state = SealedCarrier.open


def open_and_forget(carrier: SealedCarrier, sealer: Sealer, state: Any, binding: bytes) -> Journal:
    open_state(carrier, sealer, state, binding)
    return carrier.begin()


SealedCarrier.open = open_and_forget  # type: ignore[assignment]

if __name__ == "__main__":
    sys.exit(cli.main())
