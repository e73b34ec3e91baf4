"""Turns a collected annotation into a function with it, and an example value. Needs nothing but pydantic."""

from __future__ import annotations

import collections.abc
import csv
import dataclasses
import datetime as dt
import enum
import json
import pathlib
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import annotated_types
import pydantic
import typing_extensions
from pydantic import BaseModel, TypeAdapter

FOLDER = pathlib.Path(__file__).parent
STANDARD = {
    "default": 1, "default_factory": list, "description": "a text", "ge": 0, "gt": 0, "le": 100,
    "json_schema_extra": {"examples": []}, "max_length": 50, "strict": True, "title": "A title",
}  # fmt: skip
"""The values of the arguments of `Field` in our example of it."""
FORMATS = {
    "binary": "abc", "date": "2026-01-02", "date-time": "2026-01-02T03:04:05Z", "duration": "PT5S",
    "uri": "https://example.com/", "uuid": "12345678-1234-5678-1234-567812345678",
}  # fmt: skip
SCALARS = {"boolean": True, "integer": 1, "null": None, "number": 1.5}


class ExampleModel(BaseModel):
    name: str = "text"
    age: int = 3


@dataclasses.dataclass
class ExampleDataclass:
    name: str
    age: int = 3


class ExampleTypedDict(typing_extensions.TypedDict):
    name: str
    age: int


class ExampleNamedTuple(NamedTuple):
    name: str
    age: int


class ExampleEnum(enum.Enum):
    A = "a"
    B = "b"


class ExampleClass:
    """A class that pydantic knows nothing of."""

    def __repr__(self) -> str:
        return "ExampleClass()"


class ExampleProtocol(Protocol):
    def switch(self) -> None: ...


class Entry(NamedTuple):
    """A row of the table that `scripts.annotations` prints."""

    kind: str
    annotation: str
    uses: int
    example: str


