"""Tools that ask every kind of question and return every kind of content, to try the playground with."""

from __future__ import annotations

import asyncio
import base64
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from gateway import Context, Elicit, ToolResult, complete, content, prompt, resource, tool

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><script>parent.pwned=1</script></svg>'
SILENCE = base64.b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAESsAAABAAgAZGF0YQAAAAA=")


class Address(BaseModel):
    city: str
    zip: Annotated[str, Field(min_length=4, max_length=6)]


class Card(BaseModel):
    number: int


class Iban(BaseModel):
    iban: str


@tool
async def order(  # noqa: PLR0917 - a form with all kinds of fields
    size: Literal["small", "large"],
    address: Address,
    tags: list[str],
    pay: Card | Iban,
    count: Annotated[int, Field(ge=1)] = 2,
    gift: bool = False,
    mail: Annotated[str | None, Field(json_schema_extra={"format": "email"})] = None,
) -> dict[str, Any]:
    """Order something. Returns its arguments."""
    return {
        "size": size,
        "city": address.city,
        "tags": tags,
        "pay": pay.model_dump(),
        "count": count,
        "gift": gift,
        "mail": mail,
    }


@tool
async def double(n: int) -> str:
    """Double an integer of any size."""
    return str(2 * n)


class Colour(BaseModel):
    colour: Literal["red", "blue"]
    shades: Annotated[int, Field(ge=1, le=9)] = 3


@tool
async def interview(ctx: Context) -> str:
    """Ask everything that can be asked, one thing after the other."""
    colour = await ctx.elicit("colour", "Which colour?", Colour, default=None)
    url = await ctx.elicit_url("login", "Log in, please", "https://login.example.com/start?x=1", default="declined")
    said = await ctx.sample("poem", [{"role": "user", "content": {"type": "text", "text": "A poem?"}}], max_tokens=50)
    roots = await ctx.roots("roots")
    both = await ctx.ask(one=Elicit("One?", int), two=Elicit("Two?", int))
    asked = [str(colour and colour.colour), str(url), str(said.content), str([root.uri for root in roots])]
    return " | ".join([*asked, f"{both['one']}+{both['two']}"])


@tool
async def show(ctx: Context) -> list[Any]:
    """Return every kind of content, with progress and logs before."""
    for step in range(1, 4):
        ctx.progress(step, 3, f"step {step}")
        ctx.log("info", {"step": step})
        await asyncio.sleep(0.05)
    return [
        content.text("some text"),
        content.image(PIXEL, "image/png"),
        content.image(SVG, "image/svg+xml"),
        content.audio(SILENCE, "audio/wav"),
        content.resource_link("https://example.com/page", name="a page"),
        content.embedded("file:///notes.txt", "embedded text", "text/plain"),
    ]


@tool
async def fail() -> ToolResult:
    """Return an error of a tool."""
    return content.error("the printer is on fire")


@tool
async def slow() -> str:
    """Take a minute."""
    await asyncio.sleep(60)
    return "done"


@prompt
async def letter(language: str, tone: str = "kind") -> str:
    """Write a letter."""
    return f"Write a {tone} letter in {language}."


@complete(letter, "language")
def languages(typed: str) -> list[str]:
    return [name for name in ("English", "Estonian", "German") if name.lower().startswith(typed.lower())]


@resource("notes://all", announces_changes=True)
async def notes() -> str:
    """All notes."""
    return "# Notes\nbuy <b>milk</b>"


@resource("notes://{name}")
async def note(name: str) -> str:
    """One note."""
    return f"the note {name}"


@tool
async def change(ctx: Context) -> str:
    """Announce that the notes and the list of tools have changed."""
    ctx.changed("notes://all")
    ctx.changed("tools")
    return "announced"
