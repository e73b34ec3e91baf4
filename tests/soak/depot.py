"""The depot: a real server of the `mcp` SDK behind the gateway. Nobody can undo what it does."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import uvicorn
from mcp.server.mcpserver import Elicit, MCPServer, Resolve
from pydantic import BaseModel

from loadtest.cluster.common import HOST, LoggedProcess
from tests.soak.effects import DIRECTORY, Effect, note

WORK_SECONDS: Final = 0.2
"""How long it works before its effect, and again after it."""

server = MCPServer("depot", log_level="CRITICAL")


class Go(BaseModel):
    go: str


async def go() -> Elicit[Go]:
    return Elicit("Shall it go?", Go)


@server.tool(structured_output=False)
async def post(order: str) -> str:
    """Post an order. Two calls post it twice."""
    flow = uuid.uuid4().hex
    await asyncio.sleep(WORK_SECONDS)
    note(Effect("step", order, flow, f"{flow}:post"))
    await asyncio.sleep(WORK_SECONDS)
    return f"order {order} by flow {flow}"


@server.tool(structured_output=False)
async def parcel(order: str, go: Annotated[Go, Resolve(go)]) -> str:
    """Post an order that its customer has confirmed."""
    return f"{go.go}, {await post(order)}"


class Depot(LoggedProcess):
    """The depot as a process, at the same address over all its restarts."""

    def __init__(self, directory: Path) -> None:
        super().__init__("depot", {DIRECTORY: str(directory)}, directory / "depot.log")
        self._port = self._keep_port()

    @property
    def url(self) -> str:
        """Its MCP endpoint."""
        return f"http://{HOST}:{self._port}/mcp"

    def _command(self) -> Sequence[str]:
        return [sys.executable, "-m", "tests.soak.depot", str(self._port)]

    def wait_ready(self) -> None:
        """Wait until it accepts connections."""
        self._wait_started(self._answers)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self._port)
        with contextlib.closing(connection), contextlib.suppress(OSError):
            connection.connect()
            return True
        return False


if __name__ == "__main__":
    app = server.streamable_http_app()
    uvicorn.run(app, host=HOST, port=int(sys.argv[1]), log_level="critical", access_log=False)
