"""A server of 2025-11-25 whose calls act, as a process that is killed: `python -m tests.chaos.acting PORT EFFECTS`."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from tests.upstreams.servers.earlier import Params, text
from tests.upstreams.servers.plain_http import Exchange, serve_forever
from tests.upstreams.servers.session import InSessions, Open


@dataclass
class Acting(InSessions):
    """The server. It appends the key of each call to the file of effects before it answers.

    Its sessions have other ids than those that it had before it was killed.
    """

    effects: Path = Path(os.devnull)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.numbers = itertools.count(time.time_ns())
        self._file = os.open(self.effects, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    @override
    async def _of(self, message: Any, params: Params) -> dict[str, Any]:
        if message["method"] == "tools/list":
            return {"tools": [{"name": "act", "inputSchema": {"type": "object"}}]}
        return await super()._of(message, params)

    async def _act(self, exchange: Exchange, message: Any, _session: Open, arguments: Params) -> None:
        await asyncio.sleep(arguments["seconds"])
        os.write(self._file, f"{arguments['key']}\n".encode())
        await asyncio.sleep(arguments["seconds"])
        self._end(exchange, message, text(arguments["key"]))


if __name__ == "__main__":
    serve_forever(Acting(effects=Path(sys.argv[2])).handle, int(sys.argv[1]))
