"""Tools whose texts try to become markup or scripts, and a thousand more."""

from __future__ import annotations

from typing import Any

from gateway import Context, complete, content, prompt, resource, tool

BAD = "<img src=x onerror=\"globalThis.pwned='yes'\"><script>pwned=1</script>"
SCRIPT = "javascript:globalThis.pwned='yes'"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": BAD,
    "properties": {
        "a": {"type": "string", "title": BAD, "description": BAD, "default": BAD},
        "b": {"enum": [BAD, SCRIPT], "enumNames": [BAD, SCRIPT]},
        "__proto__": {"type": "string", "title": BAD},
        BAD: {"type": "string"},
    },
}
FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"x": {"type": "string", "title": BAD, "description": BAD, "enum": [BAD], "enumNames": [BAD]}},
}


@tool(title=BAD, description=BAD, input_schema=SCHEMA)
async def attack(ctx: Context, **_arguments: Any) -> list[Any]:
    """Ask and return markup."""
    ctx.log("info", BAD)
    ctx.progress(1, 2, BAD)
    await ctx.elicit("form", BAD, FORM, default=None)
    await ctx.elicit_url("page", BAD, "https://xn--80ak6aa92e.com/%3Cb%3E", default="declined")
    return [
        content.text(BAD),
        content.resource_link('https://example.com/"><img src=x onerror=pwned=1>', name=BAD),
        content.resource_link(SCRIPT, name=BAD),
        content.embedded(f"file:///{BAD}", BAD, "text/html"),
    ]


@tool
async def explode() -> str:
    """Fail with markup."""
    raise RuntimeError(BAD)


@prompt(title=BAD, description=BAD)
async def bait(name: str) -> str:
    return f"{BAD} {name}"


@complete(bait, "name")
def baits(_typed: str) -> list[str]:
    return [BAD]


@resource("bad://one", title=BAD, description=BAD, mime_type="text/html")
async def page() -> str:
    return BAD


def _make(number: int) -> Any:
    async def numbered() -> str:
        return str(number)

    numbered.__name__ = f"tool_{number:04}"
    numbered.__doc__ = f"Return {number}."
    return tool(numbered)


globals().update({f"tool_{number:04}": _make(number) for number in range(1000)})
