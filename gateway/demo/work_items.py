"""Two rounds of questions. The second question depends on the first answer, which travels sealed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from gateway import Context, tool


class Resolution(BaseModel):
    resolution: Annotated[
        Literal["Fixed", "Won't Fix", "Duplicate", "By Design"], Field(description="Resolution type for this bug")
    ]


class DuplicateOf(BaseModel):
    duplicateOfId: Annotated[float, Field(description="Work item ID of the original bug")]


@tool(asks={"resolution": Resolution, "duplicate_of": DuplicateOf})
async def update_work_item(ctx: Context, workItemId: int, fields: dict[str, str]) -> str:
    """Update a work item. Asks for what the project's rules require when a bug is resolved."""
    if fields.get("System.State") != "Resolved":
        return f"Work item #{workItemId} updated: {', '.join(sorted(fields)) or 'nothing'}."
    how = await ctx.elicit(
        "resolution", f"Resolving Bug #{workItemId} requires a resolution. How was this bug resolved?", Resolution
    )
    if how.resolution != "Duplicate":
        return f"Bug #{workItemId} resolved as {how.resolution}. State set to Resolved."
    original = await ctx.elicit(
        "duplicate_of", "Since this is a duplicate, which work item is the original?", DuplicateOf
    )
    return (
        f"Bug #{workItemId} resolved as Duplicate of Bug #{original.duplicateOfId:g}."
        " State set to Resolved and duplicate link created."
    )
