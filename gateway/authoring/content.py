"""Content blocks, and the results that return values are turned into."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator

from gateway.authoring.listings import content_annotations
from gateway.authoring.mistakes import known_name
from gateway.authoring.types.codecs import problems_of, why_not_written, written_value
from gateway.engine.values import json_value
from gateway.errors import AuthoringError


class Content(dict[str, Any]):
    """A content block in the protocol's form. Use the functions of this module to make one."""

    def annotated(
        self,
        *,
        audience: Sequence[Literal["user", "assistant"]] | None = None,
        priority: float | None = None,
        last_modified: str | None = None,
    ) -> Content:
        """Return a copy of the block with hints for clients (MCP "Resources", Annotations).

        Args:
            audience: who the block is for.
            priority: from 0 (entirely optional) to 1 (effectively required).
            last_modified: when the content last changed, in ISO 8601, with its offset from UTC.

        Raises:
            AuthoringError: a value is not valid.
        """
        hints = {"audience": audience and list(audience), "priority": priority, "lastModified": last_modified}
        given = {name: value for name, value in hints.items() if value is not None}
        return Content(self, annotations=content_annotations(given, "the block"))


class Message(dict[str, Any]):
    """A message of a prompt. Use `user` or `assistant` to make one."""


class ResourceContents(dict[str, Any]):
    """A part of a resource's contents. Use `resource_text` or `resource_blob` to make one."""


def text(value: str) -> Content:
    """Return a text block."""
    if not isinstance(value, str):
        raise AuthoringError(f"content.text takes a str, not {type(value).__name__}")
    return Content(type="text", text=value)


def image(data: bytes, mime_type: str) -> Content:
    """Return an image block; the bytes are encoded in base64."""
    return Content(type="image", data=_base64(data, "image"), mimeType=mime_type)


def audio(data: bytes, mime_type: str) -> Content:
    """Return an audio block; the bytes are encoded in base64."""
    return Content(type="audio", data=_base64(data, "audio"), mimeType=mime_type)


def resource_link(uri: str, name: str, *, mime_type: str | None = None, description: str | None = None) -> Content:
    """Return a block that links to a resource, which the client can read."""
    block = Content(type="resource_link", uri=uri, name=name)
    if mime_type is not None:
        block["mimeType"] = mime_type
    if description is not None:
        block["description"] = description
    return block


def embedded(uri: str, contents: str | bytes, mime_type: str) -> Content:
    """Return a block with an embedded resource. Text stays as it is; bytes are encoded in base64."""
    part = resource_text if isinstance(contents, str) else resource_blob
    return Content(type="resource", resource=dict(part(uri, contents, mime_type)))  # type: ignore[arg-type]  # by kind


def user(value: str | Content) -> Message:
    """Return a prompt message with the role `user`."""
    return Message(role="user", content=text(value) if isinstance(value, str) else value)


def assistant(value: str | Content) -> Message:
    """Return a prompt message with the role `assistant`."""
    return Message(role="assistant", content=text(value) if isinstance(value, str) else value)


def resource_text(uri: str, contents: str, mime_type: str = "text/plain") -> ResourceContents:
    """Return text as a part of a resource's contents."""
    return ResourceContents(uri=uri, mimeType=mime_type, text=contents)


def resource_blob(uri: str, contents: bytes, mime_type: str = "application/octet-stream") -> ResourceContents:
    """Return bytes as a part of a resource's contents, encoded in base64."""
    return ResourceContents(uri=uri, mimeType=mime_type, blob=_base64(contents, "resource_blob"))


class ToolResult(BaseModel):
    """A tool's result with every field spelled out.

    Attributes:
        content: the blocks.
        structured: the `structuredContent`. It must fit the tool's output schema, if it has one.
        is_error: whether the result explains an error to the model.
        meta: the `_meta` of the result, for clients; models do not see it.
    """

    model_config = ConfigDict(extra="forbid")

    content: list[dict[str, Any]]
    structured: Any = None
    is_error: bool = False
    meta: dict[str, Any] | None = None

    @model_validator(mode="wrap")
    @classmethod
    def _explain(cls, fields: Any, handler: ModelWrapValidatorHandler[ToolResult]) -> ToolResult:
        for name in fields if isinstance(fields, dict) else ():
            if name not in cls.model_fields:
                advice = known_name(str(name), cls.model_fields, "its fields are", likeness=0.7)
                raise AuthoringError(f"ToolResult has no field {name!r}; {advice}")
        try:
            return handler(fields)
        except ValidationError as error:
            is_about_content = any(problem["loc"][0] == "content" for problem in error.errors() if problem["loc"])
            advice = "; pass blocks, such as content=[content.text('…')]" if is_about_content else ""
            raise AuthoringError(f"ToolResult: {problems_of(error)}{advice}") from None


