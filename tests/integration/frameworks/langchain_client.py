"""Drives a gateway with the tools of langchain-mcp-adapters; each call opens its own session."""

# mypy: ignore-errors
# Its imports are in its own environment.

from __future__ import annotations

from typing import Any

import httpx
from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from mcp.types import ElicitResult

from tests.integration.frameworks.driving import PATIENCE_SECONDS, Observer, Script, User, main, said_of


async def drive(script: Script) -> dict[str, Any]:
    """List the tools, call one, and try an invalid token."""
    user, observer = User(), Observer()

    async def answer(_mcp_context: Any, params: Any, _context: Any) -> ElicitResult:
        content = user.answer(params.message)
        return ElicitResult(action="decline") if content is None else ElicitResult(action="accept", content=content)

    def make_http_client(
        headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None
    ) -> httpx.AsyncClient:
        return httpx.AsyncClient(headers=headers, timeout=timeout, auth=auth, event_hooks=observer.hooks)

    def connected(headers: dict[str, str]) -> MultiServerMCPClient:
        connection = {
            "transport": "streamable_http",
            "url": script.url,
            "headers": headers,
            "timeout": PATIENCE_SECONDS,
            "httpx_client_factory": make_http_client,
        }
        return MultiServerMCPClient({"gateway": connection}, callbacks=Callbacks(on_elicitation=answer))

    tools = {tool.name: tool for tool in await connected(script.headers).get_tools()}

    async def call(arguments: dict[str, Any], forms: list[dict[str, Any]]) -> str:
        user.forms = forms
        return "".join(block["text"] for block in await tools[script.tool].ainvoke(arguments))

    async def list_refused() -> str:
        return str(await connected(script.refused_headers).get_tools())

    said = {name: await said_of(call(*how)) for name, how in script.calls.items()}
    said["refused"] = await said_of(list_refused())
    return {
        "protocol": observer.protocol,
        "listed": list(tools),
        "said": said,
        "questions": user.questions,
    }


if __name__ == "__main__":
    main(drive)
