"""Logs in at a gateway with the official `mcp` client of 1.x, calls tools, and prints what it saw as one JSON object.

Usage: python1_login.py URL TOOL…, with the Python of an environment that has mcp 1.x.
"""

# mypy: ignore-errors
# The type checker sees 2.x, which is installed in its environment.

from __future__ import annotations

import asyncio
import json
import sys
import webbrowser
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from mcp import ClientSession, types
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

CALLBACK_SECONDS = 30


class Memory:
    """Keeps the results of a login for the lifetime of the process."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client_info: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client_info

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client_info = client_info


class Callback:
    """The address that the browser is redirected to."""

    def __init__(self) -> None:
        self._codes: asyncio.Queue[tuple[str, str | None]] = asyncio.Queue()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        query = parse_qs(urlsplit((await reader.readline()).split()[1].decode()).query)
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()
        self._codes.put_nowait((query["code"][0], query["state"][0]))

    async def wait(self) -> tuple[str, str | None]:
        return await asyncio.wait_for(self._codes.get(), CALLBACK_SECONDS)


async def open_browser(url: str) -> None:
    webbrowser.open(url)


async def drive(url: str, tools: list[str]) -> dict[str, Any]:
    """Log in as the documentation of the client shows, and return what it saw."""
    questions: list[str] = []
    callback = Callback()
    server = await asyncio.start_server(callback.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    metadata = OAuthClientMetadata(
        client_name="mcp 1.x", redirect_uris=[f"http://127.0.0.1:{port}/"], token_endpoint_auth_method="none"
    )
    login = OAuthClientProvider(url, metadata, Memory(), redirect_handler=open_browser, callback_handler=callback.wait)

    async def answer(_context: Any, params: Any) -> types.ElicitResult:
        questions.append(params.message)
        return types.ElicitResult(action="accept", content={"topic": "sailing"})

    async with (
        server,
        httpx.AsyncClient(auth=login, timeout=30) as http_client,
        streamable_http_client(url, http_client=http_client) as (reader, writer, _),
        ClientSession(reader, writer, elicitation_callback=answer) as session,
    ):
        await session.initialize()
        listed = [tool.name for tool in (await session.list_tools()).tools]
        results = ["".join(block.text for block in (await session.call_tool(tool)).content) for tool in tools]
    return {"listed": listed, "results": results, "questions": questions}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(drive(sys.argv[1], sys.argv[2:]))) + "\n")
