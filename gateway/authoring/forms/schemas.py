"""Form schemas, made from the JSON Schemas of the types that authors ask for."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, NoReturn, TypeAlias, get_origin

from pydantic import AliasChoices, AliasPath, BaseModel
from pydantic_core import core_schema, to_jsonable_python

from gateway.authoring.types.model_schemas import WithoutTitles
from gateway.errors import AuthoringError

Texts: TypeAlias = Mapping[str, Any]
"""The values of a field's choices by the texts that stand for them in the form."""

FORM_FORMATS: Final = frozenset({"email", "uri", "date", "date-time"})
"""The formats of a form's text fields (MCP "Elicitation", Requested Schema)."""

_EVERY_FIELD: Final = frozenset({"type", "title", "description", "default"})
_NUMBER: Final = _EVERY_FIELD | {"minimum", "maximum"}
_CHOICE: Final = _EVERY_FIELD | {"enum", "enumNames", "oneOf"}
_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "string": _EVERY_FIELD | {"minLength", "maxLength", "pattern", "format"},
    "number": _NUMBER,
    "integer": _NUMBER,
    "boolean": _EVERY_FIELD,
    "array": _EVERY_FIELD | {"items", "minItems", "maxItems"},
}
"""The keywords of each kind of field. The prose of the specification has `pattern`, its schema does not."""

_LEFT_OUT: Final = frozenset({"$comment", "deprecated", "examples", "readOnly", "writeOnly", "uniqueItems"})
"""Keywords that a form cannot have, and that change nothing about which answers are valid."""

_INSTEAD: Final = {
    "exclusiveMinimum": "use ge instead of gt",
    "exclusiveMaximum": "use le instead of lt",
    "multipleOf": "check it in a validator instead of with multiple_of",
}

FIELD: Final = "value"
"""The name of the only field in a form that is made from a type without fields."""

_NAMES: Final = "x-names"
"""Marks the names of an enum's members until the choices of a form are made of them."""


class FormSchemas(WithoutTitles):
    """Makes JSON Schemas for `flat_form`."""

    def enum_schema(self, schema: core_schema.EnumSchema) -> dict[str, Any]:
        """Add the names of the members. A member with two names counts once."""
        names = dict.fromkeys(member.name for member in schema["members"])
        return {**super().enum_schema(schema), _NAMES: list(names)}


def flat_form(
    schema: Mapping[str, Any], where: str, annotations: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Texts]]:
    """Return the `requestedSchema` for a JSON Schema of an object, its identity, and the texts of its choices.

    The identity is the schema that the digest covers. It has what clients do not see, as release 0.1 showed it.
    `FormSchemas` makes the schema.

    Raises:
        AuthoringError: it has a field that a form cannot show. Forms are flat.
    """
    definitions = schema.get("$defs", {})
    if "$ref" in schema:  # beside a description
        schema = {**schema, **definitions[schema["$ref"].rpartition("/")[2]]}
    if schema.get("type") != "object":
        raise AuthoringError(f"{where}: a form needs named fields; use a flat model that has fields")
    form: dict[str, Any] = {"type": "object", "properties": {}}
    covered: dict[str, Any] = {}
    texts = {}
    for name, raw in schema.get("properties", {}).items():
        field = _Field(f"{where}.{name}" if where else type_name(annotations[name]), annotations.get(name), definitions)
        form["properties"][name] = field.shown(raw)
        covered[name] = field.identity
        if field.texts:
            texts[name] = field.texts
    if "required" in schema:
        form["required"] = schema["required"]
    return form, {**form, "properties": covered}, texts


