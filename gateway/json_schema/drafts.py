"""Schemas of older drafts of JSON Schema, as 2020-12 writes them.

Interfaces of models take 2020-12 only, and refuse all tools for one schema. So what has an exact translation is
translated; `why_invalid` finds what has none.
"""

from __future__ import annotations

import re
from typing import Any, Final

import jsonschema_rs

from gateway.errors import AuthoringError
from gateway.json_schema.portable import LISTS, OF_SCHEMAS, SCHEMAS
from gateway.json_schema.references import References

_SCHEMAS: Final = SCHEMAS | {"additionalItems"}
_INNER: Final = LISTS | _SCHEMAS
_MAY_BE_NULL: Final = frozenset({"default", "const", "example"})
_LIMITS: Final = (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"))
_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_IGNORING_SIBLINGS: Final = re.compile(r"draft-0[3-7]/")
"""Dialects in which a schema with `$ref` is nothing but that reference."""
_UNREAD: Final = re.compile(r"draft-0[34]/")
_BESIDE_REFERENCES: Final = frozenset(
    {"$ref", "$schema", "$id", "id", "$defs", "definitions", "title", "description", "default", "examples"}
)
_NEWEST: Final = ("https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2020-12/schema#")


def as_2020_12(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema as 2020-12 writes it, the same one if it is written so.

    `$schema` is removed from one that changes or that names no draft that clients know. One without an exact
    translation stays as it is.
    """
    dialect = schema.get("$schema")
    is_known = dialect is None or _is_known(dialect)
    ignores_siblings = is_known and _IGNORING_SIBLINGS.search(str(dialect)) is not None
    translated: dict[str, Any] = _translated(schema, ignores_siblings=ignores_siblings)
    if is_known and translated == schema and not _UNREAD.search(str(dialect)):
        return schema
    if translated.get("$schema") not in _NEWEST:
        translated.pop("$schema", None)
    if is_known and dialect not in (None, *_NEWEST) and why_invalid(translated) and not why_invalid(schema):
        return schema  # such as a reference to a place that has another name now
    return translated


def _is_known(dialect: Any) -> bool:
    if dialect in _NEWEST:
        return True
    try:
        jsonschema_rs.meta.validate({"$schema": dialect})
    except (ValueError, jsonschema_rs.ReferencingError):
        return False
    return True


def _translated(schema: Any, *, ignores_siblings: bool) -> Any:
    if type(schema) is not dict:
        return schema
    refers = ignores_siblings and type(schema.get("$ref")) is str
    made = {
        name: _part(name, value, ignores_siblings=ignores_siblings)
        for name, value in schema.items()
        if (value is not None or name in _MAY_BE_NULL) and (not refers or name in _BESIDE_REFERENCES)
    }
    items = made.get("items")
    if type(items) is list:
        made["prefixItems"] = [_translated(each, ignores_siblings=ignores_siblings) for each in items]
        del made["items"]
        if "additionalItems" in made:
            made["items"] = made.pop("additionalItems")
    for limit, exclusive in _LIMITS:
        if type(made.get(exclusive)) is bool and made.pop(exclusive) and limit in made:
            made[exclusive] = made.pop(limit)
    _require_properties(made)
    return made


def _part(name: str, value: Any, *, ignores_siblings: bool) -> Any:
    if name in OF_SCHEMAS and type(value) is dict:
        parts = {key: _translated(each, ignores_siblings=ignores_siblings) for key, each in value.items()}
        return {key: _as_object(each) for key, each in parts.items()} if name == "properties" else parts
    if name in OF_SCHEMAS and value == []:
        return {}
    if name in LISTS and type(value) is list:
        return [_translated(each, ignores_siblings=ignores_siblings) for each in value]
    return _translated(value, ignores_siblings=ignores_siblings) if name in _SCHEMAS else value


def _as_object(schema: Any) -> Any:
    """Return a schema as an object: clients refuse all tools for a `true`, and PHP writes an empty object as `[]`."""
    if schema is False:
        return {"not": {}}
    return {} if schema is True or schema == [] else schema


def _require_properties(made: dict[str, Any]) -> None:
    """Write the names of required properties at their object. Until draft 3, each property said it of itself."""
    properties, required = made.get("properties"), made.get("required", [])
    if type(properties) is not dict or type(required) is not list:
        return
    further: dict[str, None] = {}
    for name, each in properties.items():
        if type(each) is dict and type(each.get("required")) is bool:
            properties[name] = {key: value for key, value in each.items() if key != "required"}
            if each["required"]:
                further[name] = None
    for name in required:
        if type(name) is str:
            further.pop(name, None)
    if further:
        made["required"] = [*required, *further]


def why_invalid(schema: dict[str, Any]) -> str | None:
    """Return why a schema is not valid in its dialect, None if it is. Its references must lead into itself.

    It is not compiled, which may take minutes for some patterns. Its dialect must be one that `as_2020_12` returns.
    """
    try:
        jsonschema_rs.meta.validate(schema)
        _follow(schema)
    except jsonschema_rs.ValidationError as error:
        return str(error.message)
    except (AuthoringError, ValueError, jsonschema_rs.ReferencingError) as error:
        return str(error)
    return None


def _follow(schema: dict[str, Any]) -> None:
    """Resolve all references of a schema.

    Raises:
        AuthoringError: a reference leads nowhere, or outside.
    """
    references = References(schema)
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if type(part) is not dict:
            continue
        for keyword in _REFERENCES & part.keys():
            references.targets(part, keyword)
        for name, value in part.items():
            if name in OF_SCHEMAS and type(value) is dict:
                waiting.extend(value.values())
            elif name in _INNER:
                waiting.extend(value if type(value) is list else [value])
