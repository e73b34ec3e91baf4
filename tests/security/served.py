"""A tool, a prompt and a resource with the same name, which all ask the same question."""

from __future__ import annotations

from pydantic import BaseModel

from gateway import Context, prompt, resource, tool


class Who(BaseModel):
    name: str


@tool
async def echo(text: str) -> str:
    """Give the text back."""
    return text


@tool
async def greet(ctx: Context, greeting: str = "Hello") -> str:
    """Greet the person that the user names."""
    return f"{greeting} {(await ctx.elicit('who', 'Who are you?', Who)).name}"


@tool
async def greet_too(ctx: Context, greeting: str = "Hello") -> str:
    """Do the same under another name."""
    return f"{greeting} {(await ctx.elicit('who', 'Who are you?', Who)).name}"


@prompt("greet")
async def greet_prompt(ctx: Context, greeting: str = "Hello") -> str:
    """Ask for a greeting of the person that the user names."""
    return f"{greeting} {(await ctx.elicit('who', 'Who are you?', Who)).name}"


@resource("greet://{greeting}")
async def greet_page(ctx: Context, greeting: str) -> str:
    """Show a greeting of the person that the user names."""
    return f"{greeting} {(await ctx.elicit('who', 'Who are you?', Who)).name}"


@tool
async def lose(ctx: Context, treasure: str) -> str:
    """Take an argument and an answer, then fail with an error that names neither."""
    await ctx.elicit("who", "Who are you?", Who)
    raise RuntimeError("it is gone")


@tool
async def lose_in_step(ctx: Context, treasure: str) -> str:
    """Fail in a thread, with an argument at hand."""

    def fail(at_hand: str) -> None:
        raise OSError(2, f"{len(at_hand)} characters are gone")

    await ctx.step("lose", fail, treasure)
    return "never"


@tool
async def ask_for_a_number(ctx: Context) -> str:
    """Ask for something that a test's answers do not match."""
    return str(await ctx.elicit("who", "How many?", {"type": "object", "properties": {"name": {"type": "integer"}}}))
