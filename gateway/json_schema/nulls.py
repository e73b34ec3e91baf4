"""Leaves out members that are null, because some clients and models cannot leave out an optional member."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

_PREFIX: Final = "#/$defs/"
_UNIONS: Final = ("anyOf", "oneOf")

_Definitions: TypeAlias = Mapping[str, Any]


def without_optional_nulls(schema: Mapping[str, Any], value: Any, *, inner: bool = True) -> Any:
    """Return a value without the members that are null, where they are optional and their schema does not take null.

    With `inner`, this includes members of inner objects. In a union, the only option for an object or an array decides,
    and a schema that is not understood is taken to accept null.
    """
    return _without(schema, value, schema.get("$defs", {}), inner=inner)


def _without(schema: Any, value: Any, definitions: _Definitions, *, inner: bool = True) -> Any:
    if isinstance(value, list):
        items = _only(schema, "items", definitions).get("items")
        return [_without(items, item, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    whole = _only(schema, "properties", definitions) or _only(schema, "additionalProperties", definitions)
    properties, others = whole.get("properties", {}), whole.get("additionalProperties")
    optional = properties.keys() - whole.get("required", ())
    return {
        name: _without(properties.get(name, others), member, definitions) if inner else member
        for name, member in value.items()
        if member is not None or name not in optional or _takes_null(properties[name], definitions)
    }


def _only(schema: Any, keyword: str, definitions: _Definitions) -> Mapping[str, Any]:
    """Return the only option of a schema that has a keyword, or an empty schema."""
    found = [option for option in _options(schema, definitions) if keyword in option]
    return found[0] if len(found) == 1 else {}


def _options(schema: Any, definitions: _Definitions) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and the options of its unions, with each reference followed once."""
    whole = _followed(schema, definitions)
    if isinstance(whole, Mapping):
        yield whole
        for union in _UNIONS:
            for option in whole.get(union, ()):
                inner = _followed(option, definitions)
                if isinstance(inner, Mapping):
                    yield inner


def _followed(schema: Any, definitions: _Definitions) -> Any:
    reference = schema.get("$ref") if isinstance(schema, Mapping) else None
    return definitions.get(reference.removeprefix(_PREFIX), schema) if isinstance(reference, str) else schema


def _takes_null(schema: Any, definitions: _Definitions) -> bool:
    whole = _followed(schema, definitions)
    if not isinstance(whole, Mapping):
        return whole is not False
    if "null" not in whole.get("type", "null") or None not in whole.get("enum", (None,)):
        return False
    # A reference behind another one is not followed, so a definition that leads to itself ends here.
    return whole.get("const") is None and all(
        any(_takes_null(_followed(option, definitions), {}) for option in whole[union])
        for union in _UNIONS
        if union in whole
    )
