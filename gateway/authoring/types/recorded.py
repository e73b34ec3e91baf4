"""How the values of steps and checkpoints are recorded: as JSON, and restored by their type.

The leg that runs a step gets its result read back from the JSON too. So all legs get the same value, and a type that
JSON cannot hold shows at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import typing
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSequence,
    Sequence,
)
from datetime import datetime, time
from decimal import Decimal
from types import FunctionType, MethodType
from typing import Annotated, Any, Final, Literal, Never, NoReturn, TypeVar, cast
from weakref import WeakKeyDictionary

from pydantic import BaseModel, Secret, SecretBytes, SecretStr
from typing_extensions import is_typeddict

from gateway.authoring.types.codecs import UNSERVABLE, Codec, is_json_type, name_of, return_annotation, unservable
from gateway.authoring.types.typed_dicts import UNIONS, with_parts
from gateway.engine.exchanged_token import ExchangedToken
from gateway.engine.values import Json, Recorder, copy_json, json_value
from gateway.errors import AuthoringError

PLAIN: Final = frozenset(
    {None, str, int, float, bool, dict, list, Any, "None", "str", "int", "float", "bool", "dict", "list", "Any"}
    | {dict[str, Any], "dict[str, Any]", list[str], "list[str]", Never, NoReturn}
)
"""Return annotations whose values are JSON, so that most functions need no other look. None means unannotated too."""

_OBJECTS: Final = (dict, Mapping, MutableMapping)
_READ_ONCE: Final = (Iterable, Iterator, Generator)
"""Pydantic would restore these as iterators, which can be read only once. The author means a list."""
_LISTS: Final = (list, Sequence, MutableSequence, Collection, *_READ_ONCE)

_CONTAINERS: Final = (dict, list, tuple, set, frozenset)
_SECRETS: Final = (Secret, SecretBytes, SecretStr)
_ARRAYS: Final = (list, tuple)
"""JSON has one kind of array: a tuple under `Sequence` becomes a list."""


def result_recorder(function: Callable[..., Any]) -> Recorder | None:
    """Return how to record the results of a step's function, or None if they are JSON.

    Raises:
        AuthoringError: pydantic does not know the type that the function returns, and its values are not JSON.
    """
    if type(function) is FunctionType:
        try:
            if function.__annotations__.get("return") in PLAIN:
                return None
        except TypeError:  # an annotation need not be hashable
            pass
    while isinstance(function, functools.partial):
        function = function.func
    if type(function) is MethodType:
        function = function.__func__
    # A function inside another one is made in each call, and its annotation may keep it alive.
    if not isinstance(function, FunctionType) or "<locals>" in function.__qualname__:
        return _result_recorder(function)
    known: Recorder | object | None = _BY_FUNCTION.get(function, _UNKNOWN)
    if known is _UNKNOWN:
        known = _BY_FUNCTION[function] = _result_recorder(function)
    return cast("Recorder | None", known)


_BY_FUNCTION: Final[WeakKeyDictionary[FunctionType, Recorder | None]] = WeakKeyDictionary()
_UNKNOWN: Final = object()


def _result_recorder(function: Callable[..., Any]) -> Recorder | None:
    if not hasattr(function, "__qualname__"):  # an object that can be called
        function = type(function).__call__
    try:
        annotation = return_annotation(function)
    except AuthoringError as error:
        # The name may exist for type checkers only, and mean something like `Mapping`.
        return _JsonRecorder(str(error))
    if (typing.get_origin(annotation) or annotation) in _READ_ONCE and _is_json(annotation):
        return _JsonRecorder("name the type of its items, as in `Iterator[Model]`")
    try:
        return recorder_for(annotation, f"the result of {getattr(function, '__qualname__', function)}")
    except AuthoringError as error:
        if not _may_be_json(annotation):
            raise
        return _JsonRecorder(str(error))


def recorder_for(annotation: Any, owner: str) -> Recorder | None:
    """Return how to record the values of a type, or None if they are JSON.

    The annotation has no forward references.

    Raises:
        AuthoringError: pydantic does not know the type.
    """
    if _is_json(annotation):
        return None
    try:
        try:
            # Equal unions may differ in their order, which decides when a value fits two choices.
            return _cached_recorder(annotation, "" if isinstance(annotation, type) else repr(annotation))
        except TypeError:
            return _TypedRecorder(annotation)  # the annotation is not hashable
    except UNSERVABLE as error:
        raise unservable(annotation, owner, error) from None


def _is_json(annotation: Any, within: tuple[Any, ...] = ()) -> bool:
    """Return whether all values of a type are JSON, or the type says nothing about them."""
    if is_json_type(annotation) or isinstance(annotation, TypeVar) or annotation in _ALSO_JSON or annotation in within:
        return True
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in _ALSO_JSON and not parts:  # `typing.Mapping`
        return True
    if is_typeddict(annotation):
        parts = tuple(typing.get_type_hints(annotation).values())
    elif origin in _OBJECTS:
        parts = parts[1:] if parts[0] is str else ()
    elif origin not in _SEVERAL:
        return False
    return parts != () and all(_is_json(part, (*within, annotation)) for part in parts)


_SEVERAL: Final = (*_LISTS, *UNIONS)
_ALSO_JSON: Final = (Never, NoReturn, *_OBJECTS, *_LISTS)


def _may_be_json(annotation: Any) -> bool:
    """Return whether a type that pydantic does not know may have values that are JSON, such as a subclass of dict."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _may_be_json(parts[0])
    if origin in UNIONS:
        return all(_may_be_json(part) for part in parts)
    kind = annotation if origin is None else origin
    if isinstance(kind, type) and not (_is_subclass(kind, _JSON_CLASSES) or _is_any_class_a(kind)):
        return False
    return all(map(_may_be_json, parts))


