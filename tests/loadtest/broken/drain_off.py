"""A gateway whose replicas stop at once, without finishing open requests."""

from __future__ import annotations

import os
import sys
from types import FrameType

from gateway.cli import main as cli
from gateway.http.draining_server import DrainingServer


def leave(_server: DrainingServer, _signal: int, _frame: FrameType | None) -> None:
    os._exit(0)


DrainingServer.handle_exit = leave  # type: ignore[assignment]

if __name__ == "__main__":
    sys.exit(cli.main())
