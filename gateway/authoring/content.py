"""Content blocks of results, and what a function's return value becomes (MCP "Tool Result")."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec
from pydantic import BaseModel

from gateway.engine.values import json_value
from gateway.errors import AuthoringError


class Content(dict[str, Any]):
    """One content block, as the protocol writes it. Made by the functions of this module."""


def text(value: str) -> Content:
    """Return a text block."""
    return Content(type="text", text=value)


def image(data: bytes, mime_type: str) -> Content:
    """Return an image block from the image's bytes."""
    return Content(type="image", data=base64.b64encode(data).decode(), mimeType=mime_type)


def audio(data: bytes, mime_type: str) -> Content:
    """Return an audio block from the sound's bytes."""
    return Content(type="audio", data=base64.b64encode(data).decode(), mimeType=mime_type)


def resource_link(uri: str, name: str, *, mime_type: str | None = None, description: str | None = None) -> Content:
    """Return a link to a resource that the client may read."""
    block = Content(type="resource_link", uri=uri, name=name)
    if mime_type is not None:
        block["mimeType"] = mime_type
    if description is not None:
        block["description"] = description
    return block


def embedded(uri: str, contents: str | bytes, mime_type: str) -> Content:
    """Return a resource embedded in the result: text as it is, bytes in base64."""
    resource: dict[str, Any] = {"uri": uri, "mimeType": mime_type}
    if isinstance(contents, str):
        resource["text"] = contents
    else:
        resource["blob"] = base64.b64encode(contents).decode()
    return Content(type="resource", resource=resource)


class ToolResult(BaseModel):
    """A result spelled out, for authors who need all of its fields."""

    content: list[dict[str, Any]]
    structured: Any = None
    is_error: bool = False


def error(message: str) -> ToolResult:
    """Return a result that tells the language model what went wrong, so that it can do better."""
    return ToolResult(content=[text(message)], is_error=True)


def tool_result(value: object) -> dict[str, Any]:
    """Return the fields of a `CallToolResult` for what a tool's function returned.

    Text and numbers become one text block, content blocks stay, a list becomes one block after another, a
    model or a dict becomes `structuredContent` and its JSON as text.

    Raises:
        AuthoringError: the value, or a part of it, cannot be told as JSON.
    """
    if isinstance(value, str):
        return {"content": [{"type": "text", "text": json_value(value, "the result")}], "isError": False}
    if isinstance(value, ToolResult):
        result: dict[str, Any] = {"content": json_value(value.content, "the content"), "isError": value.is_error}
        if value.structured is not None:
            result["structuredContent"] = _structured(value.structured)
        return result
    if isinstance(value, (BaseModel, Mapping)) and not isinstance(value, Content):
        structured = _structured(value)
        return {"content": [_json_block(structured)], "structuredContent": structured, "isError": False}
    blocks = value if isinstance(value, (list, tuple)) else () if value is None else (value,)
    return {"content": [_block(item) for item in blocks], "isError": False}


def _block(item: object) -> dict[str, Any]:
    if isinstance(item, Content):
        return {name: json_value(part, f"the block's {name}") for name, part in item.items()}
    if isinstance(item, str):
        return {"type": "text", "text": json_value(item, "the result")}
    return _json_block(_structured(item))


def _json_block(value: object) -> dict[str, Any]:
    return {"type": "text", "text": msgspec.json.encode(value).decode()}


def _structured(value: object) -> Any:
    if isinstance(value, BaseModel):
        try:
            value = value.model_dump(mode="json", by_alias=True)
        except Exception as failure:
            raise AuthoringError(f"the result: {type(value).__name__} has no JSON form: {failure}") from failure
    return json_value(value, "the result")
