"""A gateway that leaks some memory with every leg."""

from __future__ import annotations

import sys

from gateway.calls.runner import CallRunner, LegRequest, Ran
from gateway.cli import main as cli

BYTES = 1 << 20

run = CallRunner.run
kept: list[bytes] = []


async def run_and_keep(runner: CallRunner, call: LegRequest) -> Ran:
    kept.append(b"x" * BYTES)
    return await run(runner, call)


CallRunner.run = run_and_keep  # type: ignore[assignment]

if __name__ == "__main__":
    sys.exit(cli.main())
