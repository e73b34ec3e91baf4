"""The official SDK's server with the tools of ephemeral users: the same names, questions and results.

The Python of a separate environment runs it, in several processes behind one balancer. They share a key, so states
open at each of them. The questions are asked in the SDK's return style, which costs it least.

Usage: sdk_server.py NAME HOST PORT, with the key in PEER_STATE_KEY.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.request_state import RequestStateSecurity
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequests, InputRequiredResult
from starlette.requests import Request
from starlette.responses import PlainTextResponse

server = MCPServer(
    "loadtest",
    version="1.0.0",
    log_level="WARNING",
    request_state_security=RequestStateSecurity(keys=[os.environ["PEER_STATE_KEY"]]),
)


@server.tool(structured_output=False)
async def get_weather(ctx: Context, location: str) -> str | InputRequiredResult:
    """Get the current weather for a location. Asks for your GitHub username first."""
    known = answers(ctx)
    if "github_login" not in known:
        return ask(known, github_login=("Please provide your GitHub username", {"name": {"type": "string"}}))
    name = known["github_login"]["name"]
    return f"Current weather in {location}:\nTemperature: 72°F\nConditions: Partly cloudy\n(looked up for {name})"


@server.tool(structured_output=False)
async def update_work_item(
    ctx: Context,
    workItemId: int,  # noqa: N803 - the name of the argument
    fields: dict[str, str],
) -> str | InputRequiredResult:
    """Update a work item. Asks for what the project's rules require when a bug is resolved."""
    if fields.get("System.State") != "Resolved":
        return f"Work item #{workItemId} updated: {', '.join(sorted(fields)) or 'nothing'}."
    known = answers(ctx)
    if "resolution" not in known:
        resolutions = ["Fixed", "Won't Fix", "Duplicate", "By Design"]
        message = f"Resolving Bug #{workItemId} requires a resolution. How was this bug resolved?"
        return ask(known, resolution=(message, {"resolution": {"type": "string", "enum": resolutions}}))
    resolution = known["resolution"]["resolution"]
    if resolution != "Duplicate":
        return f"Bug #{workItemId} resolved as {resolution}. State set to Resolved."
    if "duplicate_of" not in known:
        message = "Since this is a duplicate, which work item is the original?"
        return ask(known, duplicate_of=(message, {"duplicateOfId": {"type": "number"}}))
    return (
        f"Bug #{workItemId} resolved as Duplicate of Bug #{known['duplicate_of']['duplicateOfId']:g}."
        " State set to Resolved and duplicate link created."
    )


@server.tool(structured_output=False)
async def link_accounts(ctx: Context) -> str | InputRequiredResult:
    """Link your accounts at two sites."""
    known = answers(ctx)
    if not {"github_login", "google_login"} <= known.keys():
        name = {"name": {"type": "string"}}
        return ask(
            known,
            github_login=("Please provide your GitHub username", name),
            google_login=("Please provide your Google username", name),
        )
    github, google = known["github_login"]["name"], known["google_login"]["name"]
    return f"Linked GitHub account {github} and Google account {google}."


def answers(ctx: Context) -> dict[str, Any]:
    """Return the content of all forms filled in so far, by key: from the state and from this request."""
    known: dict[str, Any] = json.loads(ctx.request_state or "{}")
    for key, response in (ctx.input_responses or {}).items():
        if isinstance(response, ElicitResult) and response.action == "accept":
            known[key] = response.content
    return known


def ask(known: dict[str, Any], **questions: tuple[str, dict[str, Any]]) -> InputRequiredResult:
    """Ask questions, each a message and the properties of a form; the state keeps the known answers."""
    requests: InputRequests = {
        key: ElicitRequest(
            params=ElicitRequestFormParams(
                message=message,
                requested_schema={"type": "object", "properties": properties, "required": list(properties)},
            )
        )
        for key, (message, properties) in questions.items()
    }
    return InputRequiredResult(input_requests=requests, request_state=json.dumps(known))


async def ready(_request: Request) -> PlainTextResponse:
    """Answer the balancer's health check."""
    return PlainTextResponse("ready")


if __name__ == "__main__":
    name, host, port = sys.argv[1:]
    app = server.streamable_http_app(json_response=True, stateless_http=True)
    app.add_route("/readyz", ready)
    uvicorn.run(
        app,
        host=host,
        port=int(port),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
        headers=[("X-Gateway-Replica", name)],  # names the server that answered
    )