def error(message: str) -> ToolResult:
    """Return a result that is marked as an error, with a message that helps the language model to correct it."""
    return ToolResult(content=[text(message)], is_error=True)


def tool_result(value: object) -> dict[str, Any]:
    """Return the fields of a `CallToolResult` for a tool's return value.

    Text and other scalars become one text block, and content blocks stay as they are. A list becomes one block per
    item. A model, a dataclass or a dict becomes `structuredContent`, plus a text block with its JSON.

    Raises:
        AuthoringError: the value, or a part of it, cannot be written as JSON.
    """
    if isinstance(value, str):
        return {"content": [{"type": "text", "text": json_value(value, "the result")}], "isError": False}
    if isinstance(value, ToolResult):
        return _spelled_out(value)
    if (isinstance(value, (BaseModel, Mapping)) and not isinstance(value, Content)) or is_dataclass(value):
        structured = _structured(value)
        return {"content": [_json_block(structured)], "structuredContent": structured, "isError": False}
    blocks = value if isinstance(value, (list, tuple)) else () if value is None else (value,)
    return {"content": [content_block(item) for item in blocks], "isError": False}


def _spelled_out(value: ToolResult) -> dict[str, Any]:
    result: dict[str, Any] = {"content": json_value(value.content, "the content"), "isError": value.is_error}
    if value.structured is not None:
        result["structuredContent"] = _structured(value.structured)
    if value.meta is not None:
        result["_meta"] = written_value(value.meta, "the result's meta")
    return result


def content_block(item: object) -> dict[str, Any]:
    """Return the content block for one item of a returned list, or for one emitted value.

    Raises:
        AuthoringError: the item cannot be written as JSON.
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
            value = value.model_dump(mode="json", by_alias=True, warnings="error")
        except Exception as failure:  # noqa: BLE001 - serializers are the author's code and may raise anything
            raise AuthoringError(
                f"the result: {type(value).__name__} cannot be converted to JSON: {why_not_written(failure)}"
            ) from failure.__cause__  # pydantic's own error quotes values
    return written_value(value, "the result")


def prompt_messages(value: object) -> list[dict[str, Any]]:
    """Return the messages of a `GetPromptResult` for a prompt's return value.

    Text and content blocks become messages with the role `user`.

    Raises:
        AuthoringError: the value is not text, a content block, a message or a list of these.
    """
    items = value if isinstance(value, (list, tuple)) else (value,)
    return [_message(item) for item in items]


def _message(item: object) -> dict[str, Any]:
    if isinstance(item, (str, Content)):
        item = user(item)
    if not isinstance(item, Message):
        raise AuthoringError(f"a prompt must return text, content blocks or messages, not {type(item).__name__}")
    return {"role": item["role"], "content": content_block(item["content"])}


def resource_contents(value: object, uri: str, mime_type: str | None) -> list[dict[str, Any]]:
    """Return the `contents` of a `ReadResourceResult` for a resource's return value.

    Args:
        value: text, bytes, a model or a dict (written as JSON), or a list of `ResourceContents`.
        uri: the URI that the client requested.
        mime_type: of the resource; if None, it follows from the type of the value.

    Raises:
        AuthoringError: the value has another type, or is an empty list, which clients read as "no such resource".
    """
    parts = _contents(value, uri, mime_type)
    if not isinstance(parts, (list, tuple)) or not parts:
        raise AuthoringError(f"a resource must return text, bytes, JSON or a list of contents, not {value!r}")
    if not all(isinstance(part, ResourceContents) for part in parts):
        raise AuthoringError(
            "a list returned by a resource must hold items made by content.resource_text or content.resource_blob"
        )
    return [{name: json_value(item, f"the contents' {name}") for name, item in part.items()} for part in parts]


def _contents(value: object, uri: str, mime_type: str | None) -> object:
    """Return a value that stands for one item as a list of it, and other values as they are."""
    if isinstance(value, ResourceContents):
        return [value]
    if isinstance(value, str):
        return [resource_text(uri, value, mime_type or "text/plain")]
    if isinstance(value, bytes):
        return [resource_blob(uri, value, mime_type or "application/octet-stream")]
    if isinstance(value, (BaseModel, Mapping)):
        written = msgspec.json.encode(_structured(value)).decode()
        return [resource_text(uri, written, mime_type or "application/json")]
    return value


def _base64(data: bytes, maker: str) -> str:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise AuthoringError(
            f"content.{maker} takes the bytes of the file, not {type(data).__name__}: path.read_bytes(), or "
            "base64.b64decode(text)"
        )
    return base64.b64encode(data).decode()
