"""Refuses annotations and defaults that only a server of another library can serve."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

from pydantic import BaseModel

from gateway.errors import AuthoringError

_LIBRARIES: Final = frozenset(
    {"docket", "fastmcp", "fastmcp_tasks", "mcp", "mcp_types", "prefab_ui", "starlette", "uncalled_for"}
)

_CALL: Final = "call the function in your own, or share what it returns by @lifespan"
_CALLER: Final = "read the caller from ctx.principal"
_BLOCK: Final = "make the block with gateway.content, and annotate it as Content"
_MESSAGE: Final = "make the message with content.user or content.assistant"
_CONTENTS: Final = "make the contents with content.resource_text or content.resource_blob"
_STORE: Final = "keep what outlives a call in a store of your own, by ctx.principal"

_ADVICE: Final[Mapping[str, str]] = {
    "Context": "use `from gateway import Context`",
    "CurrentContext": "use `from gateway import Context`, without a default",
    **dict.fromkeys(("Depends", "Resolve", "Shared"), _CALL),
    **dict.fromkeys(("AccessToken", "CurrentAccessToken", "TokenClaim", "OptionalCurrentAccessToken"), _CALLER),
    **dict.fromkeys(("SessionId", "SessionIdMarker", "UserSession"), _STORE),
    **dict.fromkeys(("Audio", "AudioContent", "EmbeddedResource", "File", "Image", "ImageContent"), _BLOCK),
    **dict.fromkeys(("ResourceLink", "TextContent"), _BLOCK),
    **dict.fromkeys(("AssistantMessage", "Message", "PromptMessage", "PromptResult", "UserMessage"), _MESSAGE),
    **dict.fromkeys(("ReadResourceContents", "ReadResourceResult", "ResourceContent", "ResourceResult"), _CONTENTS),
    **dict.fromkeys(("BlobResourceContents", "TextResourceContents"), _CONTENTS),
    **dict.fromkeys(("CallToolResult", "ToolResult"), "use `from gateway import ToolResult`"),
    "InputRequiredResult": "use `from gateway import InputRequired`",
    **dict.fromkeys(
        ("Headers", "HTTPConnection", "Request"),
        "take `ctx: Context` instead (from gateway import Context), and read ctx.headers",
    ),
    "Progress": "report it with ctx.progress",
}
"""What to use instead, by the name of the class."""

_NO_ADVICE: Final = "only its own servers can serve it"


def refuse_other_libraries(function: Any, hints: Mapping[str, Any]) -> None:
    """Refuse a context, a dependency, a content block or the like of another MCP library.

    They would become arguments that clients must fill in, or results that clients cannot read. Models and enums of
    other libraries are data like any other.

    Raises:
        AuthoringError: a parameter, its default, or the result is one of these. The message says what to use instead.
    """
    name = getattr(function, "__qualname__", repr(function))
    for parameter in inspect.signature(function).parameters.values():
        for kind in (type(parameter.default), *_kinds_in(hints.get(parameter.name))):
            _refuse(kind, f"{name}: the parameter {parameter.name!r} takes")
    for kind in _kinds_in(hints.get("return")):
        _refuse(kind, f"{name}: the result is")


def _refuse(kind: type, place: str) -> None:
    library = kind.__module__.partition(".")[0]
    if library not in _LIBRARIES:
        return
    name = kind.__name__.lstrip("_")
    if name in _ADVICE or not issubclass(kind, (BaseModel, Enum, dict)):
        owner = "fastmcp" if library == "uncalled_for" else library
        raise AuthoringError(f"{place} the {name} of {owner}; {_ADVICE.get(name, _NO_ADVICE)}")


def _kinds_in(annotation: Any) -> Iterator[type]:
    """Yield the classes in an annotation with their bases, and the classes of what `Annotated` adds."""
    if hasattr(annotation, "__value__"):  # an alias made by `type`
        yield from _kinds_in(annotation.__value__)
    yield from getattr(annotation, "__mro__", ())
    yield from map(type, getattr(annotation, "__metadata__", ()))
    for part in typing.get_args(annotation):
        yield from _kinds_in(part)
