"""The tools that agents call, and the settings of the replicas that serve them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from gateway import Context, tool

AUDIENCE: Final = "tests"
SECRET: Final = "a secret of more than thirty-two bytes"
SETTINGS: Final = {
    "GATEWAY_TOOLS": "tests.agents.tools",
    "GATEWAY_AUTH": "jwt",
    "GATEWAY_JWT_SECRET": SECRET,
    "GATEWAY_AUDIENCE": AUDIENCE,
}

QUESTIONS: Final = ("How was bug 7 resolved?", "Which bug is the original?")
COUNTING: Final = "How many days will it take?"


class Resolution(BaseModel):
    resolution: Annotated[Literal["Fixed", "Won't fix", "Duplicate"], Field(description="How the bug was resolved")]


class Original(BaseModel):
    original: Annotated[str, Field(description="The bug that was reported first")]


class Days(BaseModel):
    days: Annotated[int, Field(description="How many days")]


@tool
async def close_bug(ctx: Context, bug: int, how: str = "ask") -> str:
    """Close a bug. The user is asked how it was resolved, unless that is known."""
    if how == "ask":
        how = (await ctx.elicit("resolution", QUESTIONS[0], Resolution)).resolution
    if how != "Duplicate":
        return f"Bug {bug} is closed: {how}."
    original = (await ctx.elicit("original", QUESTIONS[1], Original)).original
    return f"Bug {bug} is closed as a duplicate of bug {original}."


@tool
async def estimate_bug(ctx: Context, bug: int) -> str:
    """Estimate a bug. The user is asked for a number."""
    return f"Bug {bug} will take {(await ctx.elicit('days', COUNTING, Days)).days} days."


TOOL: Final = "close_bug"
NUMBER_TOOL: Final = "estimate_bug"
PLAIN: Final[dict[str, Any]] = {"bug": 6, "how": "Fixed"}
CLOSED: Final = "Bug 6 is closed: Fixed."
ASKING: Final[dict[str, Any]] = {"bug": 7}
ANSWERED: Final = "Bug 7 is closed as a duplicate of bug 42."
