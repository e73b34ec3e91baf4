"""Drives a gateway with the official `mcp` client of 2.x in a session. This client has no tasks on this wire.

Usage: -m tests.integration.clients.handshake_python2 URL REPLICA-URL.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import mcp_types
from mcp import MCPError
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.integration.clients.handshake import Driver, Watcher


async def sample(context: Any, params: Any) -> mcp_types.CreateMessageResult:
    content = mcp_types.TextContent(type="text", text="Hello,")
    return mcp_types.CreateMessageResult(role="assistant", content=content, model="none")


async def roots(context: Any) -> mcp_types.ListRootsResult:
    return mcp_types.ListRootsResult(roots=[mcp_types.Root.model_validate({"uri": "file:///tmp"})])


class Python2(Driver):
    refusal = MCPError

    @asynccontextmanager
    async def connected(self, url: str, watcher: Watcher) -> AsyncIterator[Client]:
        async def answer(context: Any, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
            assert isinstance(params, mcp_types.ElicitRequestFormParams)
            content = watcher.answer_to(params.message, params.requested_schema["properties"])
            return mcp_types.ElicitResult(action="accept", content=content)

        async with (
            httpx2.AsyncClient(event_hooks=watcher.hooks, timeout=30) as http_client,
            Client(
                streamable_http_client(url, http_client=http_client),
                mode="legacy",
                elicitation_callback=answer,
                sampling_callback=sample,
                list_roots_callback=roots,
                logging_callback=watcher.log,
            ) as client,
        ):
            watcher.protocol = client.protocol_version
            yield client

    async def leave(self, client: Client, watcher: Watcher) -> None:
        """Leave it to the client, which notifies the server itself."""

    def structured(self, result: mcp_types.CallToolResult) -> Any:
        return result.structured_content


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # what the newest wire does without
    Python2().main()