class _Field:
    """One field of a form."""

    def __init__(self, where: str, annotation: Any, definitions: Mapping[str, Any]) -> None:
        self.texts: Texts = {}
        self.identity: dict[str, Any] = {}
        self._where = where
        self._type = "it" if annotation is None else type_name(annotation)
        self._definitions = definitions

    def shown(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Return the schema of the field as the form has it."""
        flat = self._inlined(raw)
        kind = flat.get("type")
        if kind == "array" and "enum" not in flat:
            self._offer_several(flat)
        elif "enum" in flat:
            self._offer_one(flat)
        elif kind not in _FIELDS:
            self._refuse("forms are flat", "use text, a number, a boolean, a date, or a choice (Literal or Enum)")
        self.identity = flat
        shown = _without_repetition({keyword: part for keyword, part in flat.items() if keyword not in _LEFT_OUT})
        if kind == "boolean":
            shown.pop("enum", None)  # reading the answer respects it
        elif kind == "integer":
            _include_limits(shown)
        self._check(shown)
        return shown

    def _inlined(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Return the schema without references and without null."""
        flat = dict(raw)
        if "$ref" in flat:
            name = flat.pop("$ref").rpartition("/")[2]
            flat = {**self._definitions[name], **flat}
            if flat.get("title") == name:
                flat.pop("title")
        default = flat.get("default", ...)
        if default is None or (isinstance(default, float) and not math.isfinite(default)):
            flat.pop("default")  # JSON has no infinity
        choices = flat.get("anyOf", ())
        options = [option for option in choices if option.get("type") != "null"]
        if len(options) == 1 < len(choices):
            flat.pop("anyOf")
            return self._inlined({**options[0], **flat})
        if "const" in flat:
            flat["enum"] = [flat.pop("const")]
        return flat

    def _offer_one(self, flat: dict[str, Any]) -> None:
        """Make a choice of an `enum`. Choices that are numbers are shown as texts."""
        names = flat.pop(_NAMES, None)
        if flat.get("type") in ("integer", "number"):
            self.texts = {json.dumps(value): value for value in flat.pop("enum")}
            flat["type"] = "string"
            if names is None:
                flat["enum"] = list(self.texts)
            else:
                flat["oneOf"] = [{"const": text, "title": name} for text, name in zip(self.texts, names, strict=True)]
            if "default" in flat:
                flat["default"] = as_text(flat["default"])
        elif flat.get("type") not in ("string", "boolean"):
            self._refuse("forms are flat", "use choices that are all texts, or all numbers")

    def _offer_several(self, flat: dict[str, Any]) -> None:
        """Make a choice of several of a list."""
        item = self._inlined(flat.get("items", {}))
        if "enum" in item and item.get("type") != "boolean":
            self._offer_one(item)
        flat["items"] = self._offered(item)
        if "description" in item:
            flat.setdefault("description", item["description"])
        if self.texts and "default" in flat:
            flat["default"] = [as_text(value) for value in flat["default"]]

    def _offered(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Return the choices of a list in the form that the protocol has for them."""
        titled = item.get("anyOf") or item.get("oneOf")
        if _are_titled(titled):
            return {"anyOf": titled}
        if "enum" not in item or item["type"] != "string":
            self._refuse("a list in a form must offer text choices", "use list[Literal[…]] or a list of an enum")
        return {"type": "string", "enum": item["enum"]}

    def _check(self, flat: Mapping[str, Any]) -> None:
        """Refuse what the protocol does not allow in a form."""
        text_format = flat.get("format", "date")
        if text_format == "password":
            raise AuthoringError(
                f"{self._where}: a form must not ask for secrets; send the user to a page with elicit_url"
            )
        if text_format not in FORM_FORMATS:
            self._refuse(
                f"a form has no field for the format {text_format!r}",
                "use str and a validator, or add WithJsonSchema({'type': 'string'}) to show a plain text field",
            )
        if "oneOf" in flat and not _are_titled(flat["oneOf"]):
            self._refuse("a form has no such 'oneOf'", "give each choice a text as 'const', and a 'title'")
        allowed = _CHOICE if {"enum", "oneOf"} & flat.keys() else _FIELDS[flat["type"]]
        for keyword in flat.keys() - allowed:
            self._refuse(f"a form has no {keyword!r}", _INSTEAD.get(keyword, "leave it out"))

    def _refuse(self, problem: str, instead: str) -> NoReturn:
        raise AuthoringError(f"{self._where}: {problem}, so {self._type} cannot be asked for; {instead}")


def _are_titled(choices: Any) -> bool:
    """Return whether each of the choices is a text with a title."""
    return bool(choices) and all(
        choice.keys() == {"const", "title"} and all(isinstance(part, str) for part in choice.values())
        for choice in choices
    )


def _without_repetition(flat: dict[str, Any]) -> dict[str, Any]:
    """Return a field that shows each choice once. An enum lists a member for each of its names."""
    if flat.get("type") == "array":
        return {**flat, "items": _without_repetition(flat["items"])}
    return {**flat, "enum": list(dict.fromkeys(flat["enum"]))} if "enum" in flat else flat


def _include_limits(flat: dict[str, Any]) -> None:
    """Give an integer the limits that forms have: more than 1 is 2 or more."""
    if "exclusiveMinimum" in flat:
        flat["minimum"] = max(math.floor(flat.pop("exclusiveMinimum")) + 1, flat.get("minimum", -math.inf))
    if "exclusiveMaximum" in flat:
        flat["maximum"] = min(math.ceil(flat.pop("exclusiveMaximum")) - 1, flat.get("maximum", math.inf))


def type_name(annotation: Any) -> str:
    """Return the name of a type as authors write it."""
    annotation = bare(annotation)
    return annotation.__name__ if isinstance(annotation, type) else repr(annotation).replace("typing.", "")


def bare(annotation: Any) -> Any:
    """Return the type in an `Annotated`, or any other type unchanged."""
    return annotation.__origin__ if get_origin(annotation) is Annotated else annotation


def property_names(model: type[BaseModel]) -> dict[str, str]:
    """Return the name of the property that each field of a model is read from.

    Raises:
        AuthoringError: a field is read from inside another one, so no answer to a form would be valid.
    """
    by_alias = model.model_config.get("validate_by_alias", True)
    names = {}
    for name, field in model.model_fields.items():
        alias = field.validation_alias if by_alias else None
        first = alias.choices[0] if isinstance(alias, AliasChoices) else alias
        if isinstance(first, AliasPath):
            raise AuthoringError(f"{model.__name__}.{name}: forms are flat; give the field an alias without a path")
        names[name] = first if isinstance(first, str) else name
    return names


def as_text(value: Any) -> Any:
    """Return the text that stands for a choice in a form."""
    return json.dumps(value) if type(value) in (int, float) else value


def form_content(schema: Mapping[str, Any], filled: Any) -> dict[str, Any]:
    """Return the content of a form that is filled in with an object, or with the value of its only field."""
    values = to_jsonable_python(filled, by_alias=False)
    if not isinstance(values, dict):
        values = {FIELD: values}
    names = property_names(type(filled)) if isinstance(filled, BaseModel) else {}
    properties = schema.get("properties", {})
    shown = {names.get(name, name): value for name, value in values.items()}
    return {name: _shown_value(properties.get(name, {}), value) for name, value in shown.items()}


def _shown_value(field: Mapping[str, Any], value: Any) -> Any:
    if isinstance(value, list):
        return [as_text(item) for item in value]
    return as_text(value) if {"enum", "oneOf"} & field.keys() else value
