"""Drives a gateway with the toolset of google-adk."""

# mypy: ignore-errors
# Its imports are in its own environment.

from __future__ import annotations

from typing import Any

import httpx2
from google.adk.agents import Agent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.sessions import InMemorySessionService
from google.adk.tools.mcp_tool import McpToolset, StreamableHTTPConnectionParams
from google.adk.tools.tool_context import ToolContext
from mcp.types import ElicitResult

from tests.integration.frameworks.driving import PATIENCE_SECONDS, Observer, Script, User, main, said_of


async def drive(script: Script) -> dict[str, Any]:
    """List the tools, call one, and try an invalid token."""
    user, observer = User(), Observer()

    async def answer(_context: Any, params: Any) -> ElicitResult:
        content = user.answer(params.message)
        return ElicitResult(action="decline") if content is None else ElicitResult(action="accept", content=content)

    def make_http_client(
        headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None
    ) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, event_hooks=observer.hooks)

    def connected(headers: dict[str, str]) -> McpToolset:
        connection = StreamableHTTPConnectionParams(
            url=script.url, headers=headers, timeout=PATIENCE_SECONDS, httpx_client_factory=make_http_client
        )
        return McpToolset(connection_params=connection, elicitation_callback=answer)

    toolset = connected(script.headers)
    tools = {tool.name: tool for tool in await toolset.get_tools()}
    sessions = InMemorySessionService()
    context = ToolContext(
        InvocationContext(
            session_service=sessions,
            invocation_id="one",
            agent=Agent(name="caller"),
            session=await sessions.create_session(app_name="tests", user_id="ada"),
        )
    )

    async def call(arguments: dict[str, Any], forms: list[dict[str, Any]]) -> str:
        user.forms = forms
        result = await tools[script.tool].run_async(args=arguments, tool_context=context)
        return "".join(block["text"] for block in result["content"])

    async def list_refused() -> str:
        return str(await connected(script.refused_headers).get_tools())

    said = {name: await said_of(call(*how)) for name, how in script.calls.items()}
    said["refused"] = await said_of(list_refused())
    await toolset.close()
    return {
        "protocol": observer.protocol,
        "listed": list(tools),
        "said": said,
        "questions": user.questions,
    }


if __name__ == "__main__":
    main(drive)
