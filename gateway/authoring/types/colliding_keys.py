"""Keeps the keys of sets and dicts from being in each other's way, which would make each look-up pass all of them.

Python hashes texts with a secret, but numbers, and what is made of numbers, in a way that everybody can compute. Keys
with one hash are compared. Those with different ones may still be looked for in the same places of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pydantic_core import CoreConfig, CoreSchema, PydanticCustomError, PydanticKnownError, SchemaValidator, core_schema
from pydantic_core import ValidationError as CoreValidationError

MOST_COLLIDING: Final = 16
"""How many different keys may have the same hash. A few do by chance: -1 and -2, and pairs of them."""

MOST_SPREAD: Final = 1000
"""How many keys there may be whose hashes do not lie close together: looking for all takes 1 ms at worst."""

_KEYS: Final = {
    **dict.fromkeys(("set", "frozenset"), "items_schema"),
    **dict.fromkeys(("dict", "frozendict", "ordered-dict", "counter"), "keys_schema"),
}
"""The types that hash their keys → where their schema is."""
_HARMLESS: Final = frozenset({"str", "bytes", "bool", "none", "literal", "enum", "date"})
"""The types whose hashes nobody can choose, or that have few values."""


def keys_to_guard(schema: Mapping[str, Any]) -> Any:
    """Return the schema of the keys of a set or dict, or None if their hashes cannot be chosen."""
    kind = schema.get("type")
    if kind not in _KEYS:
        return None
    # A dict without a type of keys has those of JSON, which are texts.
    keys = schema.get(_KEYS[kind], {"type": "any"} if kind.endswith("set") else {"type": "str"})
    return None if _is_harmless(keys) else keys


def _is_harmless(schema: Mapping[str, Any]) -> bool:
    if schema["type"] == "nullable":
        return _is_harmless(schema["schema"])
    if schema["type"] == "union":
        return all(_is_harmless(each[0] if isinstance(each, tuple) else each) for each in schema["choices"])
    return schema["type"] in _HARMLESS


class KeyGuard:
    """Refuses the input of a set or dict whose keys would collide.

    Args:
        keys: the core schema of a key.
        config: the configuration of the model around it, if any.
    """

    def __init__(self, keys: CoreSchema, config: CoreConfig | None) -> None:
        self._keys = core_schema.list_schema(keys, fail_fast=True)
        self._config = config
        self._read: Callable[[Any], list[Any]]

    def complete(self, definitions: list[CoreSchema]) -> None:
        """Take the definitions that the keys refer to. Only then it can be used."""
        schema = core_schema.definitions_schema(self._keys, definitions) if definitions else self._keys
        self._read = SchemaValidator(schema, self._config, _use_prebuilt=False).validate_python

    def around(self, container: CoreSchema) -> CoreSchema:
        """Return the core schema of the guarded container."""
        inner: Any = dict(container)
        ref = inner.pop("ref", None)
        return core_schema.no_info_wrap_validator_function(self._validated, inner, ref=ref)

    def _validated(self, given: Any, handler: core_schema.ValidatorFunctionWrapHandler) -> Any:
        if isinstance(given, list | tuple | set | frozenset | dict) and len(given) > MOST_COLLIDING:
            self._refuse_collisions(list(given), is_dict=isinstance(given, dict))
        return handler(given)

    def _refuse_collisions(self, given: list[Any], *, is_dict: bool) -> None:
        try:
            keys = self._read(given)
        except CoreValidationError as error:
            if not is_dict:
                raise
            problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
            raise PydanticCustomError("dict_key", "{problem}", {"problem": f"a key: {problem['msg']}"}) from None
        try:
            collide = _collide(keys)
        except TypeError:
            raise PydanticKnownError("set_item_not_hashable") from None
        if collide:
            raise PydanticCustomError(
                "colliding_keys",
                "Too many of its numbers may collide as keys; send a part of it, with up to 1,000 numbers",
            )


def _collide(keys: list[Any]) -> bool:
    """Return whether many different keys may be looked for in the same places."""
    hashes = [hash(key) for key in keys]
    if len(hashes) > MOST_SPREAD and max(hashes) - min(hashes) >= 2 * len(hashes):
        return True
    return len(set(hashes)) < len(hashes) and _more_than_few(keys)


def _more_than_few(keys: Iterable[Any]) -> bool:
    known: dict[int, list[Any]] = {}
    for key in keys:
        same = known.setdefault(hash(key), [])
        if key not in same:
            if len(same) == MOST_COLLIDING:
                return True
            same.append(key)
    return False
