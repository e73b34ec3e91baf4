"""Drives a gateway with the server of openai-agents, directly and in an agent with a scripted model."""

# mypy: ignore-errors
# Its imports are in its own environment.

from __future__ import annotations

import json
from typing import Any

import httpx2
from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from tests.integration.frameworks.driving import PATIENCE_SECONDS, Observer, Script, main, said_of


class Obedient(Model):
    """Calls a tool, then repeats its output."""

    def __init__(self, tool: str, arguments: dict[str, Any]) -> None:
        self._call = ResponseFunctionToolCall(
            type="function_call", call_id="one", name=tool, arguments=json.dumps(arguments)
        )

    async def get_response(self, *_: Any, input: list[Any], **_options: Any) -> ModelResponse:  # noqa: A002 - theirs
        last = input[-1]
        output = self._call if last.get("type") != "function_call_output" else message_of(text_of(last["output"]))
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **_options: Any) -> Any:
        raise NotImplementedError


def message_of(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(id="one", type="message", role="assistant", status="completed", content=[part])


def text_of(output: Any) -> str:
    """The text of a tool's output, which is a string or a list of parts."""
    return output if isinstance(output, str) else "".join(part["text"] for part in output)


async def drive(script: Script) -> dict[str, Any]:
    """List the tools, call one directly and in an agent, and try an invalid token."""
    observer = Observer()
    set_tracing_disabled(disabled=True)

    def make_http_client(
        headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None
    ) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, event_hooks=observer.hooks)

    def connected(headers: dict[str, str]) -> MCPServerStreamableHttp:
        params = {
            "url": script.url,
            "headers": headers,
            "timeout": PATIENCE_SECONDS,
            "httpx_client_factory": make_http_client,
        }
        return MCPServerStreamableHttp(params, client_session_timeout_seconds=PATIENCE_SECONDS)

    async def refused() -> str:
        async with connected(script.refused_headers) as server:
            return str(await server.list_tools())

    async with connected(script.headers) as server:

        async def call(arguments: dict[str, Any], _forms: Any) -> str:
            return "".join(block.text for block in (await server.call_tool(script.tool, arguments)).content)

        async def run(arguments: dict[str, Any], _forms: Any) -> str:
            agent = Agent("caller", model=Obedient(script.tool, arguments), mcp_servers=[server])
            return (await Runner.run(agent, "Go")).final_output

        listed = [tool.name for tool in await server.list_tools()]
        said = {name: await said_of(call(*how)) for name, how in script.calls.items()}
        said |= {f"{name} in an agent": await said_of(run(*how)) for name, how in script.calls.items()}
    said["refused"] = await said_of(refused())
    return {"protocol": observer.protocol, "listed": listed, "said": said}


if __name__ == "__main__":
    main(drive)
