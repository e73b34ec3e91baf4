"""Makes `typing.TypedDict` readable for pydantic, which refuses it before Python 3.12."""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, NotRequired, Required, cast

import typing_extensions
from typing_extensions import ReadOnly

_PYDANTIC_READS_THEM: Final = sys.version_info >= (3, 12)
UNIONS: Final = (typing.Union, types.UnionType)
_QUALIFIERS: Final = (Required, NotRequired, ReadOnly)


def readable(annotation: Any, within: frozenset[Any] = frozenset()) -> Any:
    """Return an annotation with each `typing.TypedDict` replaced by an equal one of `typing_extensions`.

    Those inside another class are not replaced, and neither is one that refers to itself.
    """
    if _PYDANTIC_READS_THEM:
        return annotation
    if typing_extensions.is_typeddict(annotation):
        return annotation if _stays(annotation, within) else _rebuilt(annotation, within | {annotation})
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return Annotated[(readable(parts[0], within), *parts[1:])]
    if origin is Literal:
        return annotation
    replaced = tuple(readable(part, within) for part in parts)
    if all(new is old for new, old in zip(replaced, parts, strict=True)):
        return annotation
    return with_parts(origin, replaced)


def with_parts(origin: Any, parts: tuple[Any, ...]) -> Any:
    """Return the annotation that an origin, such as `dict` or `typing.Union`, makes of these parts."""
    return (typing.Union if origin in UNIONS else origin)[parts]


def _stays(kind: Any, within: frozenset[Any]) -> bool:
    return type(kind).__module__ != "typing" or kind in within


def _rebuilt(kind: Any, within: frozenset[Any]) -> Any:
    items = {}
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        qualifiers, bare = _unqualified(hint)
        # `__required_keys__` misses the qualifiers of annotations that were text.
        required = Required in qualifiers or (name in kind.__required_keys__ and NotRequired not in qualifiers)
        item = readable(bare, within)
        item = ReadOnly[item] if ReadOnly in qualifiers else item
        items[name] = item if required else NotRequired[item]
    make = cast("Callable[[str, dict[str, Any]], Any]", typing_extensions.TypedDict)
    rebuilt = make(kind.__name__, items)
    for attribute in ("__doc__", "__module__", "__qualname__", "__pydantic_config__"):
        if hasattr(kind, attribute):
            setattr(rebuilt, attribute, getattr(kind, attribute))
    return rebuilt


def _unqualified(hint: Any) -> tuple[set[Any], Any]:
    found = set()
    while typing.get_origin(hint) in _QUALIFIERS:
        found.add(typing.get_origin(hint))
        hint = typing.get_args(hint)[0]
    return found, hint
