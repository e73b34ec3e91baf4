"""The tools for the official conformance suite that only the wire with a handshake needs, written with the public API.

Names, arguments and texts are the suite's.
"""

from __future__ import annotations

import asyncio
import json
from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel

from gateway import Context, tool

PAUSE_SECONDS: Final = 0.05


class User(BaseModel):
    username: str
    email: str


class Status(StrEnum):
    active = "active"
    inactive = "inactive"
    pending = "pending"


class Profile(BaseModel):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Status = Status.active
    verified: bool = True


CHOICES: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)],
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2, 3)]},
        },
    },
}
"""All five ways in which a form can offer choices."""


@tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Log three times."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.log("info", line)
        await asyncio.sleep(PAUSE_SECONDS)
    return "Tool with logging executed successfully"


@tool
async def test_sampling(ctx: Context, prompt: str) -> str:
    """Ask the client's language model."""
    completion = await ctx.sample("completion", prompt, max_tokens=100)
    return f"LLM response: {completion.text}"


@tool
async def test_elicitation(ctx: Context, message: str) -> str:
    """Ask the user for a name and an address."""
    user = await ctx.elicit("user", message, User)
    return f"User response: action: accept, content: {user.model_dump_json()}"


@tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask with a default for each type."""
    profile = await ctx.elicit("profile", "Please review and update the form fields", Profile)
    return f"Elicitation completed: action: accept, content: {profile.model_dump_json()}"


@tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask for choices."""
    chosen = await ctx.elicit("choices", "Please select options", CHOICES)
    return f"Elicitation completed: action: accept, content: {json.dumps(chosen)}"


@tool
async def test_reconnection(ctx: Context) -> str:
    """Answer with a stream, in which the suite looks for event ids."""
    ctx.log("info", "There is nothing to come back to")
    return "Reconnection test completed"