_JSON_CLASSES: Final = (str, int, float, list, tuple, Mapping, type(None))
_MADE_CLASSES: Final = (str, int, float, list, tuple, dict)


def _is_any_class_a(kind: type) -> bool:
    return any(_is_subclass(made, (kind,)) for made in _MADE_CLASSES)


def _is_subclass(kind: type, of: tuple[type, ...]) -> bool:
    try:
        return issubclass(kind, of)
    except TypeError:  # a protocol or a typed dict, whose values may be anything
        return True


def checkpoint_recorder(value: object, given: Any) -> Recorder | None:
    """Return how to record a checkpoint: by the type that the author gives, else by the class of the value.

    A value of a class that pydantic does not know is recorded as JSON, such as a `defaultdict`.

    Raises:
        AuthoringError: pydantic does not know the type that the author gives, or a class whose values are not JSON.
    """
    if given is not None:
        return recorder_for(given, "the checkpoint")
    kind = type(value)
    if kind in _CONTAINERS or kind in PLAIN:
        return None
    try:
        return recorder_for(kind, "the checkpoint")
    except AuthoringError:
        if not _may_be_json(kind) and kind is not ExchangedToken:
            raise
        return None  # the engine refuses the token, with better advice


def resumed_recorder(default: object, given: Any) -> Recorder | None:
    """Return how to restore a checkpoint: by the type that the author gives, else by the class of the default.

    Raises:
        AuthoringError: pydantic does not know the type that the author gives.
    """
    if given is not None:
        return recorder_for(given, "the checkpoint")
    try:
        return recorder_for(type(default), "the checkpoint")
    except AuthoringError:  # the default only stands for "no checkpoint"
        return None


class _TypedRecorder(Codec):
    """Records the values of a type that JSON lacks."""

    def __init__(self, annotation: Any) -> None:
        super().__init__(_with_lists(annotation))
        self.name = name_of(annotation)

    def record(self, value: object, where: str) -> tuple[Json, Any]:
        value = _all_of(value)
        try:
            # Without `fit`, whose validators could change the author's object.
            recorded = self.write(value, where)
            restored = self.restore(recorded, where)
        except AuthoringError:
            pass
        else:
            if _change(value, restored) is None:
                return recorded, restored
        fitting = self.fit(value, where)
        recorded = self.write(fitting, where)
        restored = self.restore(recorded, where)
        change = _change(fitting, restored)
        if change is not None:
            raise AuthoringError(f"{where} is annotated as {self.name}, which {change}")
        return recorded, restored

    def restore(self, recorded: Json, where: str) -> Any:
        return self.decode(recorded, where)


def _all_of(value: object) -> object:
    return list(value) if isinstance(value, Iterator) else value


