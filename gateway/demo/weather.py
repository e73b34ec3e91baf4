"""One question, one retry."""

from __future__ import annotations

from pydantic import BaseModel

from gateway import Context, tool


class Login(BaseModel):
    name: str


@tool(task="optional", start="call", asks={"github_login": Login})
async def get_weather(ctx: Context, location: str) -> str:
    """Get the current weather for a location. Asks for your GitHub username first."""
    login = await ctx.elicit("github_login", "Please provide your GitHub username", Login)
    return f"Current weather in {location}:\nTemperature: 72°F\nConditions: Partly cloudy\n(looked up for {login.name})"
