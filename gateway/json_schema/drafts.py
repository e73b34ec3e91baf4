"""Schemas of older drafts of JSON Schema, as 2020-12 writes them.

Interfaces of models take 2020-12 only, and refuse all tools for one schema. So what has an exact translation is
translated; `why_invalid` finds what has none.
"""

from __future__ import annotations

from typing import Any, Final

import jsonschema_rs

from gateway.json_schema.validation import refuse_to_fetch

_OF_SCHEMAS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SCHEMAS: Final = frozenset(
    {
        *("items", "additionalItems", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else"),
        *("unevaluatedItems", "unevaluatedProperties"),
    }
)
_MAY_BE_NULL: Final = frozenset({"default", "const", "example"})
_LIMITS: Final = (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"))
_NEWEST: Final = ("https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2020-12/schema#")


def as_2020_12(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema as 2020-12 writes it, the same one if it is written so.

    `$schema` is removed from one that changes or that names no known draft.
    """
    translated: dict[str, Any] = _translated(schema)
    dialect = translated.get("$schema", _NEWEST[0])
    if translated == schema and _is_known(dialect):
        return schema
    if dialect not in _NEWEST:
        del translated["$schema"]
    return translated


def _is_known(dialect: Any) -> bool:
    if dialect in _NEWEST:
        return True
    try:
        jsonschema_rs.validator_for({"$schema": dialect}, retriever=refuse_to_fetch)
    except (ValueError, jsonschema_rs.ValidationError):
        return False
    return True


def _translated(schema: Any) -> Any:
    if type(schema) is not dict:
        return schema
    made = {name: _part(name, value) for name, value in schema.items() if value is not None or name in _MAY_BE_NULL}
    items = made.get("items")
    if type(items) is list:
        made["prefixItems"] = [_translated(each) for each in items]
        del made["items"]
        if "additionalItems" in made:
            made["items"] = made.pop("additionalItems")
    for limit, exclusive in _LIMITS:
        if type(made.get(exclusive)) is bool and made.pop(exclusive) and limit in made:
            made[exclusive] = made.pop(limit)
    _require_properties(made)
    return made


def _part(name: str, value: Any) -> Any:
    if name in _OF_SCHEMAS and type(value) is dict:
        return {key: _translated(each) for key, each in value.items()}
    if name in _LISTS and type(value) is list:
        return [_translated(each) for each in value]
    return _translated(value) if name in _SCHEMAS else value


def _require_properties(made: dict[str, Any]) -> None:
    """Write the names of required properties at their object. Until draft 3, each property said it of itself."""
    properties, required = made.get("properties"), made.get("required", [])
    if type(properties) is not dict or type(required) is not list:
        return
    for name, each in properties.items():
        if type(each) is dict and type(each.get("required")) is bool:
            properties[name] = {key: value for key, value in each.items() if key != "required"}
            if each["required"] and name not in required:
                required = made["required"] = [*required, name]


def why_invalid(schema: dict[str, Any]) -> str | None:
    """Return why a schema is not valid in its dialect, None if it is. Its references must lead into itself."""
    try:
        jsonschema_rs.validator_for(schema, retriever=refuse_to_fetch, validate_formats=False)
    except jsonschema_rs.ValidationError as error:
        return str(error.message)
    except ValueError as error:
        return str(error)
    return None
