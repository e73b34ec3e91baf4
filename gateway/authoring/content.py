"""Content blocks, and what a function's return value becomes in a result."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict

from gateway.engine.values import json_value
from gateway.errors import AuthoringError


class Content(dict[str, Any]):
    """One content block, as the protocol writes it. Made by the functions of this module."""

    def annotated(
        self,
        *,
        audience: Sequence[Literal["user", "assistant"]] | None = None,
        priority: float | None = None,
        last_modified: str | None = None,
    ) -> Content:
        """Return the block with hints for clients (MCP "Resources", Annotations).

        Args:
            audience: whom it is for.
            priority: from 0, entirely optional, to 1, effectively required.
            last_modified: when it was last changed, ISO 8601.
        """
        hints = {"audience": audience and list(audience), "priority": priority, "lastModified": last_modified}
        return Content(self, annotations={name: value for name, value in hints.items() if value is not None})


class Message(dict[str, Any]):
    """One message of a prompt. Made by `user` and `assistant`."""


class ResourceContents(dict[str, Any]):
    """One part of what a resource reads. Made by `resource_text` and `resource_blob`."""


def text(value: str) -> Content:
    """Return a text block."""
    return Content(type="text", text=value)


def image(data: bytes, mime_type: str) -> Content:
    """Return an image block from the image's bytes."""
    return Content(type="image", data=_base64(data), mimeType=mime_type)


def audio(data: bytes, mime_type: str) -> Content:
    """Return an audio block from the sound's bytes."""
    return Content(type="audio", data=_base64(data), mimeType=mime_type)


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
    part = resource_text if isinstance(contents, str) else resource_blob
    return Content(type="resource", resource=dict(part(uri, contents, mime_type)))  # type: ignore[arg-type]  # by kind


def user(value: str | Content) -> Message:
    """Return a prompt's message of the user."""
    return Message(role="user", content=text(value) if isinstance(value, str) else value)


def assistant(value: str | Content) -> Message:
    """Return a prompt's message of the assistant."""
    return Message(role="assistant", content=text(value) if isinstance(value, str) else value)


def resource_text(uri: str, contents: str, mime_type: str = "text/plain") -> ResourceContents:
    """Return text as a part of what a resource reads."""
    return ResourceContents(uri=uri, mimeType=mime_type, text=contents)


def resource_blob(uri: str, contents: bytes, mime_type: str = "application/octet-stream") -> ResourceContents:
    """Return bytes as a part of what a resource reads."""
    return ResourceContents(uri=uri, mimeType=mime_type, blob=_base64(contents))


class ToolResult(BaseModel):
    """A result spelled out, for authors who need all of its fields."""

    model_config = ConfigDict(extra="forbid")

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
    return {"content": [content_block(item) for item in blocks], "isError": False}


def content_block(item: object) -> dict[str, Any]:
    """Return the one block for an item of a list that a tool returns, or for what it emits.

    Raises:
        AuthoringError: the item cannot be told as JSON.
    """
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


def prompt_messages(value: object) -> list[dict[str, Any]]:
    """Return the messages of a `GetPromptResult` for what a prompt's function returned.

    Text and content blocks become messages of the user.

    Raises:
        AuthoringError: the value is none of those.
    """
    items = value if isinstance(value, (list, tuple)) else (value,)
    return [_message(item) for item in items]


def _message(item: object) -> dict[str, Any]:
    if isinstance(item, (str, Content)):
        item = user(item)
    if not isinstance(item, Message):
        raise AuthoringError(f"a prompt returns text, content blocks or messages, not {type(item).__name__}")
    return {"role": item["role"], "content": content_block(item["content"])}


def resource_contents(value: object, uri: str, mime_type: str | None) -> list[dict[str, Any]]:
    """Return the `contents` of a `ReadResourceResult` for what a resource's function returned.

    Args:
        value: text, bytes, a model or a dict (told as JSON), or a list of `ResourceContents`.
        uri: what was asked for.
        mime_type: of the resource; guessed from the kind of value if None.

    Raises:
        AuthoringError: the value is none of those, or an empty list, which would read as "no such resource".
    """
    if isinstance(value, ResourceContents):
        value = [value]
    if isinstance(value, str):
        value = [resource_text(uri, value, mime_type or "text/plain")]
    elif isinstance(value, bytes):
        value = [resource_blob(uri, value, mime_type or "application/octet-stream")]
    elif isinstance(value, (BaseModel, Mapping)):
        told = msgspec.json.encode(_structured(value)).decode()
        value = [resource_text(uri, told, mime_type or "application/json")]
    if not isinstance(value, (list, tuple)) or not value:
        raise AuthoringError(f"a resource returns text, bytes, JSON or a list of contents, not {value!r}")
    if not all(isinstance(part, ResourceContents) for part in value):
        raise AuthoringError("a resource's list holds what content.resource_text and content.resource_blob make")
    return [{name: json_value(item, f"the contents' {name}") for name, item in part.items()} for part in value]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
