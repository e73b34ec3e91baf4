"""A gateway whose workers ignore the tasks of a lost worker."""

from __future__ import annotations

import sys
from typing import Any

from gateway.cli import main as cli
from gateway.storage.work_queue import RedisWorkQueue


async def find_none(_queue: RedisWorkQueue, _partition: int, _count: int) -> list[Any]:
    return []


RedisWorkQueue._lost_entries = find_none  # type: ignore[assignment]

if __name__ == "__main__":
    sys.exit(cli.main())