def entries() -> list[Entry]:
    with (FOLDER / "collected.tsv").open(newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return [Entry(row["kind"], row["annotation"], int(row["uses"]), row["example"]) for row in rows]


class Names(dict[str, Any]):
    """The meaning of names of libraries. The names of Python and pydantic need none."""


def evaluated(annotation: str, names: Names | None = None) -> tuple[Any, Any]:
    """Return the type of an annotation and its default; `...` stands for no annotation and no default.

    Args:
        annotation: in the form of the table.
        names: the names that come from other libraries.

    Raises:
        NameError: it has another name of a library.
    """
    kind, _, default = annotation.partition(" = ")
    known = names if names is not None else Names()
    known.update({**_NAMES, **known, "Field": _field_for(kind)})
    read = ... if kind.startswith("(none") else eval(kind, {}, known)
    return read, eval(default, {}, known) if default else ...


def _field_for(kind: str) -> Callable[..., Any]:
    def field(**given: Any) -> Any:
        values: dict[str, Any] = {name: STANDARD[name] if value is ... else value for name, value in given.items()}
        if kind.startswith(("str", "Annotated[str")) and "default" in values:
            values["default"] = "text"
        if kind.startswith("Annotated[int") and "default_factory" in values:
            values["default_factory"] = int
        return pydantic.Field(**values)

    return field


_NAMES: dict[str, Any] = {
    **vars(typing),
    **vars(collections.abc),
    "AfterValidator": lambda _: pydantic.AfterValidator(str.strip),
    "AnyUrl": pydantic.AnyUrl,
    "Class": ExampleClass,
    "Dataclass": ExampleDataclass,
    "Enum": ExampleEnum,
    "Gt": lambda _: annotated_types.Gt(0),
    "Model": ExampleModel,
    "LightState": ExampleTypedDict,
    "LoggingLevel": Literal["debug", "info"],
    "NamedTuple": ExampleNamedTuple,
    "Path": pathlib.Path,
    "Protocol": ExampleProtocol,
    "SecretStr": pydantic.SecretStr,
    "StrictInt": pydantic.StrictInt,
    "Textarea": Annotated[str, pydantic.Field(json_schema_extra={"format": "textarea"})],
    "TypedDict": ExampleTypedDict,
    "UUID": uuid.UUID,
    "WithJsonSchema": lambda _: pydantic.WithJsonSchema({"type": "string"}),
    "cast": lambda _: "text",
    "date": dt.date,
    "datetime": dt.datetime,
    "timedelta": dt.timedelta,
}


def function_with(entry: Entry, names: Names | None = None) -> Callable[..., Any]:
    """Return a function whose parameter `x`, or whose result, has the annotation.

    The one with a parameter returns its type and value as text. The other returns an example of its type.
    """
    kind, default = evaluated(entry.annotation, names)
    if entry.kind.endswith("parameter"):

        def takes(x: Any) -> str:
            return shown(x)

        takes.__annotations__ = {"return": str} if kind is ... else {"x": kind, "return": str}
        takes.__defaults__ = None if default is ... else (default,)
        return takes

    def gives() -> Any:
        return value

    def generates() -> Any:
        yield value

    value = _value_of(kind)
    function = generates if entry.annotation.startswith(("AsyncIterator[", "Iterator[")) else gives
    function.__annotations__ = {} if kind is ... else {"return": kind}
    return function


def _value_of(kind: Any) -> Any:
    try:
        return None if kind in (None, ...) else TypeAdapter(kind).validate_python(example(kind, "serialization"))
    except pydantic.PydanticSchemaGenerationError:
        return kind() if isinstance(kind, type) else None


def shown(value: Any) -> str:
    """Return the type and the value of what a function received."""
    return f"{type(value).__name__} {value!r}"


def argument_for(entry: Entry) -> Any:
    """Return a JSON value that a client can send for the parameter `x`: text, unless to a tool."""
    kind, _ = evaluated(entry.annotation)
    value = "text" if kind is ... else example(kind)
    return value if entry.kind.startswith("tool") or isinstance(value, str) else json.dumps(value)


_ANY_CLASS = pydantic.ConfigDict(arbitrary_types_allowed=True)


def asked_for(entry: Entry) -> Any:
    """Return what a question asks for: a type, or choices. A field gets a model of its own."""
    kind, _ = evaluated(entry.annotation)
    return (
        pydantic.create_model("Form", __config__=_ANY_CLASS, x=(kind, ...)) if entry.kind == "question field" else kind
    )


def example(kind: Any, mode: Any = "validation") -> Any:
    return fitting(TypeAdapter(kind).json_schema(mode=mode))


def fitting(schema: Mapping[str, Any]) -> Any:
    return _fitting(plain(schema))


def _fitting(schema: Mapping[str, Any]) -> Any:
    if "anyOf" in schema or "oneOf" in schema:
        return _fitting((schema.get("anyOf") or schema["oneOf"])[0])
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else schema["enum"][0]
    kind = str(schema.get("type"))
    if kind == "array":
        return [_fitting(item) for item in schema.get("prefixItems") or [schema.get("items", {})]]
    if kind == "object" and "properties" in schema:
        return {name: _fitting(part) for name, part in schema["properties"].items()}
    if kind == "object":
        values = schema.get("additionalProperties")
        return {"1": _fitting(values) if isinstance(values, dict) else "text"}
    return SCALARS.get(kind, FORMATS.get(schema.get("format", ""), "text"))


def plain(schema: Any, definitions: Mapping[str, Any] | None = None) -> Any:
    """Return a JSON Schema without references and derived titles, so that equal schemas look equal."""
    if isinstance(schema, list):
        return [plain(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    definitions = schema.get("$defs", definitions)
    if "$ref" in schema:
        beside = {name: part for name, part in schema.items() if name != "$ref"}
        return plain({**(definitions or {})[schema["$ref"].rpartition("/")[2]], **beside}, definitions)
    parts = {
        name: {key: plain(part, definitions) for key, part in value.items()}
        if name == "properties"
        else plain(value, definitions)
        for name, value in schema.items()
        if name not in ("$defs", "x-fastmcp-wrap-result") and not (name == "title" and value != STANDARD["title"])
    }
    if parts.get("additionalProperties") in (False, True):
        del parts["additionalProperties"]
    if "enum" in parts and all(isinstance(choice, str) for choice in parts["enum"]):
        parts.pop("type", None)
    for keyword in ("anyOf", "required"):
        if keyword in parts:
            parts[keyword] = sorted(parts[keyword], key=json.dumps)
    return parts
