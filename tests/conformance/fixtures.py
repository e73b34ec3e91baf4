"""The tools, resources and prompts for the official conformance suite, written with the public authoring API only.

Names, URIs and texts are the suite's. `test_simple_text` stays the first tool: the suite calls the first one without
arguments to try headers on.
"""

from __future__ import annotations

import asyncio
import io
import struct
import wave
import zlib
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from gateway import (
    Content,
    Context,
    Elicit,
    Roots,
    Sample,
    ToolResult,
    complete,
    content,
    prompt,
    resource,
    tool,
)

PNG: Final = "image/png"
WAV: Final = "audio/wav"
PAUSE_SECONDS: Final = 0.05
CITIES: Final = ("test", "testbed", "testimony", "Thessaloniki", "Tromsø")


def make_png(red: int, green: int, blue: int, *, side: int = 8) -> bytes:
    """Make a square picture of one colour (PNG, W3C Recommendation, sections 5 and 11)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    eight_bit_rgb = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = (b"\0" + bytes((red, green, blue)) * side) * side
    return b"".join(
        (b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", eight_bit_rgb), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    )


def make_wav(*, samples: int = 800) -> bytes:
    """Make a tenth of a second of a square wave (8 kHz, mono, 16 bit)."""
    sound = io.BytesIO()
    with wave.open(sound, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(8000)
        writer.writeframes(b"".join(struct.pack("<h", 8000 if n // 10 % 2 else -8000) for n in range(samples)))
    return sound.getvalue()


class UserName(BaseModel):
    name: str


class Confirmation(BaseModel):
    ok: bool


class FavouriteColour(BaseModel):
    color: str


class UserContext(BaseModel):
    context: str


# Tools that answer at once


@tool
async def test_simple_text() -> str:
    """Answer with one text."""
    return "This is a simple text response for testing."


@tool
async def test_image_content() -> Content:
    """Answer with a picture."""
    return content.image(make_png(200, 30, 30), PNG)


@tool
async def test_audio_content() -> Content:
    """Answer with a sound."""
    return content.audio(make_wav(), WAV)


@tool
async def test_embedded_resource() -> Content:
    """Answer with a resource, embedded."""
    return content.embedded("test://embedded-resource", "This is an embedded resource content.", "text/plain")


@tool
async def test_multiple_content_types() -> list[Content]:
    """Answer with a text, a picture and a resource."""
    return [
        content.text("Multiple content types test:"),
        content.image(make_png(30, 30, 200), PNG),
        content.embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json"),
    ]


@tool
async def test_error_handling() -> ToolResult:
    """Fail on purpose."""
    return content.error("This tool intentionally returns an error for testing")


@tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress three times."""
    for done in (0, 50, 100):
        ctx.progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(PAUSE_SECONDS)
    return "Tool with progress executed successfully"


@tool
async def test_logging_tool(ctx: Context) -> str:
    """Log three times; the client sees it only if it asked for logs."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        ctx.log("info", line)
        await asyncio.sleep(PAUSE_SECONDS)
    return "Tool with logging executed successfully"


JSON_SCHEMA_2020_12: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@tool(input_schema=JSON_SCHEMA_2020_12)
async def json_schema_2020_12_tool(**arguments: Any) -> str:
    """Take arguments by a schema full of keywords that are easily dropped."""
    return f"Received: {', '.join(sorted(arguments))}"


@tool
async def test_x_mcp_header(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "",  # noqa: PT028 - no test
) -> str:
    """Take an argument that also travels in a header."""
    return f"Region: {region}"


# Tools that announce changes


on_change: Final[list[Callable[[str], None]]] = []
"""Functions that change a list, in a server that can; see `tests.conformance.behind`."""


def _change(ctx: Context, kind: Literal["tools", "prompts"]) -> None:
    for change in on_change:
        change(kind)
    if not on_change:
        ctx.changed(kind)


@tool
async def test_trigger_tool_change(ctx: Context) -> str:
    """Change the list of tools if this server can, and notify listeners."""
    _change(ctx, "tools")
    return "Told of a change of the tools"


@tool
async def test_trigger_prompt_change(ctx: Context) -> str:
    """Change the list of prompts if this server can, and notify listeners."""
    _change(ctx, "prompts")
    return "Told of a change of the prompts"


# Tools that ask


@tool
async def test_missing_capability(ctx: Context) -> str:
    """Need a client that shares its language model."""
    completion = await ctx.sample("needed", "Say anything.", max_tokens=100)
    return completion.text


@tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Ask in the middle of work."""
    ctx.progress(1, 2)
    user = await ctx.elicit("user_name", "What is your name?", UserName)
    return f"Hello, {user.name}!"


@tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Ask the user for a name."""
    user = await ctx.elicit("user_name", "What is your name?", UserName)
    return f"Hello, {user.name}!"


@tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the client's language model."""
    completion = await ctx.sample("capital_question", "What is the capital of France?", max_tokens=100)
    return f"The model said: {completion.text}"


@tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask which roots the client offers."""
    roots = await ctx.roots("client_roots")
    return f"Roots: {', '.join(root.uri for root in roots)}"


@tool
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Ask with a state that has to come back."""
    confirmation = await ctx.elicit("confirm", "Please confirm", Confirmation)
    return "state-ok" if confirmation.ok else "not confirmed"


@tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask everything that can be asked at once."""
    answers = await ctx.ask(
        user_name=Elicit("What is your name?", UserName),
        greeting=Sample("Generate a greeting", 50),
        client_roots=Roots(),
    )
    return f"{answers['greeting'].text} {answers['user_name'].name}, of {len(answers['client_roots'])} roots"


@tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask twice, one after the other."""
    user = await ctx.elicit("step1", "Step 1: What is your name?", UserName)
    favourite = await ctx.elicit("step2", "Step 2: What is your favorite color?", FavouriteColour)
    return f"Hello {user.name}, you like {favourite.color}"


@tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask with a state that must not be changed."""
    confirmation = await ctx.elicit("confirm", "Please confirm", Confirmation)
    return "state-ok" if confirmation.ok else "not confirmed"


@tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask only what the client can answer."""
    questions: dict[str, Elicit[UserName] | Sample | Roots] = {}
    if ctx.can("elicitation.form"):
        questions["user_name"] = Elicit("What is your name?", UserName)
    if ctx.can("sampling"):
        questions["greeting"] = Sample("Generate a greeting", 50)
    if ctx.can("roots"):
        questions["client_roots"] = Roots()
    answers = await ctx.ask(**questions)
    return f"Answered: {', '.join(answers)}"


# Resources


@resource("test://static-text", name="Static text", mime_type="text/plain")
async def static_text() -> str:
    """A text that never changes."""
    return "This is the content of the static text resource."


@resource("test://static-binary", name="Static binary", mime_type=PNG)
async def static_binary() -> bytes:
    """A picture that never changes."""
    return make_png(30, 200, 30)


@resource("test://watched-resource", name="Watched resource", mime_type="text/plain", announces_changes=True)
async def watched_resource() -> str:
    """A text that clients may watch."""
    return "Watched resource content"


@resource("test://template/{id}/data", name="Template data", mime_type="application/json")
async def template_data(id: str) -> dict[str, Any]:  # noqa: A002 - the suite's variable
    """Data by id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


# Prompts


@prompt
async def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@prompt
async def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@complete(test_prompt_with_arguments, "arg1")
def complete_arg1(value: str) -> list[str]:
    """Suggest what begins with what is typed."""
    return [city for city in CITIES if city.startswith(value)]


@prompt
async def test_prompt_with_embedded_resource(resourceUri: str) -> list[Any]:  # noqa: N803 - the suite's argument
    """A prompt with a resource in it."""
    return [
        content.user(content.embedded(resourceUri, "Embedded resource content for testing.", "text/plain")),
        content.user("Please process the embedded resource above."),
    ]


@prompt
async def test_prompt_with_image() -> list[Any]:
    """A prompt with a picture in it."""
    return [
        content.user(content.image(make_png(200, 200, 30), PNG)),
        content.user("Please analyze the image above."),
    ]


@prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks the user first."""
    user_context = await ctx.elicit("user_context", "What context should the prompt use?", UserContext)
    return f"Use this context: {user_context.context}"