def _with_lists(annotation: Any) -> Any:
    """Return an annotation with `list` for each type that pydantic would restore as an iterator, or does not know."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (*_READ_ONCE, Collection):
        return list.__class_getitem__(_with_lists(parts[0])) if parts else list
    if origin is Annotated:
        return Annotated[(_with_lists(parts[0]), *parts[1:])]
    if origin in (None, Callable, Literal):
        return list if origin is None and annotation in (*_READ_ONCE, Collection) else annotation
    replaced = tuple(map(_with_lists, parts))
    if all(new is old for new, old in zip(replaced, parts, strict=True)):
        return annotation
    return with_parts(origin, replaced)


@functools.lru_cache(maxsize=128)
def _cached_recorder(annotation: Any, _order: str) -> _TypedRecorder:
    return _TypedRecorder(annotation)


class _JsonRecorder:
    """Records JSON for a function whose annotation cannot be used, and explains why nothing else is possible."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def record(self, value: object, where: str) -> tuple[Json, Any]:
        recorded = json_value(_all_of(value), where, self._reason)
        return recorded, copy_json(recorded)

    def restore(self, recorded: Json, _where: str) -> Any:
        return copy_json(recorded)


def _change(value: Any, restored: Any) -> str | None:
    """Return how a restored value differs from the recorded one, or None if it does not.

    A type may hold what JSON cannot tell apart: `Any`, `date | str`, or two models with the same fields. Fields may be
    left out of the JSON, and validators run again when a value is restored.
    """
    if isinstance(value, _SECRETS):
        return None if value == restored else "hides secrets; do not record them"
    change = _change_of_class(value, restored)
    if change is not None or _is_record(value):
        return change or _change_of_record(value, restored)
    changes: Iterable[str | None] = ()
    if isinstance(value, (set, frozenset)):
        is_same = value == restored
        changes = map(_change_of_class, _parts(value), _parts(restored))
    elif isinstance(value, (Mapping, *_ARRAYS)):
        is_same = len(value) == len(restored)
        changes = map(_change, _parts(value), _parts(restored))
    else:
        is_same = _is_equal(value, restored)
    change = next(filter(None, changes), None)
    return change if change or is_same else f"would restore another {type(value).__name__}; {_REPEATABLE}"


_REPEATABLE: Final = "validators run again on each reading, and must not change what they have returned"


def _change_of_class(value: Any, restored: Any) -> str | None:
    if type(value) is type(restored) or _is_close(value, restored):
        return None
    return f"would restore {type(value).__name__} as {type(restored).__name__}; use a type that tells them apart"


def _is_close(value: Any, restored: Any) -> bool:
    """Return whether a value may be restored as one of another class."""
    kind, other = type(value), type(restored)
    if kind in _ARRAYS and other in _ARRAYS:
        return True
    if kind is int and other is float:
        return bool(value == restored)
    return isinstance(value, other) and not _is_record(value)


def _is_record(value: Any) -> bool:
    return isinstance(value, BaseModel) or dataclasses.is_dataclass(value)


def _change_of_record(value: Any, restored: Any) -> str | None:
    before, after = _state(value), _state(restored)
    for name in {**before, **after}:
        change = _change(before.get(name), after.get(name))
        if change is not None and name in _unrecorded(value):
            return f"would lose {type(value).__name__}.{name}, which its JSON lacks; make it an ordinary field"
        if change is not None:
            return change
    return None


def _state(value: Any) -> dict[str, Any]:
    """Return what a model or a dataclass holds, by name."""
    if isinstance(value, BaseModel):
        fields = {name: value.__dict__.get(name) for name in type(value).model_fields}
        return {**fields, **(value.model_extra or {}), **(value.__pydantic_private__ or {})}
    return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}


def _unrecorded(value: Any) -> set[str]:
    """Return the names of what a model or a dataclass does not write, or does not read."""
    if isinstance(value, BaseModel):
        excluded = {name for name, field in type(value).model_fields.items() if field.exclude}
        return excluded | set(value.__pydantic_private__ or {})
    return {field.name for field in dataclasses.fields(value) if not field.init}


def _is_equal(value: Any, restored: Any) -> bool:
    if type(value).__eq__ is _COMPARES_IDENTITIES:
        return True
    with contextlib.suppress(Exception):  # the author's code; an array has no truth value, for example
        # Not-a-number does not equal itself, nor does a time of the hour that is repeated in autumn.
        return bool(value == restored) or (type(value) in _BY_TEXT and str(value) == str(restored))
    return True


_COMPARES_IDENTITIES: Final[Any] = object.__eq__
_BY_TEXT: Final = (float, Decimal, datetime, time)


def _parts(value: Any) -> Iterable[Any]:
    """Return the parts of a value that are recorded; of a set, one of each type."""
    if isinstance(value, Mapping):
        return [*value, *value.values()]
    if isinstance(value, _ARRAYS):
        return value
    if isinstance(value, (set, frozenset)):
        by_type = {type(part).__name__: part for part in value}
        return [by_type[name] for name in sorted(by_type)]
    return list(_state(value).values()) if _is_record(value) else ()
