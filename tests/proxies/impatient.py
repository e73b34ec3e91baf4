"""A gateway that sends a comment after one second of silence instead of fifteen, so tests need not wait so long."""

from __future__ import annotations

import sys

from gateway.cli import main as cli
from gateway.web import exchange

exchange.KEEP_ALIVE_SECONDS = 1.0

if __name__ == "__main__":
    sys.exit(cli.main())
