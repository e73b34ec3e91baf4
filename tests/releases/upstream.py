"""The tool of a server that the gateway relays to."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from pydantic import BaseModel

from gateway import Context, tool


class Name(BaseModel):
    name: str


class Size(BaseModel):
    size: int


@tool
async def order_more(ctx: Context, order: str) -> str:
    """Ask twice, and have a side effect."""
    given = await ctx.elicit("name", "Who are you?", Name)
    size = (await ctx.elicit("size", "Which size?", Size)).size

    def effect() -> None:
        done = {"what": "step", "order": order, "flow": ctx.call_id, "key": "order", "derived": ""}
        line = json.dumps({**done, "process": "upstream", "at": time.time()}) + "\n"
        with (Path(os.environ["TEST_DIRECTORY"]) / "effects").open("ab", buffering=0) as effects:
            effects.write(line.encode())

    await ctx.step("order", effect)
    return f"{given.name}, {size}, {order}"
