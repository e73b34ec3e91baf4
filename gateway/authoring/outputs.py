"""Output schemas made from return annotations, and results that fit them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable
from typing import Annotated, Any, Final, Never, NoReturn

import jsonschema_rs
import msgspec
from pydantic import BaseModel, ValidationError

from gateway.authoring.content import Content, Message, ResourceContents, ToolResult
from gateway.authoring.forms.questions import InputRequired
from gateway.authoring.mistakes import classes_in
from gateway.authoring.types.codecs import (
    UNSERVABLE,
    adapter_of,
    name_of,
    problems_of,
    unservable,
    why_not_written,
)
from gateway.authoring.types.model_schemas import type_schema
from gateway.authoring.types.typed_dicts import UNIONS, with_parts
from gateway.engine.values import json_value
from gateway.errors import AuthoringError
from gateway.json_schema.inlining import inlined
from gateway.json_schema.validation import refuse_to_fetch

_ANYTHING: Final = (Any, object, dict, list, tuple)
_SAY_NOTHING: Final = (*_ANYTHING, inspect.Parameter.empty, NoReturn, Never, InputRequired, ToolResult)
_TEXT: Final = (str, None, type(None))
_BLOCKS: Final = frozenset({Content, Message, ResourceContents})


class Output:
    """The output that a return annotation promises. Make one with `output_of`.

    `schema` is the JSON Schema of `structuredContent`, which clients expect to be an object.
    """

    def __init__(self, annotation: Any) -> None:
        self._adapter = adapter_of(annotation)
        self._name = name_of(annotation)
        self._model = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
        schema = _with_open_root(inlined(type_schema(self._adapter, "serialization")))
        self._is_wrapped = schema.get("type") != "object"
        self.schema = _wrapped(schema) if self._is_wrapped else schema
        self._validator = jsonschema_rs.validator_for(
            self.schema, retriever=refuse_to_fetch, validate_formats=False, mask="the value"
        )

    def result(self, value: Any, owner: object) -> dict[str, Any]:
        """Return the fields of a `CallToolResult` for a return value.

        Pydantic converts a value that does not have the annotated type, if it can.

        Raises:
            AuthoringError: the value does not fit the type, or cannot be written as JSON. The message quotes no value.
        """
        written = json_value(self._written(value, owner), f"{owner}: the result")
        structured = {"result": written} if self._is_wrapped else written
        self.check(structured, owner)
        return {"content": _blocks(value, written), "structuredContent": structured, "isError": False}

    def check(self, structured: Any, owner: object) -> None:
        """Check `structuredContent`, because pydantic trusts the instances of classes, and authors' serializers.

        Raises:
            AuthoringError: the schema does not allow it.
        """
        if not self._validator.is_valid(structured):
            error = next(self._validator.iter_errors(structured))
            place = "".join(f"{part}: " for part in [".".join(map(str, error.instance_path))] if part)
            raise AuthoringError(
                f"{owner} returned a value that its output schema does not allow: {place}{error.message}"
            )

    def _written(self, value: Any, owner: object) -> Any:
        try:
            if self._model is None or not isinstance(value, self._model):
                value = self._adapter.validate_python(value, by_alias=True, by_name=True)
            if isinstance(value, BaseModel):  # not through the adapter: an instance of a subclass keeps its own fields
                return value.model_dump(mode="json", by_alias=True, warnings="error")
            return self._adapter.dump_python(value, mode="json", by_alias=True, warnings="error")
        except ValidationError as error:
            raise AuthoringError(f"{owner} did not return a valid {self._name}: {problems_of(error)}") from None
        except Exception as error:  # noqa: BLE001 - serializers are the author's code and may raise anything
            raise AuthoringError(
                f"{owner}: the result: {self._name} cannot be converted to JSON: {why_not_written(error)}"
            ) from error.__cause__  # pydantic's own error quotes values


def output_of(annotation: Any, owner: str) -> Output | None:
    """Return the output of a return annotation, or None if it promises no structured content.

    Text has no output: structured content would only repeat it. Neither has an annotation with content blocks.
    `InputRequired` and `ToolResult` in a union are left out, because clients only see the rest. The forward references
    of the annotation are resolved.

    Raises:
        AuthoringError: the type has no JSON form. The message names type, owner and way out.
    """
    promised = _promised(annotation)
    if promised is _NO_PROMISE:
        return None
    annotation = promised
    try:
        return Output(annotation)
    except UNSERVABLE as error:
        raise unservable(annotation, f"the return type of {owner}", error) from None
    except ValueError as error:  # the author's own part of the schema, or a pattern
        problem = str(error).splitlines()[0]
        raise AuthoringError(f"the return type of {owner} has no valid JSON Schema: {problem}") from None


_NO_PROMISE: Final = object()


def _promised(annotation: Any) -> Any:
    """Return the part of a return annotation that clients see; `_NO_PROMISE` without structured content."""
    parts = typing.get_args(annotation) if typing.get_origin(annotation) in UNIONS else (annotation,)
    promised = tuple(part for part in parts if _bare(part) not in _SAY_NOTHING)
    is_less = len(promised) < len(parts)
    if is_less and any(_bare(part) in _ANYTHING for part in parts):
        return _NO_PROMISE
    if _are_text(promised) or not _BLOCKS.isdisjoint(classes_in(annotation)):
        return _NO_PROMISE
    return with_parts(typing.Union, promised) if is_less else annotation


def _are_text(annotations: Iterable[Any]) -> bool:
    return all(_bare(annotation) in _TEXT for annotation in annotations)


def _blocks(value: object, written: Any) -> list[dict[str, Any]]:
    """Return the blocks of a value and its JSON. A list is one text, unless there are blocks in it.

    Clients that do not read structured content need all of it in one text (2025-06-18 "Tools", Structured Content).
    """
    if (
        isinstance(written, list)
        and isinstance(value, (list, tuple))
        and any(isinstance(item, Content) for item in value)
    ):
        return [_block(item, part) for item, part in zip(value, written, strict=False)]
    return [] if written is None else [_block(value, written)]


def _block(item: object, written: Any) -> dict[str, Any]:
    if isinstance(item, Content) and isinstance(written, dict):
        return written
    is_text = isinstance(item, str) and isinstance(written, str)
    return {"type": "text", "text": written if is_text else msgspec.json.encode(written).decode()}


def _bare(annotation: Any) -> Any:
    return _bare(typing.get_args(annotation)[0]) if typing.get_origin(annotation) is Annotated else annotation


def _with_open_root(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that says at its root what it is, although it refers to itself."""
    if "$ref" not in schema or "$defs" not in schema:
        return schema
    beside = {name: part for name, part in schema.items() if name != "$ref"}
    return {**schema["$defs"][schema["$ref"].rpartition("/")[2]], **beside}


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    result = {name: part for name, part in schema.items() if name != "$defs"}
    whole = {"type": "object", "properties": {"result": result}, "required": ["result"]}
    return {**whole, "$defs": schema["$defs"]} if "$defs" in schema else whole
